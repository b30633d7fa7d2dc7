"""A Pydantic AI agent under a profile: the same agent, some of it overridden for each run.

The framework's own overrides are in context variables, so runs under different profiles do not see each other. The
agent's `override` would make a model of a model's name at once; here that is left to the run, since a client that only
names lanes has no key of the provider's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.run import AgentRun
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from laneway.activities.profiles import RunProfile

__all__ = ["ProfiledAgent"]


class ProfiledAgent(WrapperAgent[Any, Any]):
    """An agent under a profile.

    Args:
        wrapped: the agent.
        profile: what is different.
    """

    def __init__(self, wrapped: AbstractAgent[Any, Any], profile: RunProfile) -> None:
        super().__init__(wrapped)
        self.profile = profile
        self._servers = AsyncExitStack()

    @property
    def model(self) -> Any:
        return self.wrapped.model if self.profile.model is None else self.profile.model

    @property
    def model_settings(self) -> Any:
        """The agent's settings with the profile's laid over them; a function where the agent's are one."""
        own: Any = getattr(self.wrapped, "model_settings", None)
        over = self.profile.model_settings
        if not over:
            return own
        if not callable(own):
            return {**cast("Mapping[str, Any]", own or {}), **over}

        def laid_over(ctx: RunContext[Any]) -> ModelSettings:
            given = cast("Mapping[str, Any] | None", own(ctx))
            return cast("ModelSettings", {**(given or {}), **over})

        function: Any = laid_over
        function.laid_over = dict(over)
        return function

    @property
    def toolsets(self) -> Sequence[AbstractToolset[Any]]:
        with self.wrapped.override(**self._tools()):
            return list(self.wrapped.toolsets)

    def _tools(self) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if self.profile.tools is not None:
            changed["tools"] = self.profile.tools
        if self.profile.mcp is not None:
            # The agent's own function tools come first; what else it has stays, but for its servers.
            others = [one for one in list(self.wrapped.toolsets)[1:] if not _is_server(one)]
            changed["toolsets"] = [*others, *self.profile.mcp]
        return changed

    async def __aenter__(self) -> AbstractAgent[Any, Any]:
        entered = await self.wrapped.__aenter__()
        for server in self.profile.mcp or ():
            await self._servers.enter_async_context(server)
        return entered

    async def __aexit__(self, *args: Any) -> bool | None:
        await self._servers.aclose()
        return await self.wrapped.__aexit__(*args)

    def iter(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[AgentRun[Any, Any]]:
        """Run the agent under the profile. See `Agent.iter`."""
        return self._iter(*args, **kwargs)

    @asynccontextmanager
    async def _iter(self, *args: Any, **kwargs: Any) -> AsyncGenerator[AgentRun[Any, Any]]:
        changed = self._tools()
        if "toolsets" in changed:
            # An override leaves out the run's own as well.
            changed["toolsets"] += kwargs.pop("toolsets", None) or ()
        if self.profile.instructions is not None:
            changed["instructions"] = self.profile.instructions
        if self.profile.model is not None:
            changed["model"] = self.profile.model
        over = self.profile.model_settings
        if over:
            kwargs["model_settings"] = _beneath(over, kwargs.get("model_settings"))
        with self.wrapped.override(**changed):
            async with self.wrapped.iter(*args, **kwargs) as run:
                yield run


def _beneath(over: Mapping[str, object], settings: Any) -> Any:
    """Settings of a run, with the profile's beneath them and above the agent's."""

    def both(ctx: RunContext[Any]) -> ModelSettings:
        beneath = cast("ModelSettings", {**(ctx.model_settings or {}), **over})
        if not callable(settings):
            return cast("ModelSettings", {**over, **cast("Mapping[str, Any]", settings or {})})
        return cast(
            "ModelSettings", {**over, **cast("Mapping[str, Any]", settings(replace(ctx, model_settings=beneath)) or {})}
        )

    return both


def _is_server(toolset: AbstractToolset[Any]) -> bool:
    found: list[AbstractToolset[Any]] = []
    toolset.apply(found.append)
    return any(isinstance(one, MCPToolset) for one in found)
