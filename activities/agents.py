"""The agents that a worker or a client has, by name, and what they hold open while they run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any, Final, cast

from laneway.activities.adapter import Adapter, digest_of
from laneway.activities.capabilities import require
from laneway.activities.hooks import Hooks
from laneway.activities.profiles import Profiled, ProfileSource
from laneway.activities.references import Registry
from laneway.activities.telemetry import Instruments, Telemetry
from laneway.errors import UnknownAgent
from laneway.history.lanes import LaneKey

__all__ = ["Agents"]

NO_PROFILE: Final = ProfileSource()
_MAX_PROFILES = 256


class Agents:
    """The registered agents.

    Args:
        adapters: each agent's adapter, by the agent's name.
        registry: what the application has registered by name besides.
        hooks: the application's hooks.
        telemetry: where the application's spans and metrics go; None for nowhere.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter[Any]],
        registry: Registry | None = None,
        hooks: Hooks | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._adapters = dict(adapters)
        self.registry = registry or Registry()
        self._hooks = hooks
        self.instruments = None if telemetry is None else Instruments(telemetry)
        self._stack = AsyncExitStack()
        self._running: dict[tuple[str, str], asyncio.Lock] = {}
        self._entered: set[tuple[str, str]] = set()
        self._profiled: OrderedDict[tuple[str, str], tuple[Adapter[Any], str]] = OrderedDict()

    @cached_property
    def _contracts(self) -> dict[str, str]:
        return {name: digest_of(adapter.contract()) for name, adapter in self._adapters.items()}

    def __getitem__(self, agent: str) -> Adapter[Any]:
        try:
            return self._adapters[agent]
        except KeyError:
            known = ", ".join(map(repr, sorted(self._adapters))) or "none"
            raise UnknownAgent(f"no agent {agent!r} is registered here; registered: {known}") from None

    def __contains__(self, agent: str) -> bool:
        return agent in self._adapters

    def hooks(self, agent: str) -> list[Hooks]:
        """The hooks that every turn of an agent has: its adapter's, then the application's."""
        own: Hooks | None = getattr(self._adapters.get(agent), "hooks", None)
        return [hooks for hooks in (own, self._hooks) if hooks is not None]

    def lane(self, conversation: str, agent: str, profile: ProfileSource = NO_PROFILE) -> LaneKey:
        """The lane of a conversation with an agent under the agent's present contract, or a profile's.

        Raises:
            UnknownAgent: no agent of that name is registered.
            ConfigurationError: the agent cannot run under the profile.
        """
        return LaneKey(conversation, agent, self._under(agent, profile)[1])

    def for_lane(self, lane: LaneKey, profile: ProfileSource = NO_PROFILE) -> Adapter[Any]:
        """The adapter that may run a lane's turns.

        Raises:
            UnknownAgent: no agent of that name is registered, or it has another contract by now.
            UnknownReference: the profile refers to what is not here.
        """
        adapter, contract = self._under(lane.agent, profile)
        if contract != lane.contract:
            raise UnknownAgent(
                f"agent {lane.agent!r} has contract {contract} here, and this lane was begun under {lane.contract}: "
                "its model, settings, tools or output type have changed. Run a worker that has the agent as it was to "
                "finish the lane's turns; new turns of the conversation go to a lane of the new contract"
            )
        return adapter

    def under(self, agent: str, profile: ProfileSource) -> Adapter[Any]:
        """The adapter of an agent under a profile.

        Raises:
            UnknownAgent: no agent of that name is registered.
            ConfigurationError: the agent cannot run under the profile.
        """
        return self._under(agent, profile)[0]

    def _under(self, agent: str, profile: ProfileSource) -> tuple[Adapter[Any], str]:
        """An agent's adapter under a profile, and its contract."""
        adapter = self[agent]
        if not profile.data:
            return adapter, self._contracts[agent]
        key = (agent, profile.key)
        found = self._profiled.get(key)
        if found is None:
            require(adapter, "profiles", agent=agent, what="AgentProfile(model=…, tools=…)")
            under: Adapter[Any] = cast("Profiled", adapter).with_profile(profile.resolved(self.registry))
            found = self._profiled[key] = under, digest_of(under.contract())
            while len(self._profiled) > _MAX_PROFILES:
                self._profiled.popitem(last=False)
        self._profiled.move_to_end(key)
        return found

    @asynccontextmanager
    async def running(self, agent: str, profile: ProfileSource = NO_PROFILE) -> AsyncGenerator[None]:
        """Have the agent's tool servers and clients connected: once, and for as long as the worker runs.

        Of a profile it is its tool servers that have to be connected besides.
        """
        await self._run((agent, ""), lambda: self._adapters[agent])
        if servers := profile.servers:
            await self._run((agent, servers), lambda: self._under(agent, profile)[0])
        yield

    async def _run(self, key: tuple[str, str], adapter: Callable[[], Adapter[Any]]) -> None:
        if key not in self._entered:
            async with self._running.setdefault(key, asyncio.Lock()):
                if key not in self._entered:
                    await self._stack.enter_async_context(adapter().running())
                    self._entered.add(key)

    async def close(self) -> None:
        """Disconnect what the agents hold."""
        self._entered.clear()
        await self._stack.aclose()
