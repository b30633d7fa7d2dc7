"""The activities of a turn: a step, and the abort.

A step loads what the turn has staged, lets the agent's adapter go one step further, and stages what came of it; the
step that comes to the output commits. All that a step decides is in Redis before it reports, so an attempt that is
repeated finds what was done and does not do it again. How a turn failed is written there too: the workflow learns
only that it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError

from laneway.activities.account import TurnAccount
from laneway.activities.adapter import IMPORT_MARK, Adapter, Compacting, StepResult, StepWork, Windowed
from laneway.activities.agents import Agents
from laneway.activities.archive import TurnArchive
from laneway.activities.delegating import Delegating, children_of, kept_after
from laneway.activities.endings import Endings
from laneway.activities.journal import UNCERTAIN, ToolJournal
from laneway.activities.profiles import ProfileSource
from laneway.activities.publisher import StepPublisher
from laneway.activities.references import UnknownReference
from laneway.activities.retries import RetryStep, cause_of, decide
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.telemetry import StepTelemetry
from laneway.activities.turn_hooks import HookJournal, TurnHooks
from laneway.activities.turn_scope import TurnScope
from laneway.activities.wire import ABORT_TURN, RUN_STEP, AbortInput, Awaited, StepInput, StepOutcome
from laneway.errors import (
    CheckpointLost,
    HistoryError,
    InvalidInput,
    LanewayError,
    ServiceUnavailable,
    StaleTurn,
    StoreError,
    UnknownAgent,
)
from laneway.history.cache import HeldHistory, HistoryCache
from laneway.history.checkpoints import CheckpointRef, StoredEntry
from laneway.history.compaction import COMPACT_MARK, Compaction
from laneway.history.delegation import Kept
from laneway.history.heads import Fence, LoadedTurn, TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.options import TurnOptions
from laneway.history.origins import EntryMetadata
from laneway.history.records import EventKind, LaneEvent, StepAttempt, TurnRecord, TurnTally, TurnUsage, UncertainCall
from laneway.history.requests import Answer, StoredRequest, answers_since, first_of_episode, requests_of
from laneway.history.store import HistoryStore
from laneway.history.threads import TextWindow, opening_of

__all__ = ["Steps"]

_log = logging.getLogger(__name__)

_MAX_ERROR_CHARS = 4000
_MAX_UNEXPECTED = 5


@dataclass
class _Attempt:
    """An attempt at a step, once it is loaded.

    Attributes:
        history: the native messages, committed and staged; those that the attempt stages itself are added.
        size_bytes: what their entries take as they are stored.
        checkpoint: the one that they lead to.
        options: what the turn's caller asked for.
        window: the adapter's text window, where it has one in place of native history.
        opening: see `StepWork`.
        steered: what may be taken in: turn id, prompt's digest and prompt.
    """

    fence: Fence
    turn: LoadedTurn
    adapter: Adapter[Any]
    history: list[Any]
    entries: list[EntryMetadata]
    size_bytes: int
    checkpoint: CheckpointRef
    failed: Sequence[StepAttempt]
    state: bytes | None
    tally: TurnTally
    scope: ScopeInForce
    profile: ProfileSource
    hooks: TurnHooks
    options: TurnOptions
    window: TextWindow | None
    opening: str = ""
    steered: Sequence[tuple[str, str, bytes]] = ()
    journal: ToolJournal | None = None
    telemetry: StepTelemetry | None = None

    @property
    def base(self) -> CheckpointRef:
        return self.turn.head.checkpoint

    @property
    def hidden(self) -> int:
        """How many messages of the history the turn is not shown: with a text window those of all other turns."""
        return 0 if self.window is None else self.base.length

    @property
    def kept(self) -> Kept:
        return kept_after(self.turn.fields, self.turn.head.extras)


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
        self._mismatch_grace = mismatch_grace
        self._delegating = Delegating(store, agents)
        self._endings = Endings(store, agents)

    @activity.defn(name=RUN_STEP)
    async def step(self, request: StepInput) -> StepOutcome:
        """Take one step of a turn.

        Raises:
            ApplicationError: the step is to be tried again; `next_retry_delay` says when.
        """
        lane = LaneKey(request.c, request.a, request.k)
        fence = Fence(lane, request.t, request.n, activity.info().attempt)
        async with self._heartbeats():
            try:
                return await self._take(request, fence)
            except TurnEnded as ended:
                await self._drop_children(ended.record)
                await self._endings.catch_up(lane, ended.record)
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
        error_type, error_message = (*request.e, None, None)[:2]
        fields = await self._store.unfinished(lane, request.t)
        record = TurnRecord(
            turn_id=request.t,
            outcome=request.o,
            prompt_digest=request.p,
            started_at=int(fields["b"]) / 1000 if "b" in fields else None,
            ended_at=time.time(),
            steps=request.n,
            tally=_last_tally(fields),
            error_type=error_type,
            error_message=error_message,
            attempts=tuple(_failed_attempts(fields)),
            children=children_of(fields),
            uncertain=_uncertain(fields),
        )
        hooks = self._endings.hooks_of(lane, request.t, fields.get("op"))
        await self._endings.owe(hooks, lane, fields.get("op"))
        record = await self._store.abort(fence, record, decided=True)
        await self._drop_children(record)
        if record.outcome == request.o:  # else a step ended it, which tells
            await self._endings.tell(hooks, lane, record, TurnOptions.from_json(fields.get("op")).trace)
        return StepOutcome(record.outcome, 0, u=_committed_with(record))

    async def _drop_children(self, record: TurnRecord) -> None:
        """What children of a turn that came to nothing have written goes with it."""
        if record.outcome != "committed" and record.children:
            await self._delegating.drop(record.children)

    # One attempt ------------------------------------------------------------------------------------------------------

    async def _take(self, request: StepInput, fence: Fence) -> StepOutcome:
        attempt = await self._load(request, fence)
        if f"s{request.n}" in attempt.turn.fields:
            return await self._staged_before(request, attempt)
        if (instruments := self._agents.instruments) is None:
            return await self._run(request, attempt)
        with instruments.step(fence.lane, request.t, request.n, attempt.options.trace) as attempt.telemetry:
            return await self._run(request, attempt)

    async def _run(self, request: StepInput, attempt: _Attempt) -> StepOutcome:
        fence = attempt.fence
        publisher = StepPublisher(
            lambda events: self._store.publish(attempt.fence, events),
            turn_id=request.t,
            step=request.n,
            attempt=fence.attempt,
        )
        try:
            await self._gather_answers(request, attempt)
            async with publisher, self._agents.running(fence.lane.agent, attempt.profile):
                if attempt.turn.fields["in"].startswith(IMPORT_MARK):
                    result = self._imported(attempt)
                elif attempt.turn.fields["in"].startswith(COMPACT_MARK):
                    result = await self._compacted(request, attempt, publisher)
                else:
                    await self._ask_about_prompt(request, attempt)
                    await self._open(request, attempt)
                    await self._read_steered(request, attempt)
                    result = whole(attempt, await attempt.adapter.step(self._work(request, attempt, publisher)))
                _emit_edits(publisher, result, attempt.telemetry)
                _emit_taken(publisher, attempt, result)
                for kind, data in result.said:
                    publisher.emit(kind, data)
                events = await publisher.drain()
            if result.done:
                return await self._commit(request, attempt, result, events)
            if result.requests:
                return await self._wait(request, attempt, result, events)
            return await self._stage(request, attempt, result, events)
        except (StaleTurn, ServiceUnavailable, asyncio.CancelledError):
            raise
        except Exception as error:
            return await self._failed_attempt(request, attempt, error)

    async def _ask_about_prompt(self, request: StepInput, attempt: _Attempt) -> None:
        """Let hooks edit or deny the prompt, before anything else sees it."""
        if request.n == 0 and attempt.hooks.has("user_prompt_submit"):
            fields, adapter = attempt.turn.fields, attempt.adapter
            prompt = await attempt.hooks.prompt(
                fields["in"], decode=adapter.decode_prompt, encode=adapter.encode_prompt
            )
            attempt.turn = replace(attempt.turn, fields={**fields, "in": prompt})

    def _hooks(self, fence: Fence, fields: Mapping[str, bytes], scope: ScopeInForce) -> TurnHooks:
        async def keep(name: str, value: bytes, prompt: bytes | None) -> bytes | None:
            return await self._store.decide(fence, f"h:{name}", value, prompt=prompt)

        recorded = {name.removeprefix("h:"): value for name, value in fields.items() if name.startswith("h:")}
        return TurnHooks(
            () if scope.is_quiet else (*self._agents.hooks(fence.lane.agent), *scope.hooks),
            fence.lane.conversation,
            fence.lane.agent,
            fence.turn_id,
            first_of_episode(fields, fence.step),
            HookJournal(recorded, keep),
        )

    @contextmanager
    def _grace(self) -> Generator[None]:
        """While workers of two versions run, another one may have what this one has not."""
        try:
            yield
        except (UnknownAgent, UnknownReference) as error:
            waited = datetime.now(UTC) - activity.info().scheduled_time
            if waited < self._mismatch_grace:
                raise ServiceUnavailable(str(error)) from error
            raise

    async def _load(self, request: StepInput, fence: Fence) -> _Attempt:
        held = self._cache.get(fence.lane.lane_id)
        step = fence.step
        turn = await self._store.load(
            fence,
            held=held.checkpoint,
            started=LaneEvent(EventKind.TURN_STARTED, fence.turn_id),
            retried=LaneEvent(EventKind.STEP_RETRIED, fence.turn_id, step, fence.attempt),
            now=time.time(),
        )
        head = turn.head
        if request.v is not None and head.version < request.v:
            raise CheckpointLost(
                f"the lane's head in Redis is at version {head.version}, and version {request.v} was committed: "
                "history is missing. Nothing was sent; restore Redis from a backup that has this lane, or start a new "
                "conversation"
            )
        if "in" not in turn.fields:
            raise CheckpointLost(
                f"the prompt of turn {fence.turn_id!r} is missing from Redis. Nothing was sent; submit the turn again "
                "under a new id"
            )
        options = TurnOptions.from_json(turn.fields.get("op"))
        said = TurnScope.from_data(options.scope)
        with self._grace():
            scope = said.resolved(self._agents.registry)
            adapter = self._agents.for_lane(fence.lane, said.profile)
        committed = self._decoded(fence.lane, adapter, held, turn)
        messages, entries, size = list(committed.messages), list(committed.entries), committed.size_bytes
        if turn.stage_checkpoint.epoch != head.checkpoint.epoch:
            messages, entries, size = [], [], 0
        messages.extend(adapter.decode(entry.payload) for entry in turn.staged)
        entries.extend(EntryMetadata.from_stored(entry.metadata) for entry in turn.staged)
        tally, state = _latest(turn.fields, step)
        fence = replace(fence, version=head.version)
        return _Attempt(
            fence=fence,
            turn=turn,
            adapter=adapter,
            history=messages,
            entries=entries,
            size_bytes=size + _size(turn.staged),
            checkpoint=turn.stage_checkpoint,
            failed=_failed_attempts(turn.fields),
            state=state,
            tally=tally,
            scope=scope,
            options=options,
            window=getattr(adapter, "text_window", None),
            profile=said.profile,
            hooks=self._hooks(fence, turn.fields, scope),
        )

    async def _open(self, request: StepInput, attempt: _Attempt) -> None:
        """Where the adapter has a text window, begin a turn with what the thread holds, its own request included."""
        window, state = attempt.window, attempt.state
        if window is None or request.n or state is not None:
            return
        fence, prompt = attempt.fence, attempt.turn.fields["in"]
        is_root = attempt.options.is_root
        if is_root:
            await self._store.threads.open_turn(fence, cast("Windowed", attempt.adapter).text_of_prompt(prompt))
        shown = await self._store.list_messages(fence.lane, window.messages)
        attempt.opening = opening_of(shown, is_brief=not is_root)

    async def _read_steered(self, request: StepInput, attempt: _Attempt) -> None:
        """Read what steers the turn, as far as it may take it in.

        What it may not becomes a turn of its own: what a hook is to be asked about, what goes by other options than
        this turn, and in a text thread each request, which the thread has by its turn.
        """
        if not request.u or attempt.window is not None or attempt.hooks.has("user_prompt_submit"):
            return
        known, found = set(attempt.tally.taken), list[tuple[str, str, bytes]]()
        mine = replace(attempt.options, trace={})
        for turn_id in request.u:
            fields = {} if turn_id in known else await self._store.unfinished(attempt.fence.lane, turn_id)
            if "in" in fields and replace(TurnOptions.from_json(fields.get("op")), trace={}) == mine:
                found.append((turn_id, fields["p"].decode(), fields["in"]))
        attempt.steered = found

    def _decoded(self, lane: LaneKey, adapter: Adapter[Any], held: HeldHistory, turn: LoadedTurn) -> HeldHistory:
        before, known = (held.messages, held.entries) if turn.first else ((), ())
        size = held.size_bytes if turn.first else 0
        if turn.first and not turn.entries:
            return held
        history = HeldHistory(
            turn.head.checkpoint,
            (*before, *(adapter.decode(entry.payload) for entry in turn.entries)),
            (*known, *(EntryMetadata.from_stored(entry.metadata) for entry in turn.entries)),
            size + _size(turn.entries),
        )
        self._cache.put(lane.lane_id, history)
        return history

    def _work(self, request: StepInput, attempt: _Attempt, publisher: StepPublisher) -> StepWork[Any]:
        fields, step, fence = attempt.turn.fields, request.n, attempt.fence

        async def stage(result: StepResult[Any]) -> None:
            result = whole(attempt, result)
            after, entries = self._tail(attempt, result)
            tally = _tally(attempt, result)
            held, tip = await self._store.stage(
                fence, f"m{step}", _staged(tally, result.state), entries=entries, after=after
            )
            if held is not None:
                raise StaleTurn(f"step {step} of turn {fence.turn_id!r} was staged by another attempt")
            assert tip is not None
            _emit_taken(publisher, attempt, result)
            attempt.checkpoint, attempt.tally = tip, tally
            self._advance(attempt, result, entries)
            _emit_edits(publisher, result, attempt.telemetry)

        first = first_of_episode(fields, step)
        prefix = f"j{first}:"

        async def write(key: str, result: bytes) -> bytes | None:
            held, _ = await self._store.stage(fence, prefix + key, result)
            return held

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
            lane_id=fence.lane.lane_id,
            state=attempt.state,
            journal=journal,
            account=self._account(attempt, first),
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

    def _tail(self, attempt: _Attempt, result: StepResult[Any]) -> tuple[CheckpointRef, list[StoredEntry]]:
        """Where the result's entries go: after what is staged, or into a cache epoch of their own."""
        adapter, turn_id = attempt.adapter, attempt.fence.turn_id
        if result.rewritten is None:
            after, messages = attempt.checkpoint, result.appended
        else:
            after, messages = CheckpointRef(attempt.checkpoint.epoch + 1, 0, ""), result.rewritten
        known = result.entries
        if known is None:
            known = [adapter.describe(message, turn_id) for message in messages]
        encoded = map(adapter.encode, messages)
        return after, [StoredEntry(blob, entry.to_stored()) for blob, entry in zip(encoded, known, strict=True)]

    def _advance(self, attempt: _Attempt, result: StepResult[Any], entries: Sequence[StoredEntry]) -> None:
        """Let the attempt hold what the result's entries lead to."""
        if result.rewritten is not None:
            attempt.history, attempt.entries, attempt.size_bytes = [], [], 0
        attempt.history.extend(result.appended if result.rewritten is None else result.rewritten)
        attempt.entries.extend(EntryMetadata.from_stored(entry.metadata) for entry in entries)
        attempt.size_bytes += _size(entries)

    def _imported(self, attempt: _Attempt) -> StepResult[Any]:
        if attempt.base.length:
            raise HistoryError(
                f"the lane has a history of {attempt.base.length} messages: only a lane without one takes an import. "
                "Import into a new conversation"
            )
        blob = attempt.turn.fields["in"]
        messages, entries = attempt.adapter.decode_import(blob, attempt.fence.turn_id)
        return StepResult(
            appended=messages,
            entries=entries,
            extras={"live": len(messages)},
            state=b"",
            usage=TurnUsage(),
            done=True,
            output="null",
        )

    async def _compacted(self, request: StepInput, attempt: _Attempt, publisher: StepPublisher) -> StepResult[Any]:
        adapter: Any = attempt.adapter
        if "compaction" not in adapter.capabilities:
            raise InvalidInput(f"the adapter {adapter.shortname!r} cannot compact a history")
        compaction = Compaction.from_bytes(attempt.turn.fields["in"])
        result: StepResult[Any] = await cast("Compacting[Any]", adapter).compact(
            self._work(request, attempt, publisher), compaction
        )
        return result

    async def _stage(
        self, request: StepInput, attempt: _Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        after, entries = self._tail(attempt, result)
        value = _staged(_tally(attempt, result), result.state)
        await self._store.stage(attempt.fence, f"s{request.n}", value, entries=entries, after=after, events=events)
        return StepOutcome("next", attempt.turn.head.version, u=_tally(attempt, result).taken)

    def _account(self, attempt: _Attempt, batch: int) -> TurnAccount:
        options, accounts = attempt.options, self._store.accounts
        above = [
            TurnAccount.of_parent(accounts, parent, depth=depth, child=attempt.fence, batch=batch)
            for depth, parent in enumerate(options.parents)
        ]
        budget = getattr(attempt.adapter, "budget", None)  # of those with the capability
        return TurnAccount(accounts, attempt.fence, budget=budget, options=options, batch=batch, above=above)

    # Waiting ----------------------------------------------------------------------------------------------------------

    async def _wait(
        self, request: StepInput, attempt: _Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        after, entries = self._tail(attempt, result)
        now = time.time()
        requests = [StoredRequest(one, request.n, now) for one in result.requests]
        if len({one.request.id for one in requests}) < len(requests):
            raise InvalidInput("two requests of a step have the same id: give each `ref` its own")
        planned = self._delegating.plan(attempt.fence, requests, options=attempt.options, kept=attempt.kept)
        for stored, refused in planned:
            if refused is not None:
                self._delegating.judge(stored, refused)
        value = _staged(_tally(attempt, result), result.state)
        held, _ = await self._store.stage(
            attempt.fence,
            f"s{request.n}",
            value,
            entries=entries,
            after=after,
            requests=[stored for stored, _ in planned],
            answers={stored.request.id: refused for stored, refused in planned if refused is not None},
            events=events,
        )
        if held is not None:
            raise StaleTurn(f"step {request.n} of turn {request.t!r} was staged by another attempt")
        attempt.tally = _tally(attempt, result)
        return await self._waiting(attempt, [stored for stored, refused in planned if refused is None])

    async def _staged_before(self, request: StepInput, attempt: _Attempt) -> StepOutcome:
        fields = attempt.turn.fields
        attempt.tally, _ = _latest(fields, request.n + 1)
        if f"w{request.n}" not in fields:
            return StepOutcome("next", attempt.turn.head.version, u=attempt.tally.taken)
        found = requests_of(fields)
        return await self._waiting(
            attempt, [stored for stored, answer in found if stored.step == request.n and answer is None]
        )

    async def _waiting(self, attempt: _Attempt, requests: Sequence[StoredRequest]) -> StepOutcome:
        # All after it is staged: no child is without its parent, and readers take lanes that do not wait out of the
        # index.
        awaited: list[Awaited] = []
        account = self._account(attempt, attempt.fence.step)
        for one in requests:
            if one.child is None:
                awaited.append(Awaited(one.request.id, one.deadline))
            else:
                awaited.append(
                    await self._delegating.prepare(
                        attempt.fence, one, options=attempt.options, account=account, kept=attempt.kept
                    )
                )
        if awaited:
            await self._store.note_waiting(attempt.fence.lane, now=time.time())
        return StepOutcome("waiting" if awaited else "next", attempt.turn.head.version, awaited, u=attempt.tally.taken)

    async def _gather_answers(self, request: StepInput, attempt: _Attempt) -> None:
        """Have an answer to all that the step before waited for: of children what they came to, else by default."""
        fields = dict(attempt.turn.fields)
        for stored, given in requests_of(fields):
            if stored.step != request.n - 1:
                continue
            answer = given or await self._late_answer(request, attempt, stored)
            fields[f"r:{stored.request.id}"] = answer.to_json()
            self._delegating.judge(stored, answer)
        attempt.turn = replace(attempt.turn, fields=fields)

    async def _late_answer(self, request: StepInput, attempt: _Attempt, stored: StoredRequest) -> Answer:
        asked = stored.request
        answer = asked.default if stored.child is None else await self._delegating.outcome(stored)
        if answer is None:
            raise CheckpointLost(f"the answer to request {asked.id} of turn {request.t!r} is missing from Redis")
        return await self._store.answer(attempt.fence.lane, request.t, asked.id, answer) or answer

    async def _commit(
        self, request: StepInput, attempt: _Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        after, entries = self._tail(attempt, result)
        blob = attempt.turn.fields["in"]
        record = replace(
            self._record(request, attempt, tally=_tally(attempt, result)),
            outcome="committed",
            output=result.output,
            output_in_history=result.output_in_history,
            repairs=tuple(attempt.adapter.repairs_of(blob)) if blob.startswith(IMPORT_MARK) else (),
        )
        lane, options = attempt.fence.lane, attempt.turn.fields.get("op")
        await self._endings.owe(attempt.hooks, lane, options)
        record = await self._store.commit(
            attempt.fence,
            base=attempt.base,
            after=after,
            entries=entries,
            extras=_extras(attempt, result),
            record=record,
            reply=result.reply if attempt.window is not None and attempt.options.is_root else None,
            events=events,
        )
        assert record.checkpoint is not None
        await self._endings.tell(attempt.hooks, lane, record, attempt.options.trace)
        taken = _committed_with(record)
        if lane.is_once:
            return StepOutcome("committed", attempt.turn.head.version + 1, u=taken)
        self._advance(attempt, result, entries)
        held = HeldHistory(record.checkpoint, tuple(attempt.history), tuple(attempt.entries), attempt.size_bytes)
        self._cache.put(lane.lane_id, held)
        return StepOutcome("committed", attempt.turn.head.version + 1, u=taken)

    # Failures ---------------------------------------------------------------------------------------------------------

    async def _failed_attempt(self, request: StepInput, attempt: _Attempt, error: Exception) -> StepOutcome:
        here = [one for one in attempt.failed if one.step == request.n]
        decision = decide(error, policy=attempt.adapter.retry_policy, failed=here)
        kind, message = cause_of(error)
        this = StepAttempt(request.n, attempt.fence.attempt, kind, message[:_MAX_ERROR_CHARS])
        if isinstance(decision, RetryStep):
            if decision.counts:
                note = json.dumps([kind, this.error_message]).encode()
                await self._store.stage(attempt.fence, f"f{request.n}:{attempt.fence.attempt}", note)
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
        attempt: _Attempt | None = None,
    ) -> StepOutcome:
        kind, message = cause_of(error)
        record = self._record(
            request, attempt, tally=TurnTally() if attempt is None else replace(attempt.tally, steered=())
        )
        record = replace(record, error_type=kind, error_message=message[:_MAX_ERROR_CHARS], attempts=tuple(attempts))
        if attempt is None:
            record = replace(record, children=children_of(await self._store.unfinished(fence.lane, request.t)))
        options = None if attempt is None else attempt.turn.fields.get("op")
        hooks = self._endings.hooks_of(fence.lane, request.t, options) if attempt is None else attempt.hooks
        try:
            await self._endings.owe(hooks, fence.lane, options)
            record = await self._store.abort(fence, record)
        except StoreError as refused:
            raise ApplicationError(str(refused), type=refused.code) from refused
        await self._drop_children(record)
        await self._endings.tell(hooks, fence.lane, record, TurnOptions.from_json(options).trace)
        return StepOutcome(record.outcome, request.v or 0)

    def _record(self, request: StepInput, attempt: _Attempt | None, *, tally: TurnTally) -> TurnRecord:
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
            uncertain=() if attempt is None else _uncertain(attempt.turn.fields, attempt.journal),
        )

    # Heartbeats -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _heartbeats(self) -> AsyncGenerator[None]:
        async def beat() -> None:
            while True:
                await asyncio.sleep(self._heartbeat_interval.total_seconds())
                activity.heartbeat()

        task = asyncio.create_task(beat(), name="laneway-heartbeat")
        try:
            yield
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.worker_shutdown and not details.cancel_requested:
                # Not a cancellation of the turn: another worker goes on with the step.
                raise ApplicationError("the worker is shutting down", type="WorkerShutdown") from None
            raise
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def whole(attempt: _Attempt, result: StepResult[Any]) -> StepResult[Any]:
    """A result of a turn that was not shown the history before it, as one of the lane's whole history."""
    if attempt.window is None:
        return result
    hidden = attempt.hidden
    # Ids of the provider's that the turn left go on from what it was shown, not from the lane's history.
    extras = {**attempt.turn.head.extras, "live": len(attempt.history) + len(result.appended)}
    if result.rewritten is None:
        return replace(result, extras=extras)
    known = result.entries
    if known is None:
        known = [attempt.adapter.describe(message, attempt.fence.turn_id) for message in result.rewritten]
    return replace(
        result,
        rewritten=[*attempt.history[:hidden], *result.rewritten],
        entries=[*attempt.entries[:hidden], *known],
        extras={**extras, "live": hidden + len(result.rewritten)},
    )


def _emit_edits(publisher: StepPublisher, result: StepResult[Any], telemetry: StepTelemetry | None) -> None:
    for edit in result.edits:
        if telemetry is not None:
            telemetry.edited(edit)
        kind = EventKind.HISTORY_REWRITTEN if edit.is_rewrite else EventKind.HISTORY_KEPT
        publisher.emit(kind, asdict(edit))


def _emit_taken(publisher: StepPublisher, attempt: _Attempt, result: StepResult[Any]) -> None:
    known = attempt.tally.taken
    for turn_id in result.took:
        if turn_id not in known:
            publisher.emit(EventKind.MESSAGE_TAKEN, {"turn": turn_id})


def _committed_with(record: TurnRecord) -> list[str]:
    """The messages that were committed with a turn."""
    return record.tally.taken if record.outcome == "committed" else []


def _size(entries: Sequence[StoredEntry]) -> int:
    return sum(len(entry.payload) for entry in entries)


def _staged(tally: TurnTally, state: bytes) -> bytes:
    head = tally.to_json()
    return b"%d|%s%s" % (len(head), head, state)


def _latest(fields: Mapping[str, bytes], step: int) -> tuple[TurnTally, bytes | None]:
    """The tally and the adapter's state that were staged last before what step `step` is to do."""
    value = fields.get(f"m{step}")
    if value is None:
        if step == 0:
            return TurnTally(), None
        value = fields[f"s{step - 1}"]
    length, _, rest = value.partition(b"|")
    return TurnTally.from_json(rest[: int(length)]), rest[int(length) :]


def _last_tally(fields: Mapping[str, bytes]) -> TurnTally:
    """What a turn had used and edited when it was stopped, as far as it was staged."""
    staged = [(int(name[1:]), name) for name in fields if name[0] in "ms" and name[1:].isdigit()]
    if not staged:
        return TurnTally()
    length, _, rest = fields[max(staged)[1]].partition(b"|")
    # What it had taken in is not lost with it: each message is a turn of its own now.
    return replace(TurnTally.from_json(rest[: int(length)]), steered=())


def _extras(attempt: _Attempt, result: StepResult[Any]) -> Mapping[str, object]:
    """What the adapter keeps beside the history, and where kept conversations of children stand."""
    extras = attempt.turn.head.extras if result.extras is None else result.extras
    kept = attempt.kept
    return {**extras, "kept": {one: child.to_data() for one, child in kept.items()}} if kept else extras


def _uncertain(fields: Mapping[str, bytes], journal: ToolJournal | None = None) -> tuple[UncertainCall, ...]:
    """The calls of a turn whose outcome is unknown, those that a step found out itself included."""
    found = {name.partition(":")[2]: call for name, call in fields.items() if name[0] == "j" and name[-1] == UNCERTAIN}
    if journal is not None:
        found |= journal.uncertain
    return tuple(map(UncertainCall.from_json, found.values()))


def _tally(attempt: _Attempt, result: StepResult[Any]) -> TurnTally:
    taken = [(turn_id, digest) for turn_id, digest, _ in attempt.steered if turn_id in result.took]
    return attempt.tally.add(
        usage=result.usage, edits=result.edits, noops=result.noops, skips=result.skips, steered=taken
    )


def _failed_attempts(fields: Mapping[str, bytes]) -> list[StepAttempt]:
    found: list[StepAttempt] = []
    for name, value in fields.items():
        if name.startswith("f") and ":" in name:
            step, _, attempt = name[1:].partition(":")
            kind, message = json.loads(value)
            found.append(StepAttempt(int(step), int(attempt), kind, message))
    return sorted(found, key=lambda one: (one.step, one.attempt))
