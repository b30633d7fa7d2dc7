"""An application: the agents that it registers, and the workers and clients that know them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.client import LanewayClient
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.lanes import check_name
from laneway.settings import Settings
from laneway.worker import run_worker

__all__ = ["Laneway"]


class Laneway:
    """The agents of an application, by name.

    Args:
        agents: each agent's adapter, such as a `PydanticAdapter`, by the name that conversations use.

    Raises:
        ConfigurationError: there is no agent, a name cannot be one, or a value is no adapter.
    """

    def __init__(self, *, agents: Mapping[str, Adapter[Any]]) -> None:
        if not agents:
            raise ConfigurationError(
                "Laneway needs at least one agent: Laneway(agents={'name': PydanticAdapter(agent)})"
            )
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

    @property
    def agents(self) -> Mapping[str, Adapter[Any]]:
        """The adapters by name."""
        return dict(self._adapters)

    @asynccontextmanager
    async def worker(self, settings: Settings | None = None) -> AsyncGenerator[None]:
        """Run the agents in this process while the context is open.

        Args:
            settings: where the servers are; the environment's where not given.

        Raises:
            ServiceUnavailable, ConfigurationError: a server cannot be reached, or a setting cannot work.
        """
        async with run_worker(Agents(self._adapters), settings or Settings.load()):
            yield

    @asynccontextmanager
    async def client(self, settings: Settings | None = None) -> AsyncGenerator[LanewayClient]:
        """Connect as a client.

        Args:
            settings: where the servers are; the environment's where not given.

        Raises:
            ServiceUnavailable, ConfigurationError: a server cannot be reached, or a setting cannot work.
        """
        async with LanewayClient.connect(Agents(self._adapters), settings or Settings.load()) as client:
            yield client
