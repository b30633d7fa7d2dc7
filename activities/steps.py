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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from laneway.activities.adapter import Adapter, StepResult, StepWork
from laneway.activities.agents import Agents
from laneway.activities.journal import ToolJournal
from laneway.activities.publisher import StepPublisher
from laneway.activities.retries import RetryStep, cause_of, decide
from laneway.activities.wire import ABORT_TURN, RUN_STEP, AbortInput, StepInput, StepOutcome
from laneway.errors import CheckpointLost, LanewayError, ServiceUnavailable, StaleTurn, StoreError, UnknownAgent
from laneway.history.cache import HeldHistory, HistoryCache
from laneway.history.checkpoints import CheckpointRef, StoredEntry
from laneway.history.lanes import LaneKey
from laneway.history.records import EventKind, LaneEvent, StepAttempt, TurnRecord, TurnUsage
from laneway.history.store import Fence, HistoryStore, LoadedTurn, TurnEnded

__all__ = ["Steps"]

_log = logging.getLogger(__name__)

_MAX_ERROR_CHARS = 4000


@dataclass
class _Attempt:
    """An attempt at a step, once it is loaded.

    Attributes:
        history: the native messages, committed and staged; those that the attempt stages itself are added.
        size_bytes: what their entries take as they are stored.
        checkpoint: the one that they lead to.
    """

    fence: Fence
    turn: LoadedTurn
    adapter: Adapter[Any]
    history: list[Any]
    size_bytes: int
    checkpoint: CheckpointRef
    failed: Sequence[StepAttempt]

    @property
    def base(self) -> CheckpointRef:
        return self.turn.head.checkpoint


