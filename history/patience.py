"""Patience: a worker's writes outlast trouble with Redis that passes, or what was paid for would be paid for again.

A step that gives up on a write loses the answer that it was about to keep: the next attempt would ask the model once
more. So it holds on to it, for as long as it may take, and sends the same write again; scripts bear that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from laneway.errors import ServiceUnavailable, StoreError, StoreFull

__all__ = ["Patience"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_FULL_FOR = timedelta(seconds=30)


class Patience:
    """One worker's.

    Where the server does not answer, or cannot write just now, a call is made again without end: whoever makes it has a
    time of his own, and can be cancelled. Where its memory is full, that may be for good: after 30 s it is an error.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    async def outlast(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until it is answered.

        Raises:
            StoreFull: memory stays full.
        """
        pause, began = _FIRST_PAUSE_SECONDS, time.monotonic()
        while True:
            try:
                answer = await call()
            except ServiceUnavailable as error:
                self._meet(error)
            except StoreFull as error:
                if time.monotonic() - began > _FULL_FOR.total_seconds():
                    raise
                self._meet(error)
            else:
                self._overcome()
                return answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _meet(self, error: ServiceUnavailable | StoreError) -> None:
        if self._since is None:
            self._since = time.monotonic()
            _log.warning("turns wait for Redis: %s", error)

    def _overcome(self) -> None:
        if self._since is not None:
            _log.warning("Redis takes writes again, after %.1f s", time.monotonic() - self._since)
            self._since = None
