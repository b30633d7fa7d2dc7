"""The lane workflow: accepts turns, runs them one after another, and ends each exactly once.

It never sees a message. It holds the queue and decides; a turn's data is in Redis, and what the step activities answer
says only how it goes on. Of the events that a turn writes here none is more than it needs: the update is answered at
once, the step that comes to the output commits, and one timer watches for idleness however many turns there are.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    RetryState,
    is_cancelled_exception,
)

from laneway.activities.wire import (
    ABORT_TURN,
    ANSWER_REQUEST,
    CANCEL_TURN,
    LANE_STATUS,
    LANE_WORKFLOW,
    RUN_STEP,
    SUBMIT_TURN,
    AbortInput,
    AnswerNotice,
    CancelRequest,
    ChildTurn,
    Ending,
    LaneInput,
    LaneView,
    QueuedTurn,
    StepInput,
    StepOutcome,
    SubmitReceipt,
    SuspendedTurn,
)
from laneway.history.lanes import ONCE
from laneway.workflows.queue import LaneQueue
from laneway.workflows.waiting import Waiting

__all__ = ["LaneWorkflow"]

# Unlimited: how often a provider is asked again is decided in the activity, by the agent's policy; a worker's death is
# not held against the turn.
_STEP_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=2))
_ABORT_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))


_TASK_TIMEOUT = timedelta(seconds=5)


def _is_done(task: asyncio.Task[None]) -> bool:
    return task.done()


def _was_to_be_cancelled(error: BaseException) -> bool:
    """Whether a step failed and is not tried again because it was to be cancelled, as where its worker had gone."""
    is_so = isinstance(error, ActivityError) and error.retry_state == RetryState.CANCEL_REQUESTED
    return is_so and workflow.patched("cancelled-unheard")


@workflow.defn(name=LANE_WORKFLOW)
class LaneWorkflow:
    """One lane: one conversation, one agent, one contract."""

    @workflow.init
    def __init__(self, lane: LaneInput) -> None:
        self._lane = lane
        self._queue = LaneQueue.restored(lane)
        self._version = lane.head
        self._step = 0 if lane.waits is None else lane.waits.n
        self._begun = 0
        self._waiting = Waiting() if lane.waits is None else Waiting(lane.waits.w, lane.waits.a)
        self._running: asyncio.Task[StepOutcome] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._last_active = 0.0
        self._idle = False
        self._stopped = False
        self._ended_here = 0

    @workflow.run
    async def run(self, lane: LaneInput) -> None:
        """Take turns until there have been none for long enough; `lane` is what `__init__` was given."""
        self._last_active = workflow.time()
        for turn in (*self._queue.waiting, *self._queue.steering.turns):
            self._watch_deadline(turn)
        if lane.waits is not None:
            self._watch_deadline(lane.waits.turn)
        idleness = None if lane.once else asyncio.create_task(self._watch_idleness())
        try:
            await self._serve(idleness)
        except asyncio.CancelledError:
            # An operator cancels the workflow. What it holds ends, each turn with its record; the history stays, and
            # the next submit starts the lane again.
            for turn in list(self._queue.waiting):
                self._end_turn(Ending(turn.id, "cancelled"))
            await workflow.wait_condition(self._is_settled)
            raise

    async def _serve(self, idleness: asyncio.Task[None] | None) -> None:
        if self._lane.waits is not None:
            await self._take(self._lane.waits.turn, idleness)
        while True:
            await workflow.wait_condition(lambda: bool(self._queue.waiting) or self._idle or self._lane.once)
            if self._is_due_with_next_turn():
                await self._continue_as_new(idleness)
            if self._queue.waiting:
                turn, self._step = self._queue.next(), 0
                await self._take(turn, idleness)
                self._last_active = workflow.time()
                # A turn that keeps no history has the lane to itself.
                self._idle = self._idle or self._lane.c.startswith(ONCE)
            if self._stopped:
                raise asyncio.CancelledError
            if self._lane.limits.run is None and self._must_continue_as_new():
                await self._continue_as_new(idleness)
            if (self._idle or self._lane.once) and not self._queue.waiting:
                await workflow.wait_condition(self._is_settled)
                if not self._queue.waiting:
                    return

    def _is_settled(self) -> bool:
        return workflow.all_handlers_finished() and not self._queue.leaving

    # Turns ------------------------------------------------------------------------------------------------------------

    async def _take(self, turn: QueuedTurn, idleness: asyncio.Task[None] | None) -> None:
        """Run a turn to its end, from the step that it is at."""
        while True:
            if self._waiting.requests:
                if not await self._wait(turn):
                    if idleness is not None:
                        idleness.cancel()
                    workflow.continue_as_new(self._carried(turn))
                self._step += 1
            ending = self._queue.ending
            outcome = await (self._take_step(turn) if ending is None else self._abort(turn, ending, self._step))
            if outcome is None:
                continue
            # An activity takes steps up to the next model request.
            self._step, self._begun = outcome.n or self._step, outcome.f
            if outcome.s not in ("waiting", "next"):
                break
            if outcome.s == "waiting":
                self._waiting.begin(outcome.w)
            else:
                self._step += 1
            for steering, how in self._queue.end_step(outcome.u):
                self._leave(steering, how)
        if outcome.s == "committed" and outcome.v:
            self._version = outcome.v
        self._waiting.end()
        self._finish(turn)
        done, endings = self._queue.end_steering(outcome.u if outcome.s == "committed" else ())
        for one in done:
            self._finish(one)
        for how in endings:
            self._end_turn(how)

    async def _wait(self, turn: QueuedTurn) -> bool:
        """Wait until each request has its answer, or the turn is to end.

        Nothing is written to the workflow's history while it waits, however long that is, but what others bring; where
        that is much, the workflow continues as new.

        Returns:
            whether the wait is over.
        """

        def is_over() -> bool:
            return not self._waiting.open or self._queue.ending is not None

        children = self._start_children()
        while not is_over():
            deadline = self._waiting.next_deadline
            try:
                await workflow.wait_condition(
                    lambda: is_over() or (all(map(_is_done, children)) and self._may_be_carried()),
                    timeout=None if deadline is None else timedelta(seconds=max(deadline - workflow.time(), 0)),
                )
            except TimeoutError:
                self._waiting.pass_deadlines(deadline or 0)
            except asyncio.CancelledError:
                self._stopped = self._queue.ending is None
                self._queue.end_current(Ending(turn.id, "cancelled"))
            else:
                if not is_over():
                    return False
        for child in children:
            child.cancel()
        await asyncio.gather(*children, return_exceptions=True)
        self._waiting.end()
        return True

    def _may_be_carried(self) -> bool:
        # Not while children run: they would be nobody's.
        return workflow.info().is_continue_as_new_suggested() and self._is_settled()

    def _start_children(self) -> list[asyncio.Task[None]]:
        """Run the turns that do what was delegated, as many at a time as may be."""
        places: dict[str, asyncio.Semaphore] = {}

        async def run(request: str, child: ChildTurn) -> None:
            async with places.setdefault(child.n, asyncio.Semaphore(child.m)):
                await self._run_child(child)
            self._waiting.hear(AnswerNotice(self._queue.current or "", request))

        return [
            asyncio.create_task(run(one.r, one.c))
            for one in self._waiting.requests
            if one.c is not None and one.r in self._waiting.open
        ]

    async def _run_child(self, child: ChildTurn) -> None:
        """Run a child to its end. How it ended is in its own record, wherever this raises or returns."""
        turn = QueuedTurn(child.t, child.p, workflow.time() + child.s, child.s)
        try:
            await workflow.execute_child_workflow(
                LANE_WORKFLOW,
                LaneInput(child.c, child.a, child.k, self._lane.limits, queue=[turn], once=True),
                id=child.w,
                task_timeout=_TASK_TIMEOUT,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            )
        except FailureError as error:
            if is_cancelled_exception(error) and self._queue.ending is not None:
                raise

    def _finish(self, turn: QueuedTurn) -> None:
        if (timer := self._timers.pop(turn.id, None)) is not None:
            timer.cancel()
        self._queue.finish(turn)
        self._ended_here += 1

    async def _take_step(self, turn: QueuedTurn) -> StepOutcome | None:
        """Run one step activity. None where it was stopped, for the turn to be ended."""
        limits, lane = self._lane.limits, self._lane
        steering = self._queue.steering.begin_step()
        request = StepInput(lane.c, lane.a, lane.k, turn.id, turn.p, self._step, self._version, steering, self._begun)
        self._running = asyncio.create_task(
            workflow.execute_activity(
                RUN_STEP,
                request,
                result_type=StepOutcome,
                start_to_close_timeout=timedelta(seconds=limits.step),
                heartbeat_timeout=timedelta(seconds=limits.heartbeat),
                retry_policy=_STEP_RETRIES,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        )
        try:
            return await self._running
        except (ActivityError, CancelledError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error) or (self._queue.ending is None and _was_to_be_cancelled(error)):
                # Where nobody asked the lane for it, the workflow itself is being cancelled.
                self._stopped = self._queue.ending is None
                self._queue.end_current(Ending(turn.id, "cancelled"))
                return None
            cause = error.cause if isinstance(error, ActivityError) else None
            kind = (cause.type if isinstance(cause, ApplicationError) else None) or type(cause).__name__
            self._queue.end_current(Ending(turn.id, "failed", [kind, str(cause or error)]))
            return None
        finally:
            self._running = None

    async def _abort(self, turn: QueuedTurn, ending: Ending, steps: int) -> StepOutcome:
        lane = self._lane
        outcome: StepOutcome = await workflow.execute_local_activity(
            ABORT_TURN,
            AbortInput(lane.c, lane.a, lane.k, turn.id, turn.p, steps, ending.o, ending.e),
            result_type=StepOutcome,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=_ABORT_RETRIES,
        )
        return outcome

    def _end_turn(self, ending: Ending) -> None:
        """Have a turn end without a commit, whether it waits or runs."""
        if self._queue.end_current(ending):
            if self._running is not None:
                self._running.cancel()
        elif (turn := self._queue.leave(ending)) is not None:
            self._leave(turn, ending)

    def _leave(self, turn: QueuedTurn, ending: Ending) -> None:
        async def leave() -> None:
            await self._abort(turn, ending, 0)
            self._finish(turn)

        self._leaving.add(task := asyncio.create_task(leave()))
        task.add_done_callback(self._leaving.discard)

    # Clocks -----------------------------------------------------------------------------------------------------------

    def _watch_deadline(self, turn: QueuedTurn) -> None:
        if turn.d is None:
            return
        deadline = turn.d

        async def watch() -> None:
            await asyncio.sleep(max(deadline - workflow.time(), 0))
            where = "in the queue" if self._queue.current != turn.id else "while it ran"
            if self._queue.current == turn.id and self._waiting.open:
                where = f"while it waited for request {', '.join(self._waiting.open)}"
            self._timers.pop(turn.id, None)
            error = ["TurnTimedOut", f"its timeout of {turn.t:g} s passed {where}"]
            self._end_turn(Ending(turn.id, "failed", error))

        self._timers[turn.id] = asyncio.create_task(watch())

    async def _watch_idleness(self) -> None:
        limit = self._lane.limits.idle
        while True:
            if self._waiting.requests:
                # For as long as a turn waits there is nothing to watch, and no timer is written.
                await workflow.wait_condition(lambda: not self._waiting.requests)
            quiet = workflow.time() - self._last_active
            if quiet >= limit and self._queue.current is None and not self._queue.waiting:
                self._idle = True
                # A turn may be accepted before the workflow has completed; then the watch goes on.
                await workflow.wait_condition(lambda: not self._idle)
                continue
            await asyncio.sleep(max(limit - quiet, 1.0) if quiet < limit else limit)

    # Continuing -------------------------------------------------------------------------------------------------------

    def _is_due_with_next_turn(self) -> bool:
        """Whether to continue as new with the turn that is next, which was accepted just now or has waited.

        Not before there is one. A client hears of a turn's end at once, and gives the lane its next turn: that would
        arrive while the workflow continues as new, be refused by the server, and be tried again after a second.
        """
        is_asked = self._lane.limits.run is not None and self._ended_here > 0 and bool(self._queue.waiting)
        return is_asked and self._must_continue_as_new()

    async def _continue_as_new(self, idleness: asyncio.Task[None] | None) -> NoReturn:
        await workflow.wait_condition(self._is_settled)
        if idleness is not None:
            idleness.cancel()
        workflow.continue_as_new(self._carried())

    def _must_continue_as_new(self) -> bool:
        limits, info = self._lane.limits, workflow.info()
        is_due = self._ended_here >= limits.turns
        if is_due and limits.run:
            is_due = workflow.time() - info.workflow_start_time.timestamp() >= limits.run
        return is_due or info.is_continue_as_new_suggested()

    def _carried(self, waits: QueuedTurn | None = None) -> LaneInput:
        lane, waiting, steering = self._lane, self._waiting, self._queue.steering
        return LaneInput(
            c=lane.c,
            a=lane.a,
            k=lane.k,
            limits=lane.limits,
            head=self._version,
            queue=list(self._queue.waiting),
            ledger=self._queue.ledger(),
            ended=lane.ended + self._ended_here,
            once=lane.once,
            waits=None
            if waits is None
            else SuspendedTurn(
                waits,
                self._step,
                waiting.requests,
                waiting.answered,
                steering.turns,
                steering.taken,
                steering.endings,
            ),
        )

    # Handlers ---------------------------------------------------------------------------------------------------------

    @workflow.update(name=SUBMIT_TURN)
    def submit(self, turn: QueuedTurn) -> SubmitReceipt:
        """Accept a turn, or say what became of it where it was accepted before."""
        known = self._queue.known(turn)
        if known is not None:
            return known
        if turn.b == "interrupt":
            if turn.w:
                for waiting in (*self._queue.waiting, *self._queue.steering.turns):
                    self._end_turn(Ending(waiting.id, "cancelled"))
            if self._queue.current is not None:
                self._end_turn(Ending(self._queue.current, "cancelled"))
        if turn.t is not None:
            turn = replace(turn, d=workflow.time() + turn.t)
        if turn.b == "steer" and self._queue.current is not None:
            self._queue.steering.add(turn)
            position = 0
        else:
            position = self._queue.add(turn, next_up=turn.b == "interrupt")
        self._watch_deadline(turn)
        self._idle = False
        return SubmitReceipt("new", position)

    @submit.validator
    def check_submit(self, turn: QueuedTurn) -> None:
        """Reject a turn that cannot wait here; no event is written."""
        if self._queue.known(turn) is not None:
            return
        limit, waiting = self._lane.limits.queue, len(self._queue.waiting) + len(self._queue.steering)
        busy = self._queue.current is not None or bool(self._queue.waiting)
        if turn.b == "reject" and busy:
            # With only one turn before it, the client looks whether that one has ended in Redis already.
            only = () if waiting else (self._queue.current,)
            raise ApplicationError("the lane is busy", *only, type="LaneBusy")
        if turn.b != "interrupt" and waiting >= limit:
            raise ApplicationError(f"{waiting} turns wait already, the limit is {limit}", type="LaneBusy")

    @workflow.signal(name=CANCEL_TURN)
    def cancel(self, request: CancelRequest) -> None:
        """End a turn as cancelled, unless it has ended or its commit comes first."""
        self._end_turn(Ending(request.id, "cancelled"))

    @workflow.signal(name=ANSWER_REQUEST)
    def answer(self, notice: AnswerNotice) -> None:
        """A request of the turn that runs has its answer in Redis."""
        if notice.t == self._queue.current:
            self._waiting.hear(notice)

    @workflow.query(name=LANE_STATUS)
    def status(self) -> LaneView:
        """What runs and what waits."""
        return LaneView(
            turn=self._queue.current,
            step=self._step,
            queue=[turn.id for turn in self._queue.waiting],
            cancelling=self._queue.ending is not None,
            ended=self._lane.ended + self._ended_here,
            leaving=self._queue.leaving,
            waiting=self._waiting.open,
            steering=[turn.id for turn in self._queue.steering.turns],
        )
