"""Workers and clients for one test."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway import Laneway, LanewayClient, Settings
    from laneway.activities.adapter import Adapter


@dataclass
class Bench:
    """Runs applications for one test. Whatever it opened is closed when the test is over.

    Attributes:
        settings: the test's.
    """

    settings: Settings
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def serve(self, agents: Mapping[str, Adapter[Any]], **settings: object) -> LanewayClient:
        """Start a worker with these agents, and a client of it.

        Args:
            agents: the adapters by the agents' names.
            settings: settings that differ from the test's.
        """
        await self.worker(agents, **settings)
        return await self.client(agents, **settings)

    async def worker(self, agents: Mapping[str, Adapter[Any]], **settings: object) -> AsyncExitStack:
        """Start a worker; it ends when what is returned is closed, at the latest with the test."""
        own = AsyncExitStack()
        await own.enter_async_context(_app(agents).worker(self._settings(settings)))
        await self._stack.enter_async_context(own)
        return own

    async def client(self, agents: Mapping[str, Adapter[Any]], **settings: object) -> LanewayClient:
        """Connect a client that knows these agents."""
        return await self._stack.enter_async_context(_app(agents).client(self._settings(settings)))

    def _settings(self, changed: dict[str, object]) -> Settings:
        return self.settings.model_copy(update=changed)

    async def close(self) -> None:
        await self._stack.aclose()


def _app(agents: Mapping[str, Adapter[Any]]) -> Laneway:
    from laneway import Laneway

    return Laneway(agents=agents)
