"""Profiles: what one call, or all calls of a scope, change about an agent. Framework-neutral.

A profile is given where the call is made and holds on the worker, so its parts are plain values or have names: a model
is one that the framework knows by name, or one that the app has registered; a tool can be imported, or is registered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Protocol, Self, cast

from laneway.activities.hooks import Hooks
from laneway.activities.references import Reference, Registry
from laneway.errors import ConfigurationError
from laneway.history.budget import RequestBudget
from laneway.history.given import check_callable, check_kind, check_text, refused
from laneway.history.scopes import HistoryProcessingSettings, Inherit

__all__ = ["AgentProfile", "ProfileSource", "Profiled", "RunProfile", "merged_run", "unit_of"]


_NO_MODELS: Final = (int, float, bytes, Mapping, Sequence, type)


@dataclass(frozen=True)
class RunProfile:
    """The part of a profile that changes how an agent runs, resolved. None is as the agent has it.

    Attributes:
        model: another model, in place of the agent's.
        model_settings: laid over the agent's, key by key.
        instructions: in place of the agent's.
        tools: function tools, in place of the agent's.
        mcp: tool servers, in place of the agent's.
    """

    model: Any = None
    model_settings: Mapping[str, object] = field(default_factory=dict[str, object])
    instructions: Any = None
    tools: Sequence[Any] | None = None
    mcp: Sequence[Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not self.model_settings and all(
            part is None for part in (self.model, self.instructions, self.tools, self.mcp)
        )


@dataclass(frozen=True)
class AgentProfile:
    """What is different about an agent for a scope or a call. What is left out is as it is outside.

    A profile that changes the lane contract (model, settings, tools, tool servers) has lanes of its own; another one
    for instructions stays on the lane.

    Attributes:
        model: a model's name as the framework knows it, or a model that the app has registered, or its name.
        model_settings: merged into the settings outside, key by key.
        instructions: text, or a function that makes it, in place of the agent's.
        tools: functions (or the framework's tools that the app has registered), in place of the agent's.
        mcp: tool servers that the app has registered, in place of the agent's.
        history_processing: the processor and the condition, as a unit: one that leaves out either has none.
        budget: what a turn's requests may take; it narrows those outside.
        hooks: called after those outside.

    Raises:
        InvalidArgument: one of them is of another type than it has to be.
    """

    model: Any = None
    model_settings: Mapping[str, object] | None = None
    instructions: Any = None
    tools: Sequence[Any] | None = None
    mcp: Sequence[Any] | None = None
    history_processing: HistoryProcessingSettings[Any] | None = None
    budget: RequestBudget | None = None
    hooks: Hooks | None = None

    def __post_init__(self) -> None:
        what = type(self).__name__
        model: object = self.model
        if isinstance(model, _NO_MODELS) and not isinstance(model, str):
            raise refused(f"{what}: model", self.model, "a model's name, or a model that the app has registered")
        if isinstance(self.model, str):
            check_text(f"{what}: model", self.model, give="a model's name")
        check_kind(f"{what}: model_settings", self.model_settings, Mapping, "a dict by the names of the settings")
        _as_json(self.model_settings or {})
        if not isinstance(self.instructions, str):
            check_callable(f"{what}: instructions", self.instructions, "text, or a function that makes it")
        for name, value in (("tools", self.tools), ("mcp", self.mcp)):
            if value is not None and (
                not isinstance(cast("object", value), Sequence) or isinstance(value, str | bytes)
            ):
                raise refused(f"{what}: {name}", value, "a list, or None for the agent's own")
        check_kind(
            f"{what}: history_processing",
            self.history_processing,
            HistoryProcessingSettings,
            "a HistoryProcessingSettings",
        )
        check_kind(f"{what}: budget", self.budget, RequestBudget, "RequestBudget(…), or None for no limit")
        check_kind(f"{what}: hooks", self.hooks, Hooks, "Hooks(…), or None for none")

    @property
    def run(self) -> RunProfile:
        """The part that changes how the agent runs."""
        return RunProfile(self.model, dict(self.model_settings or {}), self.instructions, self.tools, self.mcp)


def merged_run(profiles: Iterable[RunProfile]) -> RunProfile:
    """Profiles as one, outermost first: settings merge by key, everything else is the innermost's that says it."""
    model: Any = None
    settings: dict[str, object] = {}
    instructions: Any = None
    tools: Sequence[Any] | None = None
    mcp: Sequence[Any] | None = None
    for profile in profiles:
        model = model if profile.model is None else profile.model
        settings.update(profile.model_settings)
        instructions = instructions if profile.instructions is None else profile.instructions
        tools = tools if profile.tools is None else profile.tools
        mcp = mcp if profile.mcp is None else profile.mcp
    return RunProfile(model, settings, instructions, tools, mcp)


def unit_of(settings: HistoryProcessingSettings[Any]) -> HistoryProcessingSettings[Any]:
    """Settings as a unit: what they leave out is not inherited."""
    processor = None if isinstance(settings.processor, Inherit) else settings.processor
    condition = None if isinstance(settings.condition, Inherit) else settings.condition
    return HistoryProcessingSettings(processor, condition)


@dataclass(frozen=True)
class ProfileSource:
    """A `RunProfile` with names in place of objects: what is kept with a turn's prompt.

    Attributes:
        data: plain JSON; empty where nothing is changed.
    """

    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """Names it: equal keys, equal profiles. Empty for none."""
        if not self.data:
            return ""
        return blake2b(json.dumps(self.data, sort_keys=True).encode(), digest_size=8).hexdigest()

    @property
    def servers(self) -> str:
        """Names its tool servers; empty for none."""
        return "|".join(self.data.get("x", ()))

    @classmethod
    def of(cls, profile: RunProfile, registry: Registry) -> Self:
        """Capture what a profile refers to.

        Raises:
            ConfigurationError: a part has no name that a worker could find it by, or is no JSON.
        """
        data: dict[str, Any] = {}
        if profile.model is not None:
            data["m"] = _named_or_text(profile.model, registry, what="the profile's model")
        if profile.model_settings:
            data["s"] = _as_json(profile.model_settings)
        if profile.instructions is not None:
            data["i"] = _instructions(profile.instructions, registry)
        if profile.tools is not None:
            data["t"] = [str(registry.capture(tool, what="the profile's tool")) for tool in profile.tools]
        if profile.mcp is not None:
            data["x"] = [str(registry.capture(server, what="the profile's server")) for server in profile.mcp]
        return cls(data)

    def resolved(self, registry: Registry) -> RunProfile:
        """What the names refer to.

        Raises:
            UnknownReference: something of it is not here, or another version of it.
        """
        data = self.data

        def find(text: str, what: str) -> Any:
            return registry.resolve(Reference.parse(text), what=what)

        def one(given: Any, what: str) -> Any:
            return find(cast("dict[str, str]", given)["r"], what) if isinstance(given, dict) else given

        def several(letter: str, what: str) -> Sequence[Any] | None:
            return [find(text, what) for text in data[letter]] if letter in data else None

        return RunProfile(
            model=one(data.get("m"), "the profile's model"),
            model_settings=data.get("s", {}),
            instructions=one(data.get("i"), "the profile's instructions"),
            tools=several("t", "the profile's tool"),
            mcp=several("x", "the profile's server"),
        )


class Profiled(Protocol):
    """An adapter with the capability `profiles`."""

    def with_profile(self, profile: RunProfile) -> Any:
        """The same adapter, whose agent runs under a profile."""
        ...


def _named_or_text(value: object, registry: Registry, *, what: str) -> object:
    if isinstance(value, str) and not registry.has(value):
        return value
    return {"r": str(registry.capture(value, what=what))}


def _instructions(value: object, registry: Registry) -> object:
    return value if isinstance(value, str) else {"r": str(registry.capture(value, what="the profile's instructions"))}


def _as_json(settings: Mapping[str, object]) -> Mapping[str, object]:
    try:
        found: Mapping[str, object] = json.loads(json.dumps(dict(settings)))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the profile's model_settings are no JSON: {error}") from error
    return found
