"""An application: the agents that it registers, and the workers and clients that know them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.activities.capabilities import require
from laneway.activities.hooks import Hooks
from laneway.activities.references import Registry
from laneway.activities.telemetry import Telemetry
from laneway.activities.turn_scope import check_hooks
from laneway.client import LanewayClient
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.delegation import Delegation
from laneway.history.given import check_kind
from laneway.history.lanes import check_name
from laneway.settings import Settings
from laneway.worker import run_worker

__all__ = ["Laneway"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Laneway:
    """The agents of an application, by name.

    Args:
        agents: each agent's adapter, such as a `PydanticAdapter`, by the name that conversations use.
        hooks: called around the turns of all agents, after those of their adapters.
        telemetry: where spans and metrics go; without it there are none. See docs/observability.md.

    Raises:
        ConfigurationError: there is no agent, a name cannot be one, a value is no adapter, or there are hooks that an
            adapter would never call, or delegates of one that cannot wait for them.
    """

    def __init__(
        self, *, agents: Mapping[str, Adapter[Any]], hooks: Hooks | None = None, telemetry: Telemetry | None = None
    ) -> None:
        if not agents or not isinstance(cast("object", agents), Mapping):
            raise ConfigurationError(
                "Laneway needs at least one agent: Laneway(agents={'name': PydanticAdapter(agent)})"
            )
        check_kind("Laneway: hooks", hooks, Hooks, "Hooks(…), or None for none")
        check_kind("Laneway: telemetry", telemetry, Telemetry, "Telemetry(…), or None for none")
        for name, adapter in agents.items():
            try:
                check_name(name, what="an agent's name")
            except InvalidInput as error:
                raise ConfigurationError(str(error)) from None
            if not callable(getattr(adapter, "step", None)) or not callable(getattr(adapter, "contract", None)):
                raise ConfigurationError(
                    f"agent {name!r} is a {type(adapter).__name__}, which is no adapter: wrap it, as in "
                    f"PydanticAdapter(agent)"
                )
        self._adapters = dict(agents)
        self._registry = Registry()
        self._hooks = hooks
        self._telemetry = telemetry
        for name, adapter in agents.items():
            for layer in (hooks, getattr(adapter, "hooks", None)):
                if layer is not None:
                    layer.check_callable()
                    check_hooks(adapter, layer, agent=name)
            delegates: Mapping[str, Delegation] = getattr(adapter, "delegates", {})
            if delegates:
                require(adapter, "delegation", agent=name, what="delegates={…}")
            for delegate, delegation in delegates.items():
                if delegation.agent not in agents:
                    known = ", ".join(map(repr, sorted(agents)))
                    raise ConfigurationError(
                        f"agent {name!r} has the delegate {delegate!r}, which is agent {delegation.agent!r}: no such "
                        f"agent is registered; registered: {known}"
                    )

    @property
    def agents(self) -> Mapping[str, Adapter[Any]]:
        """The adapters by name."""
        return dict(self._adapters)

    def register(self, name: str, value: T) -> T:
        """Register a value under a name, by which turns refer to it and workers find it. Returns the value.

        The newest value of a name is what new turns refer to; a turn that has captured an older one goes on with that.

        Raises:
            InvalidInput, ConfigurationError: the name cannot be one.
        """
        return self._registry.register(name, value)

    def processor(self, processor: F) -> F:
        """Register a history processor under its own name, for scopes to use: `@app.processor`."""
        return self._registered(processor)

    def condition(self, condition: F) -> F:
        """Register a history processor's condition under its own name, for scopes to use: `@app.condition`."""
        return self._registered(condition)

    def hook(self, hook: F) -> F:
        """Register a hook under its own name, for scopes and profiles to use: `@app.hook`."""
        return self._registered(hook)

    def tool(self, tool: F) -> F:
        """Register a tool under its own name, for profiles to use: `@app.tool`."""
        return self._registered(tool)

    def _registered(self, value: F) -> F:
        name = getattr(value, "__name__", type(value).__name__)
        if not name.isidentifier():
            raise ConfigurationError(f"{value!r} has no name of its own: use app.register(name, value)")
        return self._registry.register(name, value)

    @asynccontextmanager
    async def worker(self, settings: Settings | None = None) -> AsyncGenerator[None]:
        """Run the agents in this process while the context is open.

        Args:
            settings: where the servers are; the environment's where not given.

        Raises:
            ServiceUnavailable, ConfigurationError: a server cannot be reached, or a setting cannot work.
        """
        agents = Agents(self._adapters, self._registry, self._hooks, self._telemetry)
        async with run_worker(agents, _settings_of(settings)):
            yield

    @asynccontextmanager
    async def client(self, settings: Settings | None = None) -> AsyncGenerator[LanewayClient]:
        """Connect as a client.

        Args:
            settings: where the servers are; the environment's where not given.

        Raises:
            ServiceUnavailable, ConfigurationError: a server cannot be reached, or a setting cannot work.
        """
        async with LanewayClient.connect(
            Agents(self._adapters, self._registry, self._hooks, self._telemetry), _settings_of(settings)
        ) as client:
            yield client


def _settings_of(given: Settings | None) -> Settings:
    check_kind("settings", given, Settings, "Settings(…), such as `stack.settings`, or None for the environment's")
    return Settings.load() if given is None else given
