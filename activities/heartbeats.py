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
    # A timer, and no task: a step ends before the first beat more often than not.
    loop, seconds = asyncio.get_running_loop(), interval.total_seconds()

    timer: asyncio.TimerHandle

    def beat() -> None:
        nonlocal timer
        timer = loop.call_later(seconds, beat)
        activity.heartbeat()

    timer = loop.call_later(seconds, beat)
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown and not details.cancel_requested:
            # Not a cancellation of the turn: another worker goes on with the step.
            raise ApplicationError("the worker is shutting down", type="WorkerShutdown") from None
        raise
    finally:
        timer.cancel()
