"""Places in a turn where a worker stops and waits to be killed.

A worker process is given one place by name. When it comes there it says so in a file, and does nothing more; the test
sees the file and kills it. So a kill hits its place each time, however fast or slow the machine is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from laneway.history.endings import Endings
from laneway.history.open_turns import OpenTurns
from laneway.history.store import HistoryStore


class Stops:
    """Where one worker stops.

    Args:
        place: the place's name; None for a worker that stops nowhere.
        marker: the file that says that it did.
    """

    def __init__(self, place: str | None = None, marker: Path | None = None) -> None:
        self.place = place
        self._marker = marker
        self._passed: dict[str, asyncio.Event] = {}

    async def at(self, place: str) -> None:
        """Stop here for good, if this is the place."""
        self._event(place).set()
        if place != self.place:
            return
        assert self._marker is not None
        append(self._marker, place)
        await asyncio.Event().wait()

    async def until(self, place: str) -> None:
        """Wait until the worker has come through a place."""
        await self._event(place).wait()

    def _event(self, place: str) -> asyncio.Event:
        return self._passed.setdefault(place, asyncio.Event())


class StoppingStore(HistoryStore):
    """A store that stops before and after what it does: `load:0`, `before s0`, `after s0`, `before commit`…

    At a hook's decision by the hook's name, `after before_tool`; when those who are told of an end were, at `settle`.
    """

    stops: Stops

    def __init__(self, redis: Redis, **options: Any) -> None:
        super().__init__(redis, **options)
        self.turns, self.endings = _StoppingTurns(self), _StoppingEndings(self)


class _StoppingTurns(OpenTurns):
    def __init__(self, store: StoppingStore) -> None:
        super().__init__(store.link)
        self.stops = store.stops

    async def load(self, fence: Any, **kwargs: Any) -> Any:
        await self.stops.at(f"before load:{fence.step}")
        loaded = await super().load(fence, **kwargs)
        await self.stops.at(f"after load:{fence.step}")
        return loaded

    async def stage(self, fence: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        place = name.partition(":")[0]
        await self.stops.at(f"before {place}")
        staged = await super().stage(fence, name, *args, **kwargs)
        await self.stops.at(f"after {place}")
        return staged

    async def note(self, fence: Any, *, fields: Any = (), events: Any = ()) -> Any:
        places = [name.partition(":")[0] for name, _ in fields]
        for place in places:
            await self.stops.at(f"before {place}")
        held = await super().note(fence, fields=fields, events=events)
        for place in places:
            await self.stops.at(f"after {place}")
        return held

    async def decide(self, fence: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        hook = name.split(":")[1]
        await self.stops.at(f"before {hook}")
        held = await super().decide(fence, name, *args, **kwargs)
        await self.stops.at(f"after {hook}")
        return held


class _StoppingEndings(Endings):
    def __init__(self, store: StoppingStore) -> None:
        super().__init__(store.link)
        self.stops = store.stops

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        await self.stops.at("before commit")
        record = await super().commit(*args, **kwargs)
        await self.stops.at("after commit")
        return record

    async def abort(self, *args: Any, **kwargs: Any) -> Any:
        await self.stops.at("before abort")
        record = await super().abort(*args, **kwargs)
        await self.stops.at("after abort")
        return record

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        await self.stops.at("before settle")
        settled = await super().settle(*args, **kwargs)
        await self.stops.at("after settle")
        return settled


def append(path: Path, line: str) -> None:
    """Write a line that no kill takes back."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lines(path: Path) -> Sequence[str]:
    """The lines written so far."""
    return path.read_text().splitlines() if path.exists() else []
