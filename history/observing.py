"""An ear for history editing, so that telemetry can hear of it without editing knowing telemetry."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from laneway.history.editing import EditReceipt

__all__ = ["EditObserver", "Pass", "observed", "observer", "observing"]


class EditObserver(Protocol):
    """Hears of each pass in which a processor ran; one that a condition skipped is none."""

    def passed(self, one: Pass) -> None:
        """A processor has run, or failed."""
        ...


class Pass:
    """A processor that runs.

    Attributes:
        processor: its name.
        started_ns, ended_ns: when, in nanoseconds since 1970.
        receipt: what came of it; None where it changed nothing, or failed.
        error: why it failed; None where it did not.
    """

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.started_ns = time.time_ns()
        self.ended_ns = self.started_ns
        self.receipt: EditReceipt | None = None
        self.error: Exception | None = None


_OBSERVER: ContextVar[EditObserver | None] = ContextVar("laneway_edit_observer", default=None)


@contextmanager
def observing(observer: EditObserver | None) -> Generator[None]:
    """Have an observer hear of the passes inside."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def observer() -> EditObserver | None:
    """Who hears of the passes here; None for nobody."""
    return _OBSERVER.get()


@contextmanager
def observed(processor: str) -> Generator[Pass]:
    """A pass, of which the observer is told when it is over, unless it was cancelled."""
    one = Pass(processor)
    try:
        yield one
    except Exception as error:
        one.error = error
        _tell(one)
        raise
    else:
        _tell(one)


def _tell(one: Pass) -> None:
    one.ended_ns = time.time_ns()
    if (observer := _OBSERVER.get()) is not None:
        observer.passed(one)
