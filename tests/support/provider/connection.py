"""HTTP/1.1 over asyncio with h11, kept this low so that it sees a client go at once and can break off anywhere."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import h11

Closer = Literal["client", "server"]


class Exchange:
    """One request and the means to answer it. Its task is cancelled when the client goes."""

    def __init__(self, connection: Connection, request: h11.Request, body: bytes) -> None:
        self._connection = connection
        self.method = request.method.decode()
        self.target = request.target.decode()
        self.headers: Mapping[str, str] = {name.decode().lower(): value.decode() for name, value in request.headers}
        self.body = body
        self.on_close: Callable[[float, Closer], None] | None = None

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status line and headers. Without a content length the body is chunked."""
        pairs = [(name, value) for name, value in headers.items()]
        await self._connection.send(h11.Response(status_code=status, headers=pairs))

    async def data(self, data: bytes) -> None:
        """Send a piece of the body."""
        if data:
            await self._connection.send(h11.Data(data=data))

    async def end(self) -> None:
        """End the response."""
        await self._connection.send(h11.EndOfMessage())

    async def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole response."""
        await self.start(status, {**headers, "content-length": str(len(body))})
        await self.data(body)
        await self.end()

    def cut(self) -> None:
        """Close the connection after what has been sent."""
        self._connection.close()

    def reset(self) -> None:
        """Reset the connection: the client reads nothing more, not even what was sent."""
        self._connection.reset()


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, handle: Callable[[Exchange], Awaitable[None]], connections: set[Connection]) -> None:
        self._handle = handle
        self._connections = connections
        self._h11 = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._exchanges: list[Exchange] = []
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closer: Closer = "client"
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        # Asyncio sets this only for sockets that know their protocol; with Nagle's delay an answer costs 40 ms more.
        self._socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError:
            self.close()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._connections.discard(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, event: h11.Event) -> None:
        """Send an event; waits while the client does not read."""
        data = self._h11.send(event)
        if data and self._transport is not None:
            self._transport.write(data)
        await self._writable.wait()

    def close(self) -> None:
        """Close after what was written."""
        self._closer = "server"
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close with RST."""
        self._closer = "server"
        if self._transport is not None:
            self._socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    async def stop(self) -> None:
        """Close at once and wait for the exchange under way to notice."""
        self._closer = "server"
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _socket(self) -> socket.socket:
        assert self._transport is not None
        raw: socket.socket = self._transport.get_extra_info("socket")
        return raw

    def _advance(self) -> None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._request, self._body = event, []
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert self._request is not None
                exchange = Exchange(self, self._request, b"".join(self._body))
                self._exchanges.append(exchange)
                self._task = asyncio.get_running_loop().create_task(self._run(exchange))
            else:
                return

    async def _run(self, exchange: Exchange) -> None:
        await self._handle(exchange)
        if self._gone:
            return
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self._advance()
        else:
            self.close()

    def _end(self) -> None:
        if self._gone:
            return
        self._gone = True
        now = time.monotonic()
        for exchange in self._exchanges:
            if exchange.on_close is not None:
                exchange.on_close(now, self._closer)
        if self._task is not None and not self._task.done():
            self._task.cancel()
