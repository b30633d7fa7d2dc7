"""The agents that a worker or a client has, by name, and what they hold open while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

from laneway.activities.adapter import Adapter, digest_of
from laneway.activities.references import Registry
from laneway.errors import UnknownAgent
from laneway.history.lanes import LaneKey

__all__ = ["Agents"]


class Agents:
    """The registered agents.

    Args:
        adapters: each agent's adapter, by the agent's name.
        registry: what the application has registered by name besides.
    """

    def __init__(self, adapters: Mapping[str, Adapter[Any]], registry: Registry | None = None) -> None:
        self._adapters = dict(adapters)
        self.registry = registry or Registry()
        self._stack = AsyncExitStack()
        self._running: dict[str, asyncio.Lock] = {}
        self._entered: set[str] = set()

    @cached_property
    def _contracts(self) -> dict[str, str]:
        return {name: digest_of(adapter.contract()) for name, adapter in self._adapters.items()}

    def __getitem__(self, agent: str) -> Adapter[Any]:
        try:
            return self._adapters[agent]
        except KeyError:
            known = ", ".join(map(repr, sorted(self._adapters))) or "none"
            raise UnknownAgent(f"no agent {agent!r} is registered here; registered: {known}") from None

    def lane(self, conversation: str, agent: str) -> LaneKey:
        """The lane of a conversation with an agent under the agent's present contract.

        Raises:
            UnknownAgent: no agent of that name is registered.
        """
        self[agent]
        return LaneKey(conversation, agent, self._contracts[agent])

    def for_lane(self, lane: LaneKey) -> Adapter[Any]:
        """The adapter that may run a lane's turns.

        Raises:
            UnknownAgent: no agent of that name is registered, or it has another contract by now.
        """
        adapter = self[lane.agent]
        contract = self._contracts[lane.agent]
        if contract != lane.contract:
            raise UnknownAgent(
                f"agent {lane.agent!r} has contract {contract} here, and this lane was begun under {lane.contract}: "
                "its model, settings, tools or output type have changed. Run a worker that has the agent as it was to "
                "finish the lane's turns; new turns of the conversation go to a lane of the new contract"
            )
        return adapter

    @asynccontextmanager
    async def running(self, agent: str) -> AsyncGenerator[None]:
        """Have the agent's tool servers and clients connected: once, and for as long as the worker runs."""
        if agent not in self._entered:
            async with self._running.setdefault(agent, asyncio.Lock()):
                if agent not in self._entered:
                    await self._stack.enter_async_context(self._adapters[agent].running())
                    self._entered.add(agent)
        yield

    async def close(self) -> None:
        """Disconnect what the agents hold."""
        self._entered.clear()
        await self._stack.aclose()
