"""Scopes: how a program says, where it is written, which history its calls use and what edits it.

A scope holds for the code inside its `async with` block, or inside the function that it decorates: for tasks that begin
there too, and for nobody else. What is in force is a chain of frames in a context variable, each frame immutable; a
task that is started inherits the chain as it is then.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import uuid4

from laneway.activities.agents import Agents
from laneway.activities.hooks import Hooks
from laneway.activities.profiles import AgentProfile, ProfileSource, merged_run, unit_of
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.turn_hooks import inside_hook
from laneway.activities.turn_scope import TurnScope, check_scope
from laneway.errors import ConfigurationError
from laneway.history.budget import RequestBudget
from laneway.history.options import TurnOptions
from laneway.history.scopes import (
    INHERIT,
    CompactionSettings,
    HistoryProcessingSettings,
    Inherit,
    combined,
    combined_compaction,
)

if TYPE_CHECKING:
    from laneway.client import LanewayClient
    from laneway.conversations import Conversation

__all__ = ["Call", "Scope", "ScopeSettings", "call_here", "frames_of", "profile_here", "scope_in_force", "where"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ScopeSettings:
    """What one scope says; what it leaves out is as it is outside.

    Attributes:
        conversation_id: the conversation that calls use which name none.
        enabled: whether they use one at all.
        processing, compaction, profile: see there; what it says itself goes before what its profile says.
        hooks: called after those outside.
    """

    conversation_id: str | Inherit = INHERIT
    enabled: bool | Inherit = INHERIT
    processing: HistoryProcessingSettings[Any] = field(default_factory=HistoryProcessingSettings[Any])
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    profile: AgentProfile | None = None
    hooks: Hooks | None = None

    @property
    def all_processing(self) -> Iterator[HistoryProcessingSettings[Any]]:
        """What its profile says about history processing, and inside of that what it says itself."""
        if self.profile is not None and self.profile.history_processing is not None:
            yield unit_of(self.profile.history_processing)
        yield self.processing

    @property
    def all_hooks(self) -> Iterator[Hooks]:
        """Its profile's hooks, and its own."""
        if self.profile is not None and self.profile.hooks is not None:
            yield self.profile.hooks
        if self.hooks is not None:
            yield self.hooks


@dataclass(frozen=True)
class Frame:
    """A scope that was entered.

    Attributes:
        client: whose calls it is about.
        settings: what it says.
        enabled: whether calls use a conversation; None where no scope has said.
        conversation_id: the conversation that is used inside; None where none is.
        outer: the frame around it.
        scope: the object that entered it.
    """

    client: object
    settings: ScopeSettings
    enabled: bool | None
    conversation_id: str | None
    outer: Frame | None
    scope: object


_innermost: ContextVar[Frame | None] = ContextVar("laneway_scope", default=None)


def frames_of(client: object) -> list[Frame]:
    """The scopes around this code that are about a client's calls, outermost first."""
    return list(_around(client))[::-1]


def _around(client: object) -> Iterator[Frame]:
    frame = _innermost.get()
    while frame is not None:
        if frame.client is client:
            yield frame
        frame = frame.outer


def where(client: object) -> str | None:
    """The conversation that a client's calls use here where they name none; None for no history."""
    frame = next(_around(client), None)
    return None if frame is None else frame.conversation_id


def scope_in_force(layers: list[ScopeSettings]) -> ScopeInForce:
    """What scopes come to, outermost first.

    Raises:
        ConfigurationError: their settings do not fit each other.
    """
    return ScopeInForce(
        processing=combined(said for layer in layers for said in layer.all_processing),
        compaction=combined_compaction(layer.compaction for layer in layers),
        run=merged_run(layer.profile.run for layer in layers if layer.profile is not None),
        hooks=() if inside_hook() else tuple(hooks for layer in layers for hooks in layer.all_hooks),
        is_quiet=inside_hook(),
    )


class Scope:
    """A scope to enter, any number of times and from any number of tasks at once. Made by `LanewayClient.history`.

    As a decorator it is entered for each call of the function.
    """

    def __init__(self, client: LanewayClient, settings: ScopeSettings, *, opens_history: bool = True) -> None:
        self._client = client
        self._settings = settings
        self._opens_history = opens_history

    async def __aenter__(self) -> Conversation:
        outer = next(_around(self._client), None)
        enabled = self._enabled(outer)
        _innermost.set(
            Frame(
                client=self._client,
                settings=self._settings,
                enabled=enabled,
                conversation_id=self._conversation(outer) if enabled else None,
                outer=_innermost.get(),
                scope=self,
            )
        )
        return self._client.current

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame = _innermost.get()
        while frame is not None and frame.scope is not self:
            frame = frame.outer
        if frame is not None:
            _innermost.set(frame.outer)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Enter the scope for each call of an async function.

        Raises:
            ConfigurationError: it is none.
        """
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{function!r} is no async function: a scope decorates `async def`; elsewhere use `async with`"
            )

        @functools.wraps(function)
        async def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return inside

    def _enabled(self, outer: Frame | None) -> bool | None:
        said, outside = self._settings, None if outer is None else outer.enabled
        if not isinstance(said.enabled, Inherit):
            return said.enabled
        if not isinstance(said.conversation_id, Inherit):
            return True
        return True if outside is None and self._opens_history else outside

    def _conversation(self, outer: Frame | None) -> str:
        if not isinstance(self._settings.conversation_id, Inherit):
            return self._settings.conversation_id
        inherited = None if outer is None else outer.conversation_id
        return inherited or uuid4().hex


@dataclass(frozen=True)
class Call:
    """What goes with a turn that is submitted here.

    Attributes:
        scope: what the scopes around the call say, captured.
        budget: what their profiles say about the turn's budget.
    """

    scope: TurnScope
    budget: RequestBudget

    @property
    def options(self) -> TurnOptions:
        """What is kept with the turn's prompt."""
        return TurnOptions(self.budget, scope=self.scope.to_data())


def call_here(client: object, agents: Agents, agent: str, *, profile: AgentProfile | None = None) -> Call:
    """What the scopes around a call ask for, checked against what the agent can do here.

    Args:
        client: whose call it is.
        agents: its agents.
        agent: which of them is called.
        profile: the call's own, inside of all scopes.

    Raises:
        UnknownAgent: no agent of that name is registered.
        ConfigurationError: the settings do not fit each other or the agent, or a worker could not find a callable.
    """
    layers = _layers(client, profile)
    scope = scope_in_force(layers)
    captured = TurnScope.of(scope, agents.registry)
    check_scope(agents.under(agent, captured.profile), scope, agent=agent)
    budget = RequestBudget()
    for layer in layers:
        budget = budget.narrowed(None if layer.profile is None else layer.profile.budget)
    return Call(captured, budget)


def profile_here(client: object, agents: Agents, profile: AgentProfile | None = None) -> ProfileSource:
    """What the profiles around a call change about how an agent runs."""
    run = merged_run(layer.profile.run for layer in _layers(client, profile) if layer.profile is not None)
    return ProfileSource.of(run, agents.registry)


def _layers(client: object, profile: AgentProfile | None) -> list[ScopeSettings]:
    layers = [frame.settings for frame in frames_of(client)]
    return layers if profile is None else [*layers, ScopeSettings(profile=profile)]
