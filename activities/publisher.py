"""Says on a lane's stream what happens in a step, without holding up the step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from laneway.errors import LanewayError, StaleTurn
from laneway.history.records import EventKind, LaneEvent

__all__ = ["StepPublisher"]

_DELTAS = frozenset({EventKind.TEXT_DELTA, EventKind.THINKING_DELTA})
_PAUSE_SECONDS = 0.02


class StepPublisher:
    """Gathers a step's events and publishes them in order: the first at once, then those of each 20 ms together.

    Neighbouring deltas of one kind become one event. Publishing is best effort: what the stream refuses is not worth a
    turn, and a step whose turn has ended says no more.

    Args:
        publish: sends events.
        turn_id, step, attempt: what the events are about.
    """

    def __init__(
        self, publish: Callable[[Sequence[LaneEvent]], Awaitable[None]], *, turn_id: str, step: int, attempt: int
    ) -> None:
        self._publish = publish
        self._turn_id, self._step, self._attempt = turn_id, step, attempt
        self._waiting: list[LaneEvent] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def _closing(self) -> bool:
        return self._closed.is_set()

    def emit(self, kind: EventKind, data: Mapping[str, object]) -> None:
        """Say something, soon."""
        if self._closing:
            return
        last = self._waiting[-1] if self._waiting else None
        if last is not None and kind in _DELTAS and last.kind is kind:
            data = {"text": f"{last.data['text']}{data['text']}"}
            self._waiting.pop()
        self._waiting.append(LaneEvent(kind, self._turn_id, self._step, self._attempt, data))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="laneway-publisher")
        self._wake.set()

    async def flush(self) -> None:
        """Publish what waits, and stop."""
        self._closed.set()
        self._wake.set()
        if self._task is not None:
            await self._task

    async def drain(self) -> Sequence[LaneEvent]:
        """Stop. What waits is for the caller to say, who has something to write anyway: it saves a round trip."""
        waiting, self._waiting = self._waiting, []
        await self.flush()
        return waiting

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.flush()
        elif self._task is not None:
            # Told to stop as well as cancelled: a cancellation can get lost in a call that ends just then.
            self._waiting.clear()
            self._closed.set()
            self._wake.set()
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            events, self._waiting = self._waiting, []
            if events:
                try:
                    await self._publish(events)
                except StaleTurn:
                    self._closed.set()
                    return
                except LanewayError:
                    pass
            if self._closing and not self._waiting:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._closed.wait()
