"""What the scopes around a call say, on its way to the worker: references and plain values, resolved there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self, cast

from laneway.activities.adapter import Adapter
from laneway.activities.capabilities import Capability, require
from laneway.activities.hooks import ENDINGS, Hooks
from laneway.activities.profiles import ProfileSource
from laneway.activities.references import Reference, Registry
from laneway.activities.scope_in_force import ScopeInForce
from laneway.errors import ConfigurationError
from laneway.history.processors import compose
from laneway.history.scopes import INHERIT, CompactionInForce, HistoryProcessingSettings, Inherit, in_force

__all__ = ["TurnScope", "check_hooks", "check_scope", "processing_of"]

_PROCESSOR = "the history processor"
_CONDITION = "the history condition"
_HOOK = "the hook"


Slot = Inherit | None | tuple[Reference, ...]


@dataclass(frozen=True)
class TurnScope:
    """`ScopeInForce` with references in place of callables: what is kept in Redis with the turn's prompt.

    Attributes:
        processor: the processors, which run in order; None for none; omitted for the adapter's.
        condition: the condition, likewise.
        compaction, is_quiet: see `ScopeInForce`.
        profile: what profiles change about how the agent runs.
        hooks: the scopes' hooks, outermost first, each a `Reference`.
    """

    processor: Slot = INHERIT
    condition: Slot = INHERIT
    compaction: CompactionInForce | None = None
    profile: ProfileSource = field(default_factory=ProfileSource)
    hooks: tuple[Hooks, ...] = ()
    is_quiet: bool = False

    @classmethod
    def of(cls, scope: ScopeInForce, registry: Registry) -> Self:
        """Capture what a scope refers to.

        Raises:
            ConfigurationError: a callable has no name that a worker could find it by.
        """
        return cls(
            processor=_captured(scope.processing.processor, registry, what=_PROCESSOR),
            condition=_captured(scope.processing.condition, registry, what=_CONDITION),
            compaction=scope.compaction,
            profile=ProfileSource.of(scope.run, registry),
            hooks=tuple(layer.with_each(lambda hook: registry.capture(hook, what=_HOOK)) for layer in scope.hooks),
            is_quiet=scope.is_quiet,
        )

    def resolved(self, registry: Registry) -> ScopeInForce:
        """What the references refer to.

        Raises:
            UnknownReference: something of it is not here, or another version of it.
        """
        return ScopeInForce(
            HistoryProcessingSettings(
                _resolved(self.processor, registry, what=_PROCESSOR),
                _resolved(self.condition, registry, what=_CONDITION),
            ),
            self.compaction,
            run=self.profile.resolved(registry),
            hooks=tuple(layer.with_each(lambda hook: registry.resolve(hook, what=_HOOK)) for layer in self.hooks),
            is_quiet=self.is_quiet,
        )

    def to_data(self) -> Mapping[str, object]:
        """The stored form: what is left out is not in it."""
        data: dict[str, object] = {}
        for name, slot in (("p", self.processor), ("c", self.condition)):
            if not isinstance(slot, Inherit):
                data[name] = None if slot is None else [str(reference) for reference in slot]
        if self.compaction is not None:
            data["n"] = self.compaction.threshold or 0
        if self.profile.data:
            data["f"] = self.profile.data
        if self.hooks:
            data["h"] = [
                [layer.timeout.total_seconds(), {name: [str(one) for one in layer.of(name)] for name in layer.names}]
                for layer in self.hooks
            ]
        if self.is_quiet:
            data["q"] = 1
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` gives."""

        def slot(name: str) -> Slot:
            if name not in data:
                return INHERIT
            return None if data[name] is None else tuple(map(Reference.parse, data[name]))

        compaction = CompactionInForce(data["n"] or None) if "n" in data else None
        hooks = tuple(_hooks_of(seconds, by) for seconds, by in data.get("h", ()))
        return cls(slot("p"), slot("c"), compaction, ProfileSource(data.get("f", {})), hooks, bool(data.get("q")))


def _hooks_of(seconds: float, references: Mapping[str, Sequence[str]]) -> Hooks:
    found: dict[str, Any] = {name: tuple(map(Reference.parse, texts)) for name, texts in references.items()}
    return Hooks(**found, timeout=timedelta(seconds=seconds))


def check_scope(adapter: Adapter[Any], scope: ScopeInForce, *, agent: str) -> None:
    """Refuse what does not fit an agent, before anything is sent.

    Raises:
        UnsupportedCapability: its adapter cannot do it.
        ConfigurationError: there is a condition, and no processor for it.
    """
    given = (scope.processing.processor, scope.processing.condition)
    if any(value is not None and not isinstance(value, Inherit) for value in given):
        require(adapter, "history_processing", agent=agent, what="history(processor=…, processor_condition=…)")
    if scope.compaction is not None:
        require(adapter, "native_compaction", agent=agent, what="history(compaction_mode='native')")
    if not scope.run.is_empty:
        require(adapter, "profiles", agent=agent, what="AgentProfile(model=…, tools=…)")
    for layer in scope.hooks:
        check_hooks(adapter, layer, agent=agent)
    in_force([processing_of(adapter), scope.processing])


def check_hooks(adapter: Adapter[Any], hooks: Hooks, *, agent: str) -> None:
    """Refuse hooks that an agent's adapter would never call.

    Raises:
        UnsupportedCapability: its adapter cannot do it.
    """
    for name in sorted(hooks.names - ENDINGS - {"user_prompt_submit"}):
        needed: Capability = "tool_hooks" if name in ("before_tool", "after_tool") else "hooks"
        require(adapter, needed, agent=agent, what=f"the hook {name}")


def processing_of(adapter: Adapter[Any]) -> HistoryProcessingSettings[Any]:
    """An adapter's own history processing, which every scope is inside of."""
    own: HistoryProcessingSettings[Any] = getattr(adapter, "processing", HistoryProcessingSettings())
    return own


def _captured(value: object, registry: Registry, *, what: str) -> Slot:
    if isinstance(value, Inherit) or value is None:
        return value
    several = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    if not several:
        raise ConfigurationError(f"{what} is an empty list: give at least one, or None for none")
    return tuple(registry.capture(one, what=what) for one in several)


def _resolved(slot: Slot, registry: Registry, *, what: str) -> Any:
    if isinstance(slot, Inherit) or slot is None:
        return slot
    found: list[Callable[..., Any]] = [registry.resolve(reference, what=what) for reference in slot]
    return found[0] if len(found) == 1 else compose(*found)
