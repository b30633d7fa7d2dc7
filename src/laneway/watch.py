"""Hears when something happens on lanes: one subscription for all that a client waits for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from redis.asyncio import Redis
from redis.exceptions import RedisError

__all__ = ["LaneWatch", "Watcher"]

_MAX_QUIET_LANES = 1000
_PAUSE_SECONDS = 0.1


@dataclass(eq=False)
class Watcher:
    """Waits for news of a lane.

    Attributes:
        turn_id: news of this turn's end only; None for any news.
        ended: that turn's record as it is stored, where the news was that it has ended.
        entry: the last entry of the history that it committed, where the news had that.
    """

    turn_id: str | None
    ended: bytes | None = None
    entry: bytes | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, ended: bytes | None = None, entry: bytes | None = None) -> None:
        """Say that there is news."""
        self.ended, self.entry = ended or self.ended, entry or self.entry
        self._news.set()

    async def wait(self, seconds: float) -> None:
        """Return when there is news, or may be: at the latest after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        if self.ended is None:
            self._news.clear()


@dataclass(eq=False)
class _Lane:
    watchers: WeakSet[Watcher] = field(default_factory=WeakSet[Watcher])
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)


class LaneWatch:
    """Turns the messages of lanes' channels into news.

    A message may be lost while the connection is; so whoever waits looks for itself after each piece of news, and all
    are woken when the connection is back.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        self._pubsub: Any = None
        self._reader: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop listening."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        if self._pubsub is not None:
            with suppress(RedisError, OSError):
                await self._pubsub.aclose()

    def heard(self, channel: str, turn_id: str) -> Watcher | None:
        """Hear of a turn's end from now on, while the watcher is held; None where the lane is not listened to."""
        lane = self._lanes.get(channel)
        if lane is None or not lane.subscribed.is_set():
            return None
        self._lanes.move_to_end(channel)
        lane.watchers.add(watcher := Watcher(turn_id))
        return watcher

    @asynccontextmanager
    async def watching(self, channel: str, turn_id: str | None = None) -> AsyncGenerator[Watcher]:
        """Hear of a lane, from before the block begins until it ends."""
        watcher = Watcher(turn_id)
        lane = self._lanes.get(channel)
        if lane is None:
            lane = self._lanes[channel] = _Lane()
            lane.watchers.add(watcher)
            await self._subscribe(channel)
        else:
            self._lanes.move_to_end(channel)
            lane.watchers.add(watcher)
        try:
            with suppress(TimeoutError):
                # Without the confirmation news may be missed; whoever waits looks again from time to time.
                async with asyncio.timeout(5.0):
                    await lane.subscribed.wait()
            yield watcher
        finally:
            lane.watchers.discard(watcher)
            await self._forget_quiet()

    async def _subscribe(self, channel: str) -> None:
        connected = True
        if self._pubsub is None:
            self._pubsub = self._redis.pubsub()
        try:
            await self._pubsub.subscribe(channel)
        except (RedisError, OSError):
            connected = False
        if self._reader is not None and not connected:
            # It may have connected again by itself meanwhile, without this channel: all of them are subscribed anew.
            self._reader.cancel()
            self._reader = None
        if self._reader is None:
            self._reader = asyncio.create_task(self._listen(connected=connected), name="laneway-watch")

    async def _forget_quiet(self) -> None:
        if len(self._lanes) <= _MAX_QUIET_LANES:
            return
        quiet = [channel for channel, lane in self._lanes.items() if not lane.watchers]
        for channel in quiet[: len(self._lanes) - _MAX_QUIET_LANES]:
            del self._lanes[channel]
            with suppress(RedisError, OSError):
                await self._pubsub.unsubscribe(channel)

    async def _listen(self, *, connected: bool) -> None:
        if not connected:
            await self._reconnect()
        while True:
            try:
                message = await self._pubsub.get_message(timeout=None)
            except (RedisError, OSError):
                await self._reconnect()
                continue
            if message is None:
                await asyncio.sleep(0)
                continue
            lane = self._lanes.get(message["channel"].decode())
            if lane is None:
                continue
            if message["type"] == "subscribe":
                lane.subscribed.set()
                self._tell(lane, b"")
            elif message["type"] == "message":
                self._tell(lane, message["data"])

    def _tell(self, lane: _Lane, word: bytes) -> None:
        turn, _, told = word.removeprefix(b"end:").partition(b"\n") if word.startswith(b"end:") else (b"", b"", b"")
        record, _, entry = told.partition(b"\n")  # a record is JSON on one line
        for watcher in list(lane.watchers):
            if watcher.turn_id is None or not word:
                watcher.tell()
            elif watcher.turn_id == turn.decode():
                watcher.tell(record, entry)

    async def _reconnect(self) -> None:
        """Subscribe to all lanes anew, however long that takes: a listener without a connection would hear nothing."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            with suppress(RedisError, OSError):
                await self._pubsub.aclose()
            self._pubsub = self._redis.pubsub()
            try:
                await self._pubsub.subscribe(*self._lanes)
            except (RedisError, OSError):
                continue
            break
        for lane in self._lanes.values():
            self._tell(lane, b"")
