"""A lane's queue and its memory of turns: pure, so that the workflow is only about waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Literal

from laneway.activities.wire import Ending, LaneInput, QueuedTurn, SubmitReceipt

__all__ = ["LEDGER_LENGTH", "LaneQueue"]

LEDGER_LENGTH = 200
"""How many ended turns a lane's workflow remembers. Older ones are found by their record in Redis."""


class LaneQueue:
    """Which turns wait, which one runs, which are ending without a commit, and which have ended."""

    def __init__(self, waiting: Iterable[QueuedTurn] = (), ended: Iterable[tuple[str, str]] = ()) -> None:
        self.waiting: deque[QueuedTurn] = deque(waiting)
        self._running: QueuedTurn | None = None
        self._leaving: dict[str, QueuedTurn] = {}
        self._ended: OrderedDict[str, str] = OrderedDict(ended)
        self._ending: Ending | None = None

    @classmethod
    def restored(cls, lane: LaneInput) -> LaneQueue:
        """The queue as an earlier run of the workflow carried it."""
        queue = cls(lane.queue, ((turn_id, digest) for turn_id, digest in lane.ledger))
        if lane.waits is not None:
            queue._running = lane.waits.turn
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
            pending = (*running, *self.waiting, *self._leaving.values())
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

    def leave(self, turn_id: str) -> QueuedTurn | None:
        """Take a waiting turn out of the queue, to end it without a commit; None where it does not wait."""
        for turn in self.waiting:
            if turn.id == turn_id:
                self.waiting.remove(turn)
                self._leaving[turn_id] = turn
                return turn
        return None

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
