"""A leg of a turn: the steps that one activity takes, one after another, up to the next one that asks a model.

A batch of tool calls, or a superstep that asks no model, is staged like every step, so that nothing is lost with the
activity; but an activity of its own would cost more than most of them do. So what leads to a model request is taken by
the activity that makes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from temporalio import activity

from laneway.activities.attempt import Attempt
from laneway.activities.wire import StepInput, StepOutcome
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey

__all__ = ["Leg"]

_SHARE: Final = 10
"""An activity goes on within this part of its time, so that the step after that has nearly all of it."""


class Leg:
    """Which step an activity is at, and whether it takes another.

    Args:
        request: what the activity was given: the first of its steps.

    Attributes:
        request: the step that it is at.
        is_new: whether nobody can have begun that step before.
    """

    def __init__(self, request: StepInput) -> None:
        info = activity.info()
        self.request = request
        self.is_new = False
        self._first = request.n
        self._attempt = info.attempt
        self._until = time.monotonic() + (info.start_to_close_timeout or timedelta.max).total_seconds() / _SHARE

    @property
    def fence(self) -> Fence:
        """Who writes in the step that it is at."""
        request = self.request
        lane = LaneKey(request.c, request.a, request.k)
        return Fence(lane, request.t, request.n, request.f + self._attempt)

    def is_steered(self, attempt: Attempt) -> bool:
        """Whether somebody may have sent a message for the turn that the workflow has not given this activity.

        Such a message is kept before it is sent, so it is one of the lane's open turns.
        """
        return self.request.n > self._first and not self._knows_all(attempt, attempt.tally.taken)

    def after(self, outcome: StepOutcome, attempt: Attempt) -> StepOutcome | None:
        """What the activity reports once its step has ended. None where it takes the next one."""
        last = self.request.n
        if outcome.s != "next" or (attempt.asked and attempt.staged_first):
            return self._reported(outcome, last)
        if self._has_time() and self._knows_all(attempt, outcome.u):
            self.request = replace(self.request, n=last + 1)
            self.is_new = attempt.staged_first
            return None
        return self._handed_back(outcome, last)

    def stop(self, outcome: StepOutcome) -> StepOutcome:
        """What the activity reports where it has not taken the step that it is at."""
        return self._handed_back(outcome, self.request.n - 1)

    def _knows_all(self, attempt: Attempt, taken: Iterable[str]) -> bool:
        """Whether the lane has no open turns but this one, those that the activity was given, and `taken`."""
        return attempt.turn.open <= {self.request.t, *self.request.u, *taken}

    def _has_time(self) -> bool:
        return time.monotonic() < self._until and not activity.is_worker_shutdown()

    def _reported(self, outcome: StepOutcome, last: int) -> StepOutcome:
        return replace(outcome, n=last) if last > self._first else outcome

    def _handed_back(self, outcome: StepOutcome, last: int) -> StepOutcome:
        # Another attempt at this activity, which lives on unheard, may be at the next step.
        attempt = self.fence.attempt
        return self._reported(replace(outcome, f=attempt) if attempt > 1 else outcome, last)
