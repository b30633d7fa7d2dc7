"""Says on a lane's stream what happens in a step, and keeps what is journaled, without holding up the step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from laneway.errors import LanewayError, StaleTurn
from laneway.history.records import EventKind, LaneEvent

__all__ = ["StepPublisher"]

_DELTAS = frozenset({EventKind.TEXT_DELTA, EventKind.THINKING_DELTA})
_PAUSE_SECONDS = 0.02

Note = Callable[[Sequence[tuple[str, bytes]], Sequence[LaneEvent]], Awaitable[Sequence[bytes | None]]]
"""Writes fields of the turn and says events, in one round trip; returns what each field held before, or None."""


@dataclass(frozen=True, eq=False)
class _Field:
    name: str
    value: bytes
    held: asyncio.Future[bytes | None]


class StepPublisher:
    """Gathers what a step says and keeps, and writes it in order.

    The first event goes at once, then those of each 20 ms together; fields go at once, with the events before them.
    What comes while a write is on its way, or in the same turn of the event loop, is one write: parallel tools that
    end together are journaled together. Neighbouring deltas of one kind become one event.

    Publishing is best effort: what the stream refuses is not worth a turn, and a step whose turn has ended says no
    more. Whoever keeps a field hears of what went wrong.

    Args:
        note: writes.
        turn_id, step, attempt: what the events are about.
    """

    def __init__(self, note: Note, *, turn_id: str, step: int, attempt: int) -> None:
        self._note = note
        self._turn_id, self._step, self._attempt = turn_id, step, attempt
        self._waiting: list[LaneEvent] = []
        self._fields: list[_Field] = []
        self._wake = asyncio.Event()
        # Set where nothing is to be waited for: a field is to be kept, or the step is over.
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def emit(self, kind: EventKind, data: Mapping[str, object]) -> None:
        """Say something, soon."""
        if self._closing:
            return
        last = self._waiting[-1] if self._waiting else None
        if last is not None and kind in _DELTAS and last.kind is kind:
            data = {"text": f"{last.data['text']}{data['text']}"}
            self._waiting.pop()
        self._waiting.append(LaneEvent(kind, self._turn_id, self._step, self._attempt, data))
        self._start()

    async def keep(self, name: str, value: bytes) -> bytes | None:
        """Keep a field of the turn, unless it holds something. It is written when this returns.

        Returns:
            what it held, or None.
        """
        if self._closing:
            (held,) = await self._note([(name, value)], ())
            return held
        field = _Field(name, value, asyncio.get_running_loop().create_future())
        self._fields.append(field)
        self._hurry.set()
        self._start()
        return await field.held

    async def flush(self) -> None:
        """Write what waits, and stop."""
        self._close()
        if (task := self._task) is not None:
            await task
            # The task knows the publisher, and by its context variables the run with all of its messages.
            self._task = None

    async def drain(self) -> Sequence[LaneEvent]:
        """Stop. The events that wait are for the caller to say, who has something to write anyway: it saves a trip."""
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
            self._close()
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="laneway-publisher")
        self._wake.set()

    def _close(self) -> None:
        self._closing = True
        self._wake.set()
        self._hurry.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._write()
                if self._closing and not self._waiting and not self._fields:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE_SECONDS):
                        await self._hurry.wait()
        finally:
            # Whoever comes later writes by himself, and waits for nobody who is gone.
            self._closing = True
            for field in self._fields:
                field.held.cancel()

    async def _write(self) -> None:
        events, self._waiting = self._waiting, []
        fields, self._fields = self._fields, []
        if not self._closing:
            self._hurry.clear()
        if not events and not fields:
            return
        try:
            held = await self._note([(field.name, field.value) for field in fields], events)
        except asyncio.CancelledError:
            for field in fields:
                field.held.cancel()
            raise
        except BaseException as error:
            for field in fields:
                if not field.held.done():
                    field.held.set_exception(error)
            if isinstance(error, StaleTurn):
                self._close()
            elif not fields and not isinstance(error, LanewayError):
                raise
        else:
            for field, value in zip(fields, held, strict=True):
                if not field.held.done():
                    field.held.set_result(value)
