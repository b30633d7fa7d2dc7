"""The activities of a turn: its steps, and the abort.

A step loads what the turn has staged, lets the agent's adapter go one step further, and stages what came of it; the
step that comes to the output commits. One activity takes the steps up to the next model request (`leg`). All that a
step decides is in Redis before it reports, so an attempt that is repeated finds what was done and does not do it again.
How a turn failed is written there too: the workflow learns only that it did.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from laneway.activities.adapter import IMPORT_MARK, Compacting, StepResult, StepWork
from laneway.activities.agents import Agents
from laneway.activities.archive import TurnArchive
from laneway.activities.archive_transfer import opened_import
from laneway.activities.attempt import Attempt
from laneway.activities.delegating import Delegating, children_of
from laneway.activities.endings import Endings
from laneway.activities.exits import UserCodeStopped, exits_kept, stopped_itself
from laneway.activities.heartbeats import heartbeats
from laneway.activities.journal import ToolJournal
from laneway.activities.leg import Leg
from laneway.activities.loading import Loading
from laneway.activities.publisher import StepPublisher
from laneway.activities.retries import RetryStep, cause_of, decide
from laneway.activities.telemetry import StepTelemetry
from laneway.activities.turn_fields import failed_attempts, last_tally, staged_value, steps_staged, uncertain_calls
from laneway.activities.waiting import Waiting
from laneway.activities.wire import ABORT_TURN, RUN_STEP, AbortInput, StepInput, StepOutcome
from laneway.errors import HistoryError, InvalidInput, LanewayError, ServiceUnavailable, StaleTurn, StoreError
from laneway.history.cache import HeldHistory, HistoryCache
from laneway.history.compaction import COMPACT_MARK, Compaction
from laneway.history.delegation import superseded_of
from laneway.history.garbage import forget_frames
from laneway.history.heads import Fence, TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.options import TurnOptions
from laneway.history.records import EventKind, LaneEvent, StepAttempt, TurnRecord, TurnTally, TurnUsage
from laneway.history.requests import answers_since, first_of_episode
from laneway.history.store import HistoryStore

__all__ = ["Steps"]

_log = logging.getLogger(__name__)

_MAX_ERROR_CHARS = 4000
_MAX_UNEXPECTED = 5


class Steps:
    """The activities of one worker.

    Args:
        store: where histories live.
        agents: the agents that this worker runs.
        cache: the decoded histories that it keeps.
        heartbeat_interval: how often a running step says that it lives, and hears of a cancellation.
        mismatch_grace: for how long a step waits for a worker that has the lane's agent and contract, and what the turn
            refers to.
    """

    def __init__(
        self,
        store: HistoryStore,
        agents: Agents,
        *,
        cache: HistoryCache,
        heartbeat_interval: timedelta = timedelta(seconds=1),
        mismatch_grace: timedelta = timedelta(seconds=10),
    ) -> None:
        self._store = store
        self._agents = agents
        self._cache = cache
        self._heartbeat_interval = heartbeat_interval
        self._loading = Loading(store, agents, cache=cache, mismatch_grace=mismatch_grace)
        self._delegating = Delegating(store, agents)
        self._waiting = Waiting(store, self._delegating)
        self._endings = Endings(store, agents)

    @activity.defn(name=RUN_STEP)
    async def step(self, request: StepInput) -> StepOutcome:
        """Take the next steps of a turn, up to one that asks a model.

        Raises:
            ApplicationError: the step that it is at is to be tried again; `next_retry_delay` says when.
        """
        leg = Leg(request)
        async with heartbeats(self._heartbeat_interval):
            while (outcome := await self._step(leg)) is None:
                pass
        return outcome

    async def _step(self, leg: Leg) -> StepOutcome | None:
        """Take the step that the activity is at. None where it is at another one now."""
        request, fence = leg.request, leg.fence
        try:
            self._store.check_deployment(fence.lane, activity.info().workflow_id)
            with exits_kept():
                return await self._take(leg, fence)
        except TurnEnded as ended:
            await self._drop_children(ended.record)
            await self._endings.catch_up(fence.lane, ended.record)
            return StepOutcome(ended.record.outcome, request.v or 0, u=_committed_with(ended.record))
        except StaleTurn as error:
            # Another attempt goes on with the step, or did: this one's answer is not looked at.
            raise ApplicationError(str(error), type=error.code) from error
        except ServiceUnavailable as error:
            raise ApplicationError(str(error), type=error.code) from error
        except LanewayError as error:
            return await self._fail(request, fence, error, ())
        except ApplicationError:
            raise
        except Exception as error:
            # Nothing that a step is known to meet: a stored form that this version cannot read, say. Another
            # worker may do better; without end it must not go on.
            if fence.attempt < _MAX_UNEXPECTED:
                raise ApplicationError(str(error), type=type(error).__name__) from error
            return await self._fail(request, fence, error, ())

    @activity.defn(name=ABORT_TURN)
    async def abort(self, request: AbortInput) -> StepOutcome:
        """End a turn without a commit. Answers how it ended: another way, where it had ended before."""
        lane = LaneKey(request.c, request.a, request.k)
        fence = Fence(lane, request.t, request.n)
        self._store.check_deployment(lane, activity.info().workflow_id)
        error_type, error_message = (*request.e, None, None)[:2]
        fields = await self._store.turns.unfinished(lane, request.t)
        record = TurnRecord(
            turn_id=request.t,
            outcome=request.o,
            prompt_digest=request.p,
            started_at=int(fields["b"]) / 1000 if "b" in fields else None,
            ended_at=time.time(),
            steps=max(request.n, steps_staged(fields)),
            tally=last_tally(fields),
            error_type=error_type,
            error_message=error_message,
            attempts=tuple(failed_attempts(fields)),
            children=children_of(fields),
            uncertain=uncertain_calls(fields),
        )
        hooks = self._endings.hooks_of(lane, request.t, fields.get("op"))
        await self._endings.owe(hooks, lane, fields.get("op"))
        record = await self._store.endings.abort(fence, record, decided=True)
        await self._drop_children(record)
        if record.outcome == request.o:  # else a step ended it, which tells
            await self._endings.tell(hooks, lane, record, TurnOptions.from_json(fields.get("op")).trace)
        return StepOutcome(record.outcome, 0, u=_committed_with(record))

    async def _drop_children(self, record: TurnRecord) -> None:
        """What children of a turn that came to nothing have written goes with it."""
        if record.outcome != "committed" and record.children:
            await self._delegating.drop(record.children)

    # One attempt ------------------------------------------------------------------------------------------------------

    async def _take(self, leg: Leg, fence: Fence) -> StepOutcome | None:
        request = leg.request
        attempt = await self._loading.load(request, fence, is_new=leg.is_new)
        if f"s{request.n}" in attempt.turn.fields:
            return leg.after(await self._waiting.again(request, attempt), attempt)
        if leg.is_steered(attempt):
            return leg.stop(StepOutcome("next", attempt.turn.head.version, u=attempt.tally.taken))
        if (instruments := self._agents.instruments) is None:
            return leg.after(await self._run(request, attempt), attempt)
        with instruments.step(fence.lane, request.t, request.n, attempt.options.trace) as attempt.telemetry:
            outcome = await self._run(request, attempt)
        return leg.after(outcome, attempt)

    async def _run(self, request: StepInput, attempt: Attempt) -> StepOutcome:
        fence = attempt.fence
        # Not by way of the attempt: it refers to its journal, which writes with the publisher, and such a circle would
        # keep the whole history in memory until Python's collector comes.
        publisher = StepPublisher(
            lambda fields, events: self._store.turns.note(fence, fields=fields, events=events),
            turn_id=request.t,
            step=request.n,
            attempt=fence.attempt,
        )
        try:
            await self._waiting.gather_answers(request, attempt)
            async with publisher, self._agents.running(fence.lane.agent, attempt.profile):
                if attempt.turn.fields["in"].startswith(IMPORT_MARK):
                    result = await self._imported(attempt)
                elif attempt.turn.fields["in"].startswith(COMPACT_MARK):
                    result = await self._compacted(request, attempt, publisher)
                else:
                    await self._ask_about_prompt(request, attempt)
                    await self._loading.open_window(request, attempt)
                    await self._loading.read_steered(request, attempt)
                    result = attempt.whole(await attempt.adapter.step(self._work(request, attempt, publisher)))
                _emit_edits(publisher, result, attempt.telemetry)
                _emit_taken(publisher, attempt, result)
                for kind, data in result.said:
                    publisher.emit(kind, data)
                events = await publisher.drain()
            if result.done:
                return await self._commit(request, attempt, result, events)
            if result.requests:
                return await self._waiting.begin(request, attempt, result, events)
            return await self._stage(request, attempt, result, events)
        except (StaleTurn, ServiceUnavailable):
            raise
        except (asyncio.CancelledError, SystemExit) as error:
            if not stopped_itself(error):
                raise
            try:
                return await self._failed_attempt(request, attempt, UserCodeStopped("the agent", error))
            finally:
                forget_frames(error)
        except Exception as error:
            try:
                return await self._failed_attempt(request, attempt, error)
            finally:
                forget_frames(error)

    async def _ask_about_prompt(self, request: StepInput, attempt: Attempt) -> None:
        """Let hooks edit or deny the prompt, before anything else sees it."""
        if request.n == 0 and attempt.hooks.has("user_prompt_submit"):
            fields, adapter = attempt.turn.fields, attempt.adapter
            prompt = await attempt.hooks.prompt(
                fields["in"], decode=adapter.decode_prompt, encode=adapter.encode_prompt
            )
            attempt.turn = replace(attempt.turn, fields={**fields, "in": prompt})

    def _work(self, request: StepInput, attempt: Attempt, publisher: StepPublisher) -> StepWork[Any]:
        fields, step, fence = attempt.turn.fields, request.n, attempt.fence

        async def stage(result: StepResult[Any]) -> None:
            result = attempt.whole(result)
            after, entries = attempt.tail(result)
            tally = attempt.tally_with(result)
            held, tip = await self._store.turns.stage(
                fence, f"m{step}", staged_value(tally, result.state), entries=entries, after=after
            )
            if held is not None:
                raise StaleTurn(f"step {step} of turn {fence.turn_id!r} was staged by another attempt")
            assert tip is not None
            _emit_taken(publisher, attempt, result)
            attempt.checkpoint, attempt.tally = tip, tally
            attempt.advance(result, entries)
            _emit_edits(publisher, result, attempt.telemetry)

        async def keep(parts: Mapping[str, bytes]) -> None:
            await self._store.turns.keep(fence, parts)

        committed: Mapping[str, bytes] = {} if attempt.window is not None else attempt.turn.head.parts
        kept = {name.removeprefix("k:"): part for name, part in fields.items() if name.startswith("k:")}
        first = first_of_episode(fields, step)
        prefix = f"j{first}:"

        async def write(key: str, result: bytes) -> bytes | None:
            return await publisher.keep(prefix + key, result)

        attempt.journal = journal = ToolJournal(
            {k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}, write
        )
        return StepWork(
            conversation=fence.lane.conversation,
            turn_id=fence.turn_id,
            step=step,
            attempt=fence.attempt,
            prompt=fields["in"],
            history=tuple(attempt.history[attempt.hidden :]),
            entries=tuple(attempt.entries[attempt.hidden :]),
            base_length=attempt.base.length - attempt.hidden,
            checkpoint=attempt.checkpoint,
            extras={} if attempt.window is not None else attempt.turn.head.extras,
            parts={**committed, **kept},
            keep=keep,
            lane_id=fence.lane.lane_id,
            state=attempt.state,
            journal=journal,
            account=attempt.account(self._store.accounts, first),
            earlier_calls=attempt.earlier_calls(now=time.time()),
            answers=answers_since(fields, first),
            steered=[(turn_id, prompt) for turn_id, _, prompt in attempt.steered],
            stage=stage,
            emit=publisher.emit,
            scope=attempt.scope,
            opening=attempt.opening,
            archive=TurnArchive(self._store.archives, fence),
            hooks=attempt.hooks,
            telemetry=attempt.telemetry,
        )

    async def _imported(self, attempt: Attempt) -> StepResult[Any]:
        if attempt.base.length:
            raise HistoryError(
                f"the lane has a history of {attempt.base.length} messages: only a lane without one takes an import. "
                "Import into a new conversation"
            )
        blob, archived = opened_import(attempt.turn.fields["in"])
        messages, entries = attempt.adapter.decode_import(blob, attempt.fence.turn_id)
        for item in archived:
            await self._store.archives.put(attempt.fence, item)
        return StepResult(
            appended=messages,
            entries=entries,
            extras={"live": len(messages)},
            state=b"",
            usage=TurnUsage(),
            done=True,
            output="null",
        )

    async def _compacted(self, request: StepInput, attempt: Attempt, publisher: StepPublisher) -> StepResult[Any]:
        adapter: Any = attempt.adapter
        if "compaction" not in adapter.capabilities:
            raise InvalidInput(f"the adapter {adapter.shortname!r} cannot compact a history")
        compaction = Compaction.from_bytes(attempt.turn.fields["in"])
        result: StepResult[Any] = await cast("Compacting[Any]", adapter).compact(
            self._work(request, attempt, publisher), compaction
        )
        return result

    async def _stage(
        self, request: StepInput, attempt: Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        after, entries = attempt.tail(result)
        value = staged_value(attempt.tally_with(result), result.state)
        held, _ = await self._store.turns.stage(
            attempt.fence, f"s{request.n}", value, entries=entries, after=after, events=events
        )
        attempt.asked, attempt.staged_first = result.asked, held is None
        return StepOutcome("next", attempt.turn.head.version, u=attempt.tally_with(result).taken)

    async def _commit(
        self, request: StepInput, attempt: Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        after, entries = attempt.tail(result)
        blob, _ = opened_import(attempt.turn.fields["in"])
        record = replace(
            self._record(request, attempt, tally=attempt.tally_with(result)),
            outcome="committed",
            output=result.output,
            output_in_history=result.output_in_history,
            output_type=result.output_type,
            repairs=tuple(attempt.adapter.repairs_of(blob)) if blob.startswith(IMPORT_MARK) else (),
        )
        lane, options = attempt.fence.lane, attempt.turn.fields.get("op")
        await self._endings.owe(attempt.hooks, lane, options)
        extras, before = attempt.extras_with(result, now=time.time()), attempt.turn.head.extras
        is_root = not attempt.options.depth
        if is_root and superseded_of(before):
            await self._delegating.release(before)
        record = await self._store.endings.commit(
            attempt.fence,
            base=attempt.base,
            after=after,
            entries=entries,
            extras=extras,
            record=record,
            reply=result.reply if attempt.window is not None and attempt.options.is_root else None,
            events=events,
        )
        assert record.checkpoint is not None
        await self._endings.tell(attempt.hooks, lane, record, attempt.options.trace)
        if is_root and any(child.kept is not None for child in record.children):
            await self._delegating.release(extras)
        taken = _committed_with(record)
        if lane.is_once:
            return StepOutcome("committed", attempt.turn.head.version + 1, u=taken)
        attempt.advance(result, entries)
        held = HeldHistory(record.checkpoint, tuple(attempt.history), tuple(attempt.entries), attempt.size_bytes)
        self._cache.put(lane.lane_id, held)
        return StepOutcome("committed", attempt.turn.head.version + 1, u=taken)

    # Failures ---------------------------------------------------------------------------------------------------------

    async def _failed_attempt(self, request: StepInput, attempt: Attempt, error: Exception) -> StepOutcome:
        here = [one for one in attempt.failed if one.step == request.n]
        decision = decide(error, policy=attempt.adapter.retry_policy, failed=here)
        kind, message = cause_of(error)
        this = StepAttempt(request.n, attempt.fence.attempt, kind, message[:_MAX_ERROR_CHARS])
        if isinstance(decision, RetryStep):
            if decision.counts:
                note = json.dumps([kind, this.error_message]).encode()
                await self._store.turns.stage(attempt.fence, f"f{request.n}:{attempt.fence.attempt}", note)
            _log.info("step %d of turn %s is tried again: %s: %s", request.n, request.t, kind, message)
            raise ApplicationError(message, type=kind, next_retry_delay=decision.delay) from error
        if not isinstance(error, LanewayError):
            _log.warning("turn %s failed in step %d", request.t, request.n, exc_info=error)
        return await self._fail(request, attempt.fence, error, (*attempt.failed, this), attempt)

    async def _fail(
        self,
        request: StepInput,
        fence: Fence,
        error: Exception,
        attempts: Sequence[StepAttempt],
        attempt: Attempt | None = None,
    ) -> StepOutcome:
        kind, message = cause_of(error)
        record = self._record(
            request, attempt, tally=TurnTally() if attempt is None else replace(attempt.tally, steered=())
        )
        record = replace(record, error_type=kind, error_message=message[:_MAX_ERROR_CHARS], attempts=tuple(attempts))
        if attempt is None:
            record = replace(record, children=children_of(await self._store.turns.unfinished(fence.lane, request.t)))
        options = None if attempt is None else attempt.turn.fields.get("op")
        hooks = self._endings.hooks_of(fence.lane, request.t, options) if attempt is None else attempt.hooks
        try:
            await self._endings.owe(hooks, fence.lane, options)
            record = await self._store.endings.abort(fence, record)
        except StoreError as refused:
            raise ApplicationError(str(refused), type=refused.code) from refused
        await self._drop_children(record)
        await self._endings.tell(hooks, fence.lane, record, TurnOptions.from_json(options).trace)
        return StepOutcome(record.outcome, request.v or 0)

    def _record(self, request: StepInput, attempt: Attempt | None, *, tally: TurnTally) -> TurnRecord:
        began = None if attempt is None else attempt.turn.fields.get("b")
        return TurnRecord(
            turn_id=request.t,
            outcome="failed",
            prompt_digest=request.p,
            started_at=time.time() if began is None else int(began) / 1000,
            ended_at=time.time(),
            steps=request.n + 1,
            tally=tally,
            attempts=() if attempt is None else tuple(attempt.failed),
            children=() if attempt is None else children_of(attempt.turn.fields),
            uncertain=() if attempt is None else uncertain_calls(attempt.turn.fields, attempt.journal),
        )


def _emit_edits(publisher: StepPublisher, result: StepResult[Any], telemetry: StepTelemetry | None) -> None:
    for edit in result.edits:
        if telemetry is not None:
            telemetry.edited(edit)
        kind = EventKind.HISTORY_REWRITTEN if edit.is_rewrite else EventKind.HISTORY_KEPT
        publisher.emit(kind, asdict(edit))


def _emit_taken(publisher: StepPublisher, attempt: Attempt, result: StepResult[Any]) -> None:
    known = attempt.tally.taken
    for turn_id in result.took:
        if turn_id not in known:
            publisher.emit(EventKind.MESSAGE_TAKEN, {"turn": turn_id})


def _committed_with(record: TurnRecord) -> list[str]:
    """The messages that were committed with a turn."""
    return record.tally.taken if record.outcome == "committed" else []
