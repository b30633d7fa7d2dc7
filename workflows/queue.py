"""A lane's queue and its memory of turns: pure, so that the workflow is only about waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Literal

from laneway.activities.wire import Ending, LaneInput, QueuedTurn, SubmitReceipt
from laneway.workflows.steering import Steering

__all__ = ["LEDGER_LENGTH", "LaneQueue"]

LEDGER_LENGTH = 20
"""How many ended turns a lane's workflow remembers. Older ones are found by their record in Redis."""


class LaneQueue:
    """Which turns wait, which one runs, which are ending without a commit, and which have ended."""

    def __init__(self, waiting: Iterable[QueuedTurn] = (), ended: Iterable[tuple[str, str]] = ()) -> None:
        self.waiting: deque[QueuedTurn] = deque(waiting)
        self._running: QueuedTurn | None = None
        self._leaving: dict[str, QueuedTurn] = {}
        self._ended: OrderedDict[str, str] = OrderedDict(ended)
        self._ending: Ending | None = None
        self.steering = Steering()

    @classmethod
    def restored(cls, lane: LaneInput) -> LaneQueue:
        """The queue as an earlier run of the workflow carried it."""
        queue = cls(lane.queue, ((turn_id, digest) for turn_id, digest in lane.ledger))
        if lane.waits is not None:
            queue._running = lane.waits.turn
            queue.steering = Steering(lane.waits.s, lane.waits.u, lane.waits.x)
        return queue

    @property
    def current(self) -> str | None:
        """The turn that runs."""
        return self._running.id if self._running is not None else None

    def known(self, turn: QueuedTurn) -> SubmitReceipt | None:
        """What became of a turn of that id that was accepted before; None where none was."""
        digest = self._ended.get(turn.id)
        state: Literal["known", "ended"] = "ended"
        if digest is None:
            state = "known"
            running = () if self._running is None else (self._running,)
            pending = (*running, *self.waiting, *self._leaving.values(), *self.steering.turns)
            digest = next((one.p for one in pending if one.id == turn.id), None)
        if digest is None:
            return None
        return SubmitReceipt(state if digest == turn.p else "conflict")

    def add(self, turn: QueuedTurn, *, next_up: bool) -> int:
        """Let a turn wait, behind the others or before them; how many turns are before it."""
        running = self._running is not None
        if next_up:
            self.waiting.appendleft(turn)
            return int(running)
        self.waiting.append(turn)
        return len(self.waiting) - 1 + running

    def end_step(self, taken: Iterable[str]) -> list[tuple[QueuedTurn, Ending]]:
        """A step has ended, and the turn goes on: what steered it, was not taken in, and is to end, leaves."""
        over = self.steering.end_step(taken)
        self._leaving |= {turn.id: turn for turn, _ in over}
        return over

    def end_steering(self, committed: Iterable[str]) -> tuple[list[QueuedTurn], list[Ending]]:
        """The turn that ran has ended: what steered it, and was not committed with it, is next, in order.

        Only a turn that was to interrupt it goes before that.

        Returns:
            what was committed with it, and how some of the others are to end at once.
        """
        done, rest, endings = self.steering.release(committed)
        place = 0
        while place < len(self.waiting) and self.waiting[place].b == "interrupt":
            place += 1
        for turn in reversed(rest):
            self.waiting.insert(place, turn)
        return done, endings

    def next(self) -> QueuedTurn:
        """Take the turn that is next."""
        self._running = self.waiting.popleft()
        self._ending = None
        return self._running

    def finish(self, turn: QueuedTurn) -> None:
        """Remember that a turn has ended."""
        if self._leaving.pop(turn.id, None) is None:
            self._running = None
            self._ending = None
        self._ended[turn.id] = turn.p
        while len(self._ended) > LEDGER_LENGTH:
            self._ended.popitem(last=False)

    def end_current(self, ending: Ending) -> bool:
        """Have the running turn end without a commit; the first word counts.

        Returns:
            whether it is that turn that runs, and nobody had said so before.
        """
        if ending.id != self.current or self._ending is not None:
            return False
        self._ending = ending
        return True

    def leave(self, ending: Ending) -> QueuedTurn | None:
        """Take a waiting turn out of the queue, to end it without a commit; None where it does not wait.

        The same for a message that steers the turn that runs, unless that may have taken it in.
        """
        found = next((turn for turn in self.waiting if turn.id == ending.id), None)
        if found is not None:
            self.waiting.remove(found)
        else:
            found = self.steering.end(ending)
        if found is not None:
            self._leaving[found.id] = found
        return found

    @property
    def ending(self) -> Ending | None:
        """How the running turn is to end without a commit; None where it is not to."""
        return self._ending

    @property
    def leaving(self) -> list[str]:
        """The turns that are ending without having run."""
        return list(self._leaving)

    def ledger(self) -> list[list[str]]:
        """The ended turns that are remembered, oldest first: id and prompt digest."""
        return [[turn_id, digest] for turn_id, digest in self._ended.items()]
