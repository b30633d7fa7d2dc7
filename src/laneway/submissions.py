"""Submissions: how a client has lanes accept turns."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakValueDictionary

from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from laneway.activities.wire import LANE_WORKFLOW, SUBMIT_TURN, LaneInput, LaneLimits, QueuedTurn, SubmitReceipt
from laneway.connect import temporal_unavailable
from laneway.errors import LaneBusy, ServiceUnavailable, TurnConflict
from laneway.history.lanes import LaneKey
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.turns import Turn

if TYPE_CHECKING:
    from laneway.client import LanewayClient

__all__ = ["Submissions"]

_ACCEPT_TIMEOUT = timedelta(seconds=30)
_ASK_TIMEOUT = timedelta(seconds=5)
# How long a lane waits for a worker that took its workflow task and died; Temporal's default is 10 s.
_TASK_TIMEOUT = timedelta(seconds=5)
# Of how many lanes it is remembered that they are registered, or that their workflow is open.
_MAX_KNOWN = 10_000
_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
# How Temporal answers while a lane completes or continues as new, while it has too much to do, or where it gave up the
# workflow task that was to take the turn, as it does with one that would continue as new while something comes in.
_PASSING = frozenset(
    {
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.ABORTED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)


class Submissions:
    """A client's submissions, which one lane accepts in the order in which they were made."""

    def __init__(self, client: LanewayClient) -> None:
        self._client = client
        # Of lanes that a turn is being given to just now: a client may meet any number of them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Lanes that are in their conversation's list, of those that were met last. To add one again does no harm.
        self._registered: OrderedDict[str, None] = OrderedDict()
        # When each lane's workflow last took a turn from here, by `time.monotonic()`, of those that did last.
        self._open: OrderedDict[str, float] = OrderedDict()
        # Tells this client's submits of a turn from another's.
        self._claim = uuid4().hex[:8]
        settings = client.settings
        self._limits = LaneLimits(
            queue=settings.queue_limit,
            turns=settings.max_turns_per_run,
            idle=settings.idle_timeout.total_seconds(),
            heartbeat=settings.heartbeat_timeout.total_seconds(),
            step=settings.step_timeout.total_seconds(),
            run=settings.min_run_time.total_seconds(),
        )

    async def submit(self, lane: LaneKey, queued: QueuedTurn, prompt: bytes, options: TurnOptions) -> Turn:
        """Keep a turn's prompt, and have the turn accepted.

        Raises:
            LaneBusy, TurnConflict, ServiceUnavailable: see there.
        """
        turn_id, client = queued.id, self._client
        lock = self._locks.setdefault(lane.lane_id, asyncio.Lock())
        async with lock:
            if lane.lane_id not in self._registered and not lane.is_once:
                await client.store.index.register(lane)
                _note(self._registered, lane.lane_id, None)
            watcher = client.watch.heard(client.store.names(lane).wake, turn_id)
            known = await client.store.inputs.put(
                lane,
                turn_id,
                digest=queued.p,
                prompt=prompt,
                claim=self._claim,
                options=options.to_json(),
            )
            if isinstance(known, TurnRecord):
                return Turn(client, lane, turn_id)
            # Of an update that it has answered Temporal gives the answer again, though the workflow that took the turn
            # may have been terminated meanwhile: a turn that is submitted again needs another one. The lane knows it.
            update_id = f"{turn_id}:{uuid4().hex[:8]}" if known.is_known else turn_id
            receipt = await self._accept(lane, queued, update_id)
        # A turn that was accepted before may have ended before it was listened for.
        return Turn(client, lane, turn_id, since=known.newest, watcher=watcher if receipt.s == "new" else None)

    async def _accept(self, lane: LaneKey, turn: QueuedTurn, update_id: str) -> SubmitReceipt:
        try:
            receipt = await self.update(lane, turn, update_id=update_id)
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == LaneBusy.code:
                if cause.details and await self._client.store.record(lane, str(cause.details[0])) is not None:
                    # The turn before it has ended, and its lane is about to hear of it.
                    await asyncio.sleep(_PAUSE_SECONDS)
                    return await self._accept(lane, turn, update_id)
                await self._client.store.inputs.drop(lane, turn.id, claim=self._claim)
                raise LaneBusy(
                    f"the lane of conversation {lane.conversation!r} with agent {lane.agent!r} did not accept turn "
                    f"{turn.id!r}: {cause.message}. Try again later"
                ) from None
            raise ServiceUnavailable(f"the lane did not accept turn {turn.id!r}: {cause}") from error
        if receipt.s == "conflict":
            raise TurnConflict(f"turn id {turn.id!r} was used with another prompt: give this prompt an id of its own")
        return receipt

    async def update(self, lane: LaneKey, turn: QueuedTurn, *, update_id: str | None = None) -> SubmitReceipt:
        """Have the lane's workflow take the turn, through what passes by itself."""
        update_id = update_id or turn.id
        refusal: RPCError | None = None
        pause = _PAUSE_SECONDS
        try:
            async with asyncio.timeout(_ACCEPT_TIMEOUT.total_seconds()):
                while True:
                    if (receipt := await self._update_open(lane, turn, update_id)) is not None:
                        return receipt
                    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                        LANE_WORKFLOW,
                        LaneInput(lane.conversation, lane.agent, lane.contract, self._limits),
                        id=self._client.workflow_id(lane),
                        task_queue=self._client.settings.task_queue,
                        task_timeout=_TASK_TIMEOUT,
                        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    )
                    try:
                        temporal: Any = self._client.temporal  # its overload for names leaves types open
                        accepted: SubmitReceipt = await temporal.execute_update_with_start_workflow(
                            SUBMIT_TURN, turn, id=update_id, start_workflow_operation=start, result_type=SubmitReceipt
                        )
                        self._note_open(lane)
                        return accepted
                    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                        await _hear(start)
                        if isinstance(error.__cause__, asyncio.CancelledError):
                            # The SDK puts this in place of the cancellation of this very task, which has to end it.
                            raise error.__cause__ from None
                        # The server gave up waiting for a worker; it waits for this call's own end.
                        refusal = None
                        await asyncio.sleep(0.05)
                    except RPCError as error:
                        await _hear(start)
                        if error.status not in _PASSING:
                            raise temporal_unavailable(error, "Temporal did not take the turn") from error
                        refusal = error
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            limit, queue = f"{_ACCEPT_TIMEOUT.total_seconds():g} s", self._client.settings.task_queue
            if refusal is not None:
                what = f"Temporal did not take turn {turn.id!r} within {limit}"
                raise temporal_unavailable(refusal, what) from refusal
            if (other := await self._queue_of(lane)) not in (None, queue):
                raise ServiceUnavailable(
                    f"no worker accepted turn {turn.id!r} within {limit}: the lane's workflow is open on task queue "
                    f"{other!r}, and this client's is {queue!r}. Start a worker with LANEWAY_TASK_QUEUE={other}, or "
                    f"terminate workflow {self._client.workflow_id(lane)!r}, then submit again with the same turn id"
                ) from None
            raise ServiceUnavailable(
                f"no worker accepted turn {turn.id!r} within {limit} on task queue {queue!r}. Start one "
                "(`laneway worker APP`), then submit again with the same turn id"
            ) from None

    async def _queue_of(self, lane: LaneKey) -> str | None:
        """The task queue that a lane's workflow is open on; None where it is not, or Temporal does not tell."""
        workflow = self._client.temporal.get_workflow_handle(self._client.workflow_id(lane))
        with suppress(RPCError):
            found = await workflow.describe(rpc_timeout=_ASK_TIMEOUT)
            return found.task_queue if found.close_time is None else None
        return None

    async def _update_open(self, lane: LaneKey, turn: QueuedTurn, update_id: str) -> SubmitReceipt | None:
        """Have a workflow that took a turn not long ago take this one: less work than to offer its start as well.

        Returns:
            None where the workflow is not open any more, or nothing is known of it.
        """
        took_at = self._open.get(lane.lane_id)
        if took_at is None or time.monotonic() - took_at > self._limits.idle:
            return None
        try:
            workflow: Any = self._client.temporal.get_workflow_handle(self._client.workflow_id(lane))
            receipt: SubmitReceipt = await workflow.execute_update(
                SUBMIT_TURN, turn, id=update_id, result_type=SubmitReceipt
            )
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            self._open.pop(lane.lane_id, None)
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None  # as in `update`
            return None
        self._note_open(lane)
        return receipt

    def _note_open(self, lane: LaneKey) -> None:
        if lane.is_once:
            return
        _note(self._open, lane.lane_id, time.monotonic())


def _note(known: OrderedDict[str, Any], name: str, value: object) -> None:
    known[name] = value
    known.move_to_end(name)
    if len(known) > _MAX_KNOWN:
        known.popitem(last=False)


async def _hear(start: WithStartWorkflowOperation[Any, Any]) -> None:
    """Take what the SDK says of a failed start a second time, or asyncio would log that nobody did."""
    with suppress(Exception, asyncio.CancelledError):
        await start.workflow_handle()
