"""What the turn that runs waits for: pure, as the queue is."""

from __future__ import annotations

from collections.abc import Iterable

from laneway.activities.wire import AnswerNotice, Awaited

__all__ = ["Waiting"]

_MAX_EARLY = 1000


class Waiting:
    """The requests of the turn that runs, and which of them have their answers.

    A notice of an answer may come before the lane has heard that the step ended waiting: it is kept for that.
    """

    def __init__(self, requests: Iterable[Awaited] = (), answered: Iterable[str] = ()) -> None:
        self.requests = list(requests)
        self._answered = dict.fromkeys(answered)

    def begin(self, requests: Iterable[Awaited]) -> None:
        """A step has ended waiting for these."""
        self.requests = list(requests)
        self._answered = {one.r: None for one in self.requests if one.r in self._answered}

    def end(self) -> None:
        """The turn goes on, or ends."""
        self.requests = []
        self._answered = {}

    def hear(self, notice: AnswerNotice) -> None:
        """A request has its answer."""
        if not self.requests and len(self._answered) >= _MAX_EARLY:
            del self._answered[next(iter(self._answered))]
        if not self.requests or any(one.r == notice.r for one in self.requests):
            self._answered[notice.r] = None

    def pass_deadlines(self, now: float) -> None:
        """Count what has a default answer as answered, once its time has passed."""
        for request in self.requests:
            if request.d is not None and request.d <= now:
                self._answered[request.r] = None

    @property
    def open(self) -> list[str]:
        """The requests that have no answer, in order."""
        return [request.r for request in self.requests if request.r not in self._answered]

    @property
    def answered(self) -> list[str]:
        """The requests that have one."""
        return list(self._answered)

    @property
    def next_deadline(self) -> float | None:
        """When the next default answer counts; None for never."""
        return min((one.d for one in self.requests if one.d is not None and one.r not in self._answered), default=None)
