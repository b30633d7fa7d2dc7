"""Where a command's servers are: a `laneway dev` that runs on this folder, else what the settings say."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.errors import ServiceUnavailable

if TYPE_CHECKING:
    from laneway.activities.agents import Agents
    from laneway.client import LanewayClient
    from laneway.history.store import HistoryStore
    from laneway.settings import Settings

__all__ = ["Place", "locate", "open_client", "open_store"]

_ADDRESSES = ("LANEWAY_TEMPORAL_ADDRESS", "LANEWAY_REDIS_URL")


@dataclass(frozen=True)
class Place:
    """Where the servers are.

    Attributes:
        settings: the way to them.
        dev: whether they are those of a running `laneway dev`.
        data_dir: the folder in which that was looked for.
    """

    settings: Settings
    dev: bool
    data_dir: Path

    @property
    def overruled(self) -> list[str]:
        """The variables that name servers and are not used, because a `laneway dev` runs here."""
        return [name for name in _ADDRESSES if self.dev and os.environ.get(name)]

    def explain(self, error: ServiceUnavailable) -> ServiceUnavailable:
        """The error of a server that cannot be reached, with where else was looked."""
        if self.dev:
            return error
        return ServiceUnavailable(f"no `laneway dev` runs on {self.data_dir}, and {_lower(str(error))}")


async def locate(data_dir: Path) -> Place:
    """Find the servers.

    Raises:
        ConfigurationError: no `laneway dev` runs there, and the settings cannot work.
    """
    from laneway.local import find_running
    from laneway.settings import Settings

    running = await find_running(data_dir)
    return Place(running or Settings.load(), running is not None, data_dir)


@asynccontextmanager
async def open_client(agents: Agents, place: Place) -> AsyncGenerator[LanewayClient, None]:
    """Connect to both servers.

    Raises:
        ServiceUnavailable, ConfigurationError: one cannot be reached, or refuses.
    """
    from laneway.client import LanewayClient

    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(LanewayClient.connect(agents, place.settings))
        except ServiceUnavailable as error:
            raise place.explain(error) from error
        yield client


@asynccontextmanager
async def open_store(place: Place) -> AsyncGenerator[HistoryStore, None]:
    """Connect to Redis alone, for what can be read without Temporal.

    Raises:
        ServiceUnavailable, ConfigurationError: it cannot be reached, or refuses.
    """
    from laneway.worker import open_store

    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(place.settings))
        except ServiceUnavailable as error:
            raise place.explain(error) from error
        yield store


def _lower(message: str) -> str:
    first = message.split(" ", 1)[0]
    return message if first in ("Redis", "Temporal") else message[:1].lower() + message[1:]
