"""Sending a rendered answer: whole or streamed, at the script's pace, with the faults that hit the body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.support.provider.answers import Answer
from tests.support.provider.connection import Exchange
from tests.support.provider.errors import error_body, status_refusal
from tests.support.provider.faults import Cut, Fault, Slow, Stall, StreamError
from tests.support.provider.rendering import Rendered, sse
from tests.support.provider.transcript import Api

Hold = Callable[[Stall], Awaitable[None]]
_PIECES = 8


@dataclass(frozen=True)
class Delivery:
    """How one answer goes out."""

    exchange: Exchange
    api: Api
    request_id: str
    stream: bool
    hold: Hold

    @property
    def _headers(self) -> dict[str, str]:
        name = "request-id" if self.api == "messages" else "x-request-id"
        kind = "text/event-stream; charset=utf-8" if self.stream else "application/json"
        return {name: self.request_id, "content-type": kind}

    async def send(self, rendered: Rendered, answer: Answer, fault: Fault | None) -> bool:
        """Send the answer; whether it went out whole."""
        frames = list(rendered.events) if self.stream else _split(json.dumps(rendered.body).encode())
        headers = self._headers
        if not self.stream:
            headers["content-length"] = str(sum(len(frame) for frame in frames))
        delay = fault.chunk_delay_seconds if isinstance(fault, Slow) else answer.chunk_delay_seconds
        stop = _stop(fault, len(frames))
        await self.exchange.start(200, headers)
        for number, frame in enumerate(frames):
            if number == stop:
                if isinstance(fault, Stall):
                    await self.hold(fault)
                elif isinstance(fault, StreamError):
                    await self.exchange.data(_error_event(self.api, fault, rendered, self.request_id))
                    await self.exchange.end()
                    return False
                else:
                    await self.exchange.data(frame[: len(frame) // 2])
                    self.exchange.cut()
                    return False
            if delay:
                await asyncio.sleep(delay)
            await self.exchange.data(frame)
        await self.exchange.end()
        return True


def _split(body: bytes) -> list[bytes]:
    size = max(1, -(-len(body) // _PIECES))
    return [body[at : at + size] for at in range(0, len(body), size)]


def _stop(fault: Fault | None, frames: int) -> int | None:
    """The frame at which a fault strikes: never before the first, at the latest at the last."""
    if isinstance(fault, (Cut, StreamError)):
        return min(max(1, int(frames * fault.fraction)), frames - 1)
    if isinstance(fault, Stall) and fault.at == "body":
        return min(max(1, frames // 2), frames - 1)
    return None


def _error_event(api: Api, fault: StreamError, rendered: Rendered, request_id: str) -> bytes:
    refusal = status_refusal(api, fault.code)
    if api == "messages":
        return sse(error_body(api, refusal, request_id), "error")
    if api == "chat":
        return sse(error_body(api, refusal, request_id))
    error = {"code": refusal.code or refusal.kind or "server_error", "message": refusal.message}
    failed = rendered.body | {"status": "failed", "error": error, "output": [], "usage": None}
    return sse({"type": "response.failed", "sequence_number": 1_000_000, "response": failed}, "response.failed")
