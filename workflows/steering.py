"""The messages that steer the turn that runs: pure, as the queue is."""

from __future__ import annotations

from collections.abc import Iterable

from laneway.activities.wire import Ending, QueuedTurn

__all__ = ["Steering"]


class Steering:
    """Messages for the turn that runs, each a turn of its own name, and which of them it has taken in.

    Until the turn has committed none of them is lost with it: what it comes to nothing with, or never took in, is a
    turn of its own afterwards. So one that a step may be taking in just now cannot be ended yet, only be marked.
    """

    def __init__(
        self, turns: Iterable[QueuedTurn] = (), taken: Iterable[str] = (), endings: Iterable[Ending] = ()
    ) -> None:
        self._turns = {turn.id: turn for turn in turns}
        self._taken = dict.fromkeys(taken)
        self._given: frozenset[str] = frozenset()
        self._endings = {ending.id: ending for ending in endings}

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def turns(self) -> list[QueuedTurn]:
        """The messages, in the order in which they came."""
        return list(self._turns.values())

    @property
    def taken(self) -> list[str]:
        """Those that the turn has taken in."""
        return list(self._taken)

    @property
    def endings(self) -> list[Ending]:
        """How those that are marked are to end where the turn comes to nothing."""
        return list(self._endings.values())

    def add(self, turn: QueuedTurn) -> None:
        """One more."""
        self._turns[turn.id] = turn

    def begin_step(self) -> list[str]:
        """A step begins: those that it may take in."""
        given = [turn for turn in self._turns if turn not in self._taken]
        self._given = frozenset(given)
        return given

    def end_step(self, taken: Iterable[str]) -> list[tuple[QueuedTurn, Ending]]:
        """A step has ended, and the turn goes on.

        Args:
            taken: what the turn has taken in by now.

        Returns:
            those that are to end, and were not taken in: they are no longer here.
        """
        self._taken |= dict.fromkeys(turn for turn in taken if turn in self._turns)
        self._given = frozenset()
        over = [turn for turn in self._endings if turn not in self._taken]
        return [(self._turns.pop(turn), self._endings.pop(turn)) for turn in over]

    def end(self, ending: Ending) -> QueuedTurn | None:
        """Have one end without having been taken in; the first word counts.

        Returns:
            the turn, which is no longer here; None where it is not here, or may have been taken in: then it is marked.
        """
        if ending.id not in self._turns:
            return None
        if ending.id in self._taken or ending.id in self._given:
            self._endings.setdefault(ending.id, ending)
            return None
        return self._turns.pop(ending.id)

    def release(self, committed: Iterable[str]) -> tuple[list[QueuedTurn], list[QueuedTurn], list[Ending]]:
        """The turn has ended.

        Args:
            committed: what was committed with it.

        Returns:
            those, the others, and how marked ones of the others are to end; none is here any more.
        """
        names = set(committed)
        done = [turn for turn in self._turns.values() if turn.id in names]
        rest = [turn for turn in self._turns.values() if turn.id not in names]
        endings = [ending for ending in self._endings.values() if ending.id not in names]
        self._turns, self._taken, self._endings, self._given = {}, {}, {}, frozenset()
        return done, rest, endings
