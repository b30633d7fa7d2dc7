"""What callers give with a turn, checked before anything is written: found in a workflow, a bad value wedges it."""

from __future__ import annotations

from datetime import timedelta
from typing import cast, get_args

from laneway.activities.hooks import Hooks
from laneway.activities.profiles import AgentProfile
from laneway.activities.wire import WhenBusy
from laneway.errors import InvalidInput
from laneway.history.budget import RequestBudget

__all__ = ["check_call", "check_timeout", "check_when_busy"]

_LONGEST = timedelta(days=10_000)
_BUSY: tuple[str, ...] = get_args(WhenBusy)


def check_timeout(timeout: object) -> timedelta | None:
    """A turn's timeout: a `timedelta`, or seconds.

    Raises:
        InvalidInput: it is no duration, not positive, or longer than a timer may be.
    """
    if timeout is None:
        return None
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        try:
            timeout = timedelta(seconds=timeout)
        except (OverflowError, ValueError):  # infinite, not a number, or larger than any timedelta
            raise InvalidInput(f"the timeout is {timeout} s: give at most {_LONGEST.days} days, or none") from None
    if not isinstance(timeout, timedelta):
        raise InvalidInput(
            f"the timeout is a {type(timeout).__name__} ({timeout!r}): give seconds as a number, or a timedelta"
        )
    if timeout <= timedelta(0):
        raise InvalidInput(f"the timeout is {timeout}: give a positive one, or none")
    if timeout > _LONGEST:
        raise InvalidInput(f"the timeout is {timeout}: give at most {_LONGEST.days} days, or none")
    return timeout


def check_call(*, budget: object = None, profile: object = None, hooks: object = None) -> None:
    """What goes with a call, a conversation or a scope beside its prompt.

    Raises:
        InvalidInput: one of them is of another type.
    """
    for name, value, kind in (
        ("budget", budget, RequestBudget),
        ("profile", profile, AgentProfile),
        ("hooks", hooks, Hooks),
    ):
        if value is not None and not isinstance(value, kind):
            raise InvalidInput(f"the {name} is a {type(value).__name__} ({value!r}): give {kind.__name__}(…), or None")


def check_when_busy(when_busy: object) -> WhenBusy:
    """What a turn does where its lane is busy.

    Raises:
        InvalidInput: there is no such way.
    """
    if when_busy not in _BUSY:
        raise InvalidInput(f"when_busy is {when_busy!r}: give one of {', '.join(map(repr, _BUSY))}")
    return cast("WhenBusy", when_busy)
