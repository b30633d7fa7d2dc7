"""A turn as its caller sees it: its result, its events, and a way to stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from laneway.activities.adapter import read_output
from laneway.answers import Pending, give_answer, pending_on
from laneway.errors import CheckpointLost, InvalidInput, TurnCancelled, TurnDenied, TurnFailed, TurnTimedOut
from laneway.history.checkpoints import CheckpointRef, told_entry
from laneway.history.lanes import LaneKey
from laneway.history.records import TERMINAL, LaneEvent, Outcome, TurnRecord, TurnUsage
from laneway.history.requests import Answer
from laneway.history.requests import result as as_result
from laneway.lookout import Lookout

if TYPE_CHECKING:
    from laneway.client import LanewayClient
    from laneway.watch import Watcher

__all__ = ["MISSING", "CancelOutcome", "Turn", "TurnResult"]

MISSING: Any = object()
"""In place of a result that was not given: None is one."""

T = TypeVar("T")

_EVENTS_AT_ONCE = 500
# News may be lost with a connection: whoever waits reads for himself now and then.
_LONGEST_WAIT_SECONDS = 30.0

CancelOutcome = Literal["cancelled", "already_committed", "already_failed", "unknown"]
"""What became of a cancellation: the turn was cancelled, by this call or an earlier one; it had ended otherwise; or no
turn of that id is known."""


@dataclass(frozen=True)
class TurnResult(Generic[T]):
    """A committed turn.

    Attributes:
        output: the agent's output: of its output type where the caller has the agent, else as JSON gives it.
        outcome: `committed`.
        turn_id: the turn.
        usage: what it used.
        checkpoint: the lane's head after it.
        steps: how many steps it took.
        steered_into: the turn that took this one's message in while it ran, whose output this is; None where it ran by
            itself.
    """

    output: T
    outcome: Outcome
    turn_id: str
    usage: TurnUsage
    checkpoint: CheckpointRef
    steps: int
    steered_into: str | None = None


_FAILURES: Mapping[str, type[TurnFailed]] = {one.code: one for one in (TurnTimedOut, TurnDenied)}


class Turn:
    """A turn that a lane has accepted.

    Attributes:
        turn_id: the turn.
        lane: its lane.
    """

    def __init__(
        self, client: LanewayClient, lane: LaneKey, turn_id: str, *, since: str = "0-0", watcher: Watcher | None = None
    ) -> None:
        self._client = client
        self._since = since
        # Has listened since before the turn was accepted, so it has missed nothing.
        self._watcher = watcher
        self._told: bytes | None = None
        self.lane = lane
        self.turn_id = turn_id

    def __repr__(self) -> str:
        return f"Turn({self.turn_id!r}, conversation={self.lane.conversation!r}, agent={self.lane.agent!r})"

    async def record(self) -> TurnRecord:
        """Wait for the turn to end, and say how it did: committed, failed or cancelled."""
        store, lookout = self._client.store, Lookout(self._client, self)
        if (watcher := self._watcher) is not None:
            await watcher.wait(min(lookout.seconds, _LONGEST_WAIT_SECONDS))
            if watcher.ended is not None:
                self._told = watcher.entry
                return TurnRecord.from_stored(self.turn_id, watcher.ended)
            self._watcher = None  # it may have missed something
        if (record := await store.record(self.lane, self.turn_id)) is not None:
            return record
        async with self._client.watch.watching(store.names(self.lane).wake, self.turn_id) as watcher:
            while (record := await store.record(self.lane, self.turn_id)) is None:
                await lookout.look()
                await watcher.wait(min(lookout.seconds, _LONGEST_WAIT_SECONDS))
        return record

    async def committed(self) -> TurnRecord:
        """Wait for the turn's commit, and give its record.

        Raises:
            TurnFailed: it failed; the error has the cause's type and message. TurnTimedOut where its timeout passed,
                TurnDenied where a hook refused it.
            TurnCancelled: it was cancelled.
        """
        record = await self.record()
        if record.outcome == "cancelled":
            raise TurnCancelled(f"turn {self.turn_id!r} was cancelled; nothing of it is kept", turn_id=self.turn_id)
        if record.outcome == "failed":
            kind = _FAILURES.get(record.error_type or "", TurnFailed)
            what = "was denied" if kind is TurnDenied else f"failed: {record.error_type}"
            raise kind(
                f"turn {self.turn_id!r} {what}: {record.error_message}",
                turn_id=self.turn_id,
                error_type=record.error_type or "unknown",
                error_message=record.error_message or "",
            )
        return record

    async def result(self) -> TurnResult[Any]:
        """Wait for the turn's commit, and give its output. Raises as `committed` does."""
        record = await self.committed()
        assert record.checkpoint is not None
        return TurnResult(
            output=await self._output(record),
            outcome=record.outcome,
            turn_id=self.turn_id,
            usage=record.usage,
            checkpoint=record.checkpoint,
            steps=record.steps,
            steered_into=record.steered_into,
        )

    async def _output(self, record: TurnRecord) -> object:
        assert record.checkpoint is not None
        if not record.output_in_history:
            return read_output(self._client.agents[self.lane.agent], record.output, record.output_type)
        entry = None if self._told is None else told_entry(self._told, record.checkpoint)
        try:
            entry = entry or await self._client.store.entry(self.lane, record.checkpoint)
        except CheckpointLost as error:
            raise CheckpointLost(
                f"the output of turn {self.turn_id!r} is no longer in Redis: the history that held it was rewritten, "
                "and the time for which the older one is kept has passed"
            ) from error
        adapter = self._client.agents[self.lane.agent]
        return adapter.output_of(adapter.decode(entry.payload))

    async def events(self, *, after: str | None = None) -> AsyncIterator[LaneEvent]:
        """What happens in the turn, as it happens, up to and with its end.

        Args:
            after: go on after this event, whose `event_id` an earlier reader saw last.
        """
        store = self._client.store
        last, lookout = after or self._since, Lookout(self._client, self)
        async with self._client.watch.watching(store.names(self.lane).wake) as watcher:
            record: TurnRecord | None = None
            while True:
                events = await store.events(self.lane, after=last, count=_EVENTS_AT_ONCE)
                for event in events:
                    last = event.event_id
                    if event.turn_id == self.turn_id:
                        yield event
                        if event.terminal:
                            return
                if not events:
                    if record is not None:
                        # The stream was trimmed since: its end is all that can be told.
                        yield LaneEvent(TERMINAL[record.outcome], self.turn_id)
                        return
                    record = await store.record(self.lane, self.turn_id)
                    if record is not None:
                        continue  # what it said last may be there by now
                    await lookout.look()
                if len(events) < _EVENTS_AT_ONCE:
                    await watcher.wait(min(lookout.seconds, _LONGEST_WAIT_SECONDS))

    async def pending(self) -> list[Pending]:
        """What the turn waits for, oldest first; empty where it waits for nothing."""
        return [one for one in await pending_on(self._client, self.lane) if one.turn_id == self.turn_id]

    async def answer(self, request_id: str, decision: Answer | None = None, *, result: Any = MISSING) -> None:
        """Answer a request that the turn waits for. The turn goes on once all that it waits for is answered.

        The same answer may be given again; another one is refused, since the first counts.

        Args:
            request_id: the request, as `pending` and the events name it.
            decision: `approve()`, `approve(arguments={…})`, `deny("why")` or `failed("why")`.
            result: in place of a decision, what an external tool returned, or what is answered to a question: JSON.

        Raises:
            UnknownRequest: the turn does not wait for it, or has ended.
            AlreadyAnswered: another answer came first.
            InvalidInput: the request does not take this answer. Nothing was changed.
            UnsupportedCapability: the agent's adapter cannot wait for people.
            ServiceUnavailable: see there. The answer may have been taken: give it again.
        """
        if (decision is None) == (result is MISSING):
            raise InvalidInput("answer takes a decision, such as approve(), or a result, and not both")
        await give_answer(self._client, self, request_id, as_result(result) if decision is None else decision)

    async def cancel(self) -> CancelOutcome:
        """Stop the turn, wherever it is, and wait until it has ended.

        Where no worker runs, this waits for one: the cancellation takes effect when one comes.
        """
        return await self._client.cancel(self)
