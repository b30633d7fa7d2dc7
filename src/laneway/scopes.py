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
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.turn_scope import TurnScope, check_scope
from laneway.errors import ConfigurationError
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
    from laneway.client import Conversation, LanewayClient

__all__ = ["Scope", "ScopeSettings", "frames_of", "options_here", "scope_in_force", "where"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ScopeSettings:
    """What one scope says; what it leaves out is as it is outside.

    Attributes:
        conversation_id: the conversation that calls use which name none.
        enabled: whether they use one at all.
        processing, compaction: see there.
    """

    conversation_id: str | Inherit = INHERIT
    enabled: bool | Inherit = INHERIT
    processing: HistoryProcessingSettings[Any] = field(default_factory=HistoryProcessingSettings[Any])
    compaction: CompactionSettings = field(default_factory=CompactionSettings)


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
        processing=combined(layer.processing for layer in layers),
        compaction=combined_compaction(layer.compaction for layer in layers),
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


def options_here(client: object, agents: Agents, agent: str) -> TurnOptions:
    """What the scopes around a call ask for, checked against what the agent can do here.

    Raises:
        UnknownAgent: no agent of that name is registered.
        ConfigurationError: the settings do not fit each other or the agent, or a worker could not find a callable.
    """
    scope = scope_in_force([frame.settings for frame in frames_of(client)])
    check_scope(agents[agent], scope, agent=agent)
    return TurnOptions(scope=TurnScope.of(scope, agents.registry).to_data())
