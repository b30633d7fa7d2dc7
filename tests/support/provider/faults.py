"""Faults that a request can be answered with, as values; ``delivery`` carries them out.

``status``, ``reset`` and a ``stall`` at the start happen before the script is asked: the model did no
work. ``cut``, ``stream_error`` and a ``stall`` in the body happen to an answer that was made, so the
server counts it as made and not as finished: what a provider would bill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Status:
    """An error status with the provider's own kind of body."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    message: str | None = None


@dataclass(frozen=True)
class Reset:
    """The connection is reset (RST) after the request was read, before any answer."""


@dataclass(frozen=True)
class Cut:
    """The connection is closed in the middle of the body, after ``fraction`` of it."""

    fraction: float = 0.5


@dataclass(frozen=True)
class Stall:
    """Nothing is sent for ``seconds``, or until ``gate`` is set; then it goes on as if nothing had been."""

    seconds: float | None = None
    gate: str | asyncio.Event | None = None
    at: Literal["start", "body"] = "start"


@dataclass(frozen=True)
class StreamError:
    """An error event inside a stream whose status was 200; without a stream it is ``Status(code)``."""

    code: int = 529
    fraction: float = 0.5


@dataclass(frozen=True)
class Slow:
    """The body trickles: ``chunk_delay_seconds`` before each event, or each piece of a whole body."""

    chunk_delay_seconds: float


Fault: TypeAlias = Status | Reset | Cut | Stall | StreamError | Slow


def status(code: int, *, retry_after: float | datetime | None = None, message: str | None = None) -> Status:
    """Answer with ``code``; ``retry_after`` in seconds, or a moment, which goes out as an HTTP date."""
    headers: dict[str, str] = {}
    if isinstance(retry_after, datetime):
        headers["retry-after"] = format_datetime(retry_after.astimezone(UTC), usegmt=True)
    elif retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    return Status(code, headers, message)


def reset() -> Reset:
    """Reset the connection instead of answering."""
    return Reset()


def cut(fraction: float = 0.5) -> Cut:
    """Close the connection after ``fraction`` of the body (of the events, in a stream)."""
    return Cut(fraction)


def stall(
    seconds: float | None = None,
    *,
    gate: str | asyncio.Event | None = None,
    at: Literal["start", "body"] = "start",
) -> Stall:
    """Send nothing for a time, or until the gate is set, or (with neither) until the client goes."""
    return Stall(seconds, gate, at)


def stream_error(code: int = 529, fraction: float = 0.5) -> StreamError:
    """Break a stream off with the provider's error event."""
    return StreamError(code, fraction)


def slow(chunk_delay_seconds: float) -> Slow:
    """Let the body trickle."""
    return Slow(chunk_delay_seconds)