class Steps:
    """The activities of one worker.

    Args:
        store: where histories live.
        agents: the agents that this worker runs.
        cache: the decoded histories that it keeps.
        heartbeat_interval: how often a running step says that it lives, and hears of a cancellation.
        mismatch_grace: for how long a step waits for a worker that has the lane's agent and contract.
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
                return StepOutcome(ended.record.outcome, request.v or 0)
            except StaleTurn as error:
                # Another attempt goes on with the step, or did: this one's answer is not looked at.
                raise ApplicationError(str(error), type=error.code) from error
            except ServiceUnavailable as error:
                raise ApplicationError(str(error), type=error.code) from error
            except LanewayError as error:
                return await self._fail(request, fence, error, ())

    @activity.defn(name=ABORT_TURN)
    async def abort(self, request: AbortInput) -> StepOutcome:
        """End a turn without a commit. Answers how it ended: another way, where it had ended before."""
        lane = LaneKey(request.c, request.a, request.k)
        fence = Fence(lane, request.t, request.n)
        error_type, error_message = (*request.e, None, None)[:2]
        record = TurnRecord(
            turn_id=request.t,
            outcome=request.o,
            prompt_digest=request.p,
            started_at=None,
            ended_at=time.time(),
            steps=request.n,
            error_type=error_type,
            error_message=error_message,
        )
        record = await self._store.abort(fence, record, decided=True)
        self._cache.drop(lane.lane_id) if record.outcome == "failed" else None
        return StepOutcome(record.outcome, 0)

    # One attempt ------------------------------------------------------------------------------------------------------

    async def _take(self, request: StepInput, fence: Fence) -> StepOutcome:
        adapter = await self._adapter(fence.lane)
        attempt = await self._load(request, fence, adapter)
        fields = attempt.turn.fields
        if (done := fields.get(f"s{request.n}")) is not None:
            return StepOutcome("next", _version(attempt, done))
        publisher = StepPublisher(
            lambda events: self._store.publish(attempt.fence, events),
            turn_id=request.t,
            step=request.n,
            attempt=fence.attempt,
        )
        try:
            async with publisher, self._agents.running(fence.lane.agent):
                result = await adapter.step(self._work(request, attempt, publisher))
                await publisher.flush()
            if result.done:
                return await self._commit(request, attempt, result)
            return await self._stage(request, attempt, result)
        except (StaleTurn, ServiceUnavailable, asyncio.CancelledError):
            raise
        except Exception as error:
            return await self._failed_attempt(request, attempt, error)

    async def _adapter(self, lane: LaneKey) -> Adapter[Any]:
        try:
            return self._agents.for_lane(lane)
        except UnknownAgent as error:
            waited = datetime.now(UTC) - activity.info().scheduled_time
            if waited < self._mismatch_grace:
                # While workers of two versions run, the other one may have it.
                raise ServiceUnavailable(str(error)) from error
            raise

    async def _load(self, request: StepInput, fence: Fence, adapter: Adapter[Any]) -> _Attempt:
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
        committed = self._decoded(fence.lane, adapter, held, turn)
        messages, size = list(committed.messages), committed.size_bytes
        if turn.stage_checkpoint.epoch != head.checkpoint.epoch:
            messages, size = [], 0
        messages.extend(adapter.decode(entry.payload) for entry in turn.staged)
        return _Attempt(
            fence=replace(fence, version=head.version),
            turn=turn,
            adapter=adapter,
            history=messages,
            size_bytes=size + _size(turn.staged),
            checkpoint=turn.stage_checkpoint,
            failed=_failed_attempts(turn.fields),
        )

    def _decoded(self, lane: LaneKey, adapter: Adapter[Any], held: HeldHistory, turn: LoadedTurn) -> HeldHistory:
        before = held.messages if turn.first else ()
        size = held.size_bytes if turn.first else 0
        if turn.first and not turn.entries:
            return held
        history = HeldHistory(
            turn.head.checkpoint,
            (*before, *(adapter.decode(entry.payload) for entry in turn.entries)),
            size + _size(turn.entries),
        )
        self._cache.put(lane.lane_id, history)
        return history

    def _work(self, request: StepInput, attempt: _Attempt, publisher: StepPublisher) -> StepWork[Any]:
        fields, step, fence = attempt.turn.fields, request.n, attempt.fence

        async def stage(messages: Sequence[Any], state: bytes) -> None:
            entries = self._entries(attempt, messages)
            held, tip = await self._store.stage(fence, f"m{step}", state, entries=entries, after=attempt.checkpoint)
            if held is not None:
                raise StaleTurn(f"step {step} of turn {fence.turn_id!r} was staged by another attempt")
            assert tip is not None
            attempt.checkpoint = tip
            attempt.history.extend(messages)
            attempt.size_bytes += _size(entries)

        async def write(key: str, result: bytes) -> bytes | None:
            held, _ = await self._store.stage(fence, f"j{step}:{key}", result)
            return held

        prefix = f"j{step}:"
        journal = ToolJournal({k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}, write)
        return StepWork(
            conversation=fence.lane.conversation,
            turn_id=fence.turn_id,
            step=step,
            attempt=fence.attempt,
            prompt=fields["in"],
            history=tuple(attempt.history),
            base_length=attempt.base.length,
            state=_latest_state(fields, step),
            journal=journal,
            stage=stage,
            emit=publisher.emit,
        )

    def _entries(self, attempt: _Attempt, messages: Sequence[Any]) -> list[StoredEntry]:
        return [StoredEntry(attempt.adapter.encode(message), {}) for message in messages]

    def _tail(self, attempt: _Attempt, result: StepResult[Any]) -> tuple[CheckpointRef, list[StoredEntry]]:
        """Where the result's entries go: after what is staged, or into a cache epoch of their own."""
        if result.rewritten is None:
            return attempt.checkpoint, self._entries(attempt, result.appended)
        return CheckpointRef(attempt.checkpoint.epoch + 1, 0, ""), self._entries(attempt, result.rewritten)

    async def _stage(self, request: StepInput, attempt: _Attempt, result: StepResult[Any]) -> StepOutcome:
        after, entries = self._tail(attempt, result)
        usage = json.dumps(vars(result.usage)).encode()
        value = b"%d|%d|%s|%s" % (attempt.turn.head.version, len(usage), usage, result.state)
        await self._store.stage(attempt.fence, f"s{request.n}", value, entries=entries, after=after)
        return StepOutcome("next", attempt.turn.head.version)

    async def _commit(self, request: StepInput, attempt: _Attempt, result: StepResult[Any]) -> StepOutcome:
        after, entries = self._tail(attempt, result)
        lane_id = attempt.fence.lane.lane_id
        record = self._record(request, attempt, usage=result.usage)
        record = replace(record, outcome="committed", output=result.output, output_in_history=result.output_in_history)
        record = await self._store.commit(
            attempt.fence,
            base=attempt.base,
            after=after,
            entries=entries,
            extras=attempt.turn.head.extras,
            record=record,
        )
        assert record.checkpoint is not None
        if result.rewritten is None:
            size, messages = attempt.size_bytes, (*attempt.history, *result.appended)
        else:
            size, messages = 0, tuple(result.rewritten)
        self._cache.put(lane_id, HeldHistory(record.checkpoint, messages, size + _size(entries)))
        return StepOutcome("committed", attempt.turn.head.version + 1)

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
        record = self._record(request, attempt, usage=_usage_so_far(attempt, request.n))
        record = replace(record, error_type=kind, error_message=message[:_MAX_ERROR_CHARS], attempts=tuple(attempts))
        try:
            record = await self._store.abort(fence, record)
        except StoreError as refused:
            raise ApplicationError(str(refused), type=refused.code) from refused
        return StepOutcome(record.outcome, request.v or 0)

    def _record(self, request: StepInput, attempt: _Attempt | None, *, usage: TurnUsage) -> TurnRecord:
        began = None if attempt is None else attempt.turn.fields.get("b")
        return TurnRecord(
            turn_id=request.t,
            outcome="failed",
            prompt_digest=request.p,
            started_at=time.time() if began is None else int(began) / 1000,
            ended_at=time.time(),
            steps=request.n + 1,
            usage=usage,
            attempts=() if attempt is None else tuple(attempt.failed),
        )

    # Heartbeats -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _heartbeats(self) -> AsyncIterator[None]:
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


def _size(entries: Sequence[StoredEntry]) -> int:
    return sum(len(entry.payload) for entry in entries)


def _latest_state(fields: Mapping[str, bytes], step: int) -> bytes | None:
    if (middle := fields.get(f"m{step}")) is not None:
        return middle
    if step == 0:
        return None
    return _split(fields[f"s{step - 1}"])[2]


def _split(value: bytes) -> tuple[int, TurnUsage, bytes]:
    version, size, rest = value.split(b"|", 2)
    usage = json.loads(rest[: int(size)])
    return int(version), TurnUsage(**usage), rest[int(size) + 1 :]


def _version(attempt: _Attempt, done: bytes) -> int:
    return _split(done)[0]


def _usage_so_far(attempt: _Attempt | None, step: int) -> TurnUsage:
    if attempt is None or step == 0:
        return TurnUsage()
    return _split(attempt.turn.fields[f"s{step - 1}"])[1]


def _failed_attempts(fields: Mapping[str, bytes]) -> list[StepAttempt]:
    found: list[StepAttempt] = []
    for name, value in fields.items():
        if name.startswith("f") and ":" in name:
            step, _, attempt = name[1:].partition(":")
            kind, message = json.loads(value)
            found.append(StepAttempt(int(step), int(attempt), kind, message))
    return sorted(found, key=lambda one: (one.step, one.attempt))
