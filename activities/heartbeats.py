"""Heartbeats: how a running step says that it lives, and hears of a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

__all__ = ["heartbeats"]


@asynccontextmanager
async def heartbeats(interval: timedelta) -> AsyncGenerator[None]:
    """Send a heartbeat every `interval` while the context is open.

    Raises:
        ApplicationError: the worker is shutting down, so the activity is to be tried again elsewhere.
    """
    beats = _Beats(interval)
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown and not details.cancel_requested:
            # Not a cancellation of the turn: another worker goes on with the step.
            raise ApplicationError("the worker is shutting down", type="WorkerShutdown") from None
        raise
    finally:
        beats.stop()


class _Beats:
    """The beats of one step: a timer, and no task, since a step ends before the first beat more often than not.

    No function that calls for itself: it would refer to itself, and keep the step's context variables after the step.
    """

    def __init__(self, interval: timedelta) -> None:
        self._seconds = interval.total_seconds()
        self._timer = self._next()

    def _next(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._seconds, self._beat)

    def _beat(self) -> None:
        self._timer = self._next()
        activity.heartbeat()

    def stop(self) -> None:
        self._timer.cancel()
