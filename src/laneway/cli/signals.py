"""Ctrl-C and SIGTERM for commands that run until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["stop_signals"]


@asynccontextmanager
async def stop_signals() -> AsyncGenerator[asyncio.Event, None]:
    """An event that is set by the first SIGINT or SIGTERM. The second one cancels the task that entered the block."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stop, received = asyncio.Event(), 0

    def receive() -> None:
        # Counted here, since something else than a signal may have set the event before the first one comes.
        nonlocal received
        received += 1
        stop.set()
        if received > 1:
            task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, receive)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
