"""What a thread has the event loop of its step do, and waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from laneway.errors import ConfigurationError

__all__ = ["wait_for"]

T = TypeVar("T")


def wait_for(call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, *, refusal: str) -> T:
    """What a coroutine comes to in an event loop of another thread.

    Args:
        call: what to do.
        loop: the loop.
        refusal: what is wrong where this thread is the loop's own, which would wait for itself.

    Raises:
        ConfigurationError: this thread is the loop's own.
    """
    try:
        running: object = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        call.close()
        raise ConfigurationError(refusal)
    return asyncio.run_coroutine_threadsafe(call, loop).result()
