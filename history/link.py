"""The store's link to Redis or Valkey: the one module of `history` that does I/O by itself.

What is said to the server is with the noun that it is about, in the modules beside this one. How it is said is here:
under a fence, on disk where that is asked for, and with its errors told apart by what can be done about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from laneway.errors import ServiceUnavailable, StaleTurn, StoreError, StoreFull
from laneway.history.heads import Fence, TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.layout import Answer, LaneNames
from laneway.history.patience import Patience
from laneway.history.records import TurnRecord

__all__ = ["Durability", "StoreLink", "by_name", "decoded"]

Durability = Literal["auto", "aof", "none"]
"""When a commit is acknowledged: once the server says that it is on disk (`aof`), at once (`none`), or as the server's
own settings allow (`auto`: at once where each write is synced anyway, by `WAITAOF` where there is an append-only
file)."""

_WAIT_FOR_DISK = timedelta(seconds=10)
# How answers begin with which a server refuses what it may take later: a script runs too long, replicas are missing,
# its disk is full.
_PASSING = ("BUSY ", "NOREPLICAS ", "MISCONF ")


class StoreLink:
    """A connection to the server, and what each write on it goes by.

    Args:
        redis: a client that does not decode responses.
        prefix: what every key begins with.
        stage_ttl: how long an unfinished turn's data lives after its last write.
        events_kept: about how many events a lane's stream keeps, and of how many committed turns: `1000/4`.
        durability: see `Durability`.
        patience: outlasts trouble that passes while a turn's data is written; None where the caller is to hear of it.

    Attributes:
        redis: the client.
        prefix: as it was given.
        stage_ttl: in seconds, as scripts take it.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str,
        stage_ttl: timedelta,
        events_kept: str,
        durability: Durability,
        patience: Patience | None,
    ) -> None:
        # Any, since the library types each reply as all that it can be under any of its options.
        self.redis: Any = redis
        self.prefix = prefix
        self.stage_ttl = str(int(stage_ttl.total_seconds()))
        self._events_kept = events_kept
        self._patience = patience
        self._wait_for_disk: bool | None = {"auto": None, "aof": True, "none": False}[durability]

    def names(self, lane: LaneKey) -> LaneNames:
        """The names of a lane's keys."""
        return LaneNames.of(self.prefix, lane)

    def script(self, text: str) -> Any:
        """A script, to be given to `run` where it begins with the fence, or else called and given to `ask`."""
        return self.redis.register_script(text)

    async def run(self, script: Any, fence: Fence, *arguments: bytes | str | int, on_disk: bool = False) -> list[Any]:
        """Run a script of a turn.

        Args:
            script: as `script` gave it.
            fence: who writes.
            arguments: what follows the fence's own.
            on_disk: whether what was written is on disk when this returns, as far as the server can say so.

        Returns:
            what happened, and what the script says of it.

        Raises:
            TurnEnded: the turn has ended. Nothing was written.
            StaleTurn: the head has moved, or a later attempt has begun. Nothing was written.
        """
        names = self.names(fence.lane)
        keys = [names.head, names.turn(fence.turn_id), names.turns, names.events]
        head: list[str | int] = [
            names.base,
            fence.turn_id,
            fence.step,
            fence.attempt,
            "" if fence.version is None else str(fence.version),
            self._events_kept,
            self.stage_ttl,
        ]
        if on_disk and await self._must_wait():
            async with self._one_connection() as connection:
                answer = await self.outlast(lambda: script(keys, [*head, *arguments], client=connection))
                await self._synced(connection)
        else:
            answer = await self.outlast(lambda: script(keys, [*head, *arguments]))
        kind, *rest = answer
        kind = Answer(kind.decode())
        if kind is Answer.ENDED:
            raise TurnEnded(TurnRecord.from_stored(fence.turn_id, rest[0]))
        if kind is Answer.STALE:
            raise StaleTurn(
                f"turn {fence.turn_id!r} writes on version {fence.version} of its lane, which is {decoded(rest[0])} by "
                "now: nothing was written"
            )
        if kind is Answer.REPLACED:
            raise StaleTurn(
                f"attempt {fence.attempt} at step {fence.step} of turn {fence.turn_id!r} was replaced by attempt "
                f"{rest[0]}: nothing was written"
            )
        return [kind, *rest]

    @staticmethod
    async def ask(call: Awaitable[Any]) -> Any:
        """Wait for a call to Redis, with its errors told apart by what can be done about them."""
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        try:
            answer = await call
        except OutOfMemoryError as error:
            raise StoreFull(
                f"Redis refused a write: {_said(error)}. Nothing was written; raise maxmemory or free some memory, and "
                "submit again"
            ) from error
        except (AuthenticationError, AuthorizationError) as error:
            raise ServiceUnavailable(
                f"Redis refuses this connection: {_said(error)}. Correct the user or password in LANEWAY_REDIS_URL"
            ) from error
        except NoPermissionError as error:
            raise StoreError(
                f"Redis refused: {_said(error)}. Check LANEWAY_REDIS_URL, LANEWAY_REDIS_PREFIX and the user's "
                "permissions"
            ) from error
        except ReadOnlyError as error:
            raise ServiceUnavailable(
                "Redis is a replica that takes no writes. Where it does not become the primary by itself, point "
                "LANEWAY_REDIS_URL at the one that is"
            ) from error
        except (ClusterDownError, TryAgainError) as error:
            raise ServiceUnavailable(
                f"Redis cannot serve this just now: {_said(error)}. Look at the cluster"
            ) from error
        except (ConnectionError, TimeoutError, OSError) as error:
            raise ServiceUnavailable(
                f"Redis does not answer: {_said(error)}. Check LANEWAY_REDIS_URL and the server"
            ) from error
        except ResponseError as error:
            if "OOM" in str(error):
                raise StoreFull(
                    f"Redis refused a write: {_said(error)}. Nothing was written; free some memory"
                ) from error
            if str(error).startswith(_PASSING):
                raise ServiceUnavailable(
                    f"Redis cannot serve this just now: {_said(error)}. Look at the server"
                ) from error
            raise StoreError(f"Redis answered with an error: {_said(error)}") from error
        except RedisError as error:
            raise ServiceUnavailable(f"Redis failed: {_said(error)}. Check LANEWAY_REDIS_URL and the server") from error
        if task is not None and task.cancelling() > cancellations:
            # Before Python 3.12 a timeout that the client puts around its socket may swallow a cancellation.
            raise asyncio.CancelledError
        return answer

    async def outlast(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call to Redis, and outlast trouble that passes where this link is to."""
        if self._patience is None:
            return await self.ask(call())
        return await self._patience.outlast(lambda: self.ask(call()))

    async def entries(self, lane: LaneKey, epoch: int, start: int, stop: int) -> list[bytes]:
        """Entries of an epoch, as they are stored."""
        if start >= stop:
            return []
        entries: list[bytes] = await self.ask(self.redis.lrange(self.names(lane).epoch(epoch), start, stop - 1))
        return entries

    async def _must_wait(self) -> bool:
        if self._wait_for_disk is None:
            asked = self._needs_waitaof
            self._wait_for_disk = await (asked() if self._patience is None else self._patience.outlast(asked))
        return self._wait_for_disk

    async def _synced(self, connection: Any) -> None:
        # Not as other commands are sent: where the connection is lost, another one would answer for no writes at all.
        single, local = connection.connection, 0
        milliseconds = round(_WAIT_FOR_DISK.total_seconds() * 1000)
        await self.ask(single.send_command("WAITAOF", 1, 0, milliseconds, check_health=False))
        local, _ = await self.ask(connection.parse_response(single, "WAITAOF"))
        if local < 1:
            raise ServiceUnavailable(
                f"Redis did not bring a commit to its disk within {_WAIT_FOR_DISK.total_seconds():g} s. The commit may "
                "stand; the turn's record tells. Look at the server's disk"
            )

    @asynccontextmanager
    async def _one_connection(self) -> AsyncGenerator[Any]:
        connection = self.redis.client()
        try:
            await self.outlast(connection.initialize)
            yield connection
        finally:
            await connection.aclose()

    async def _needs_waitaof(self) -> bool:
        try:
            settings = await self.ask(self.redis.config_get("append*"))
            found = {decoded(k): decoded(v) for k, v in settings.items()}
            return found.get("appendonly") == "yes" and found.get("appendfsync") != "always"
        except StoreError:
            # A managed server that does not show its settings.
            persistence = await self.ask(self.redis.info("persistence"))
            return str(persistence.get("aof_enabled")) == "1"


def by_name(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """A hash as the library answers it."""
    return {name.decode(): value for name, value in fields.items()}


def decoded(value: object) -> str:
    """An item of a script's answer."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _said(error: Exception) -> str:
    text = str(error).rstrip(". ")
    return "it asks for a password" if "HELLO must be called" in text or text.startswith("NOAUTH") else text
