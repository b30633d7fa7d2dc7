"""Connections to Redis whose writes cost no task of their own, and little else.

redis-py puts each write into a task with a timeout. What fits into the socket's buffer is written at once, and there is
nothing to wait for; so only what does not is left to it. And it puts commands together in Python, argument by argument,
where its asynchronous connections are concerned; hiredis, which reads the answers, does that as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import hiredis
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.typing import EncodableT

__all__ = ["quick"]


# Its type says that a command has one argument.
_pack: Final[Callable[[tuple[EncodableT, ...]], bytes]] = cast("Any", hiredis).pack_command
_PACKED: Final = frozenset({bytes, int, str})


class _QuickWrites(AbstractConnection):
    def pack_command(self, *args: EncodableT) -> list[bytes]:
        name = args[0]
        if type(name) is not str or " " in name or not _PACKED.issuperset(map(type, args)):
            return super().pack_command(*args)
        return [_pack(args)]

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        writer: Any = self._writer
        if isinstance(command, bytes | str) or writer is None or not self.is_connected:
            await super().send_packed_command(command, check_health)
            return
        if check_health:
            await super().check_health()  # type: ignore[no-untyped-call]
            writer = self._writer  # which may be another one by now
        transport = writer.transport
        if transport.is_closing() or transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health=False)
            return
        writer.writelines(command)
        if transport.get_write_buffer_size():
            await super().send_packed_command((), check_health=False)


class _Tcp(_QuickWrites, Connection):
    pass


class _Tls(_QuickWrites, SSLConnection):
    pass


class _Unix(_QuickWrites, UnixDomainSocketConnection):
    pass


_QUICK: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _Tcp,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}


def quick(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """The kind of connection that is like redis-py's, and writes like this."""
    return _QUICK.get(kind, kind)
