"""What scopes say about history: whose processor and condition are in force, and whether the provider compacts.

Pure: a scope is a set of settings, each omitted, None or a value, and what holds inside is folded from those around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Literal, cast

from laneway.errors import ConfigurationError
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.dialect import MessageT
from laneway.history.given import check_count, is_function, listed, refused

__all__ = [
    "INHERIT",
    "CompactionInForce",
    "CompactionMode",
    "CompactionSettings",
    "HistoryProcessingInForce",
    "HistoryProcessingSettings",
    "Inherit",
    "combined",
    "combined_compaction",
    "in_force",
]

CompactionMode = Literal["native", "disabled"]
"""`native`: the model's provider compacts the history by itself; `disabled`: it does not."""


class Inherit(Enum):
    """Tells "not given" from an explicit None, which switches off."""

    INHERIT = "inherit"

    def __repr__(self) -> str:
        return "INHERIT"


INHERIT: Final = Inherit.INHERIT


@dataclass(frozen=True)
class HistoryProcessingSettings(Generic[MessageT]):
    """What one scope says about history processing.

    Attributes:
        processor: a processor; None for none in this scope; omitted, the one outside is inherited.
        condition: a condition; None for none; omitted, the inherited processor keeps its own, and a processor that is
            given here is unconditional.

    In a scope or a profile, either may be the name under which it is registered, and there may be a list of processors.

    Raises:
        InvalidArgument: one of them is no such thing.
    """

    processor: HistoryProcessor[MessageT] | Inherit | None = INHERIT
    condition: HistoryProcessorCondition | Inherit | None = INHERIT

    def __post_init__(self) -> None:
        processor: object = self.processor
        give = "a function, its registered name, a list of these, or None for none"
        if isinstance(processor, list | tuple):
            several = cast("list[object]", processor)
            if not listed("history processor", several, give, is_one=_is_named):
                raise refused("history processor", several, give)
        elif processor is not None and not isinstance(processor, Inherit) and not _is_named(processor):
            raise refused("history processor", processor, give)
        condition: object = self.condition
        if condition is not None and not isinstance(condition, Inherit) and not _is_named(condition):
            raise refused("history processor condition", condition, "a function, its registered name, or None for none")


def _is_named(value: object) -> bool:
    return is_function(value) or (isinstance(value, str) and bool(value.strip()))


@dataclass(frozen=True)
class HistoryProcessingInForce(Generic[MessageT]):
    """What holds for a request once the scopes are resolved. Without a processor there is no condition."""

    processor: HistoryProcessor[MessageT] | None = None
    condition: HistoryProcessorCondition | None = None


def combined(scopes: Iterable[HistoryProcessingSettings[MessageT]]) -> HistoryProcessingSettings[MessageT]:
    """Scopes as one, outermost first: what it leaves out is left out by all of them.

    It may be given in their place wherever they stand, so a nest can be folded before what is around it is known.
    """
    processor: HistoryProcessor[MessageT] | Inherit | None = INHERIT
    condition: HistoryProcessorCondition | Inherit | None = INHERIT
    for scope in scopes:
        if not isinstance(scope.processor, Inherit):
            processor, condition = scope.processor, None
        if not isinstance(scope.condition, Inherit):
            condition = scope.condition
    return HistoryProcessingSettings(processor, condition)


def in_force(scopes: Iterable[HistoryProcessingSettings[MessageT]]) -> HistoryProcessingInForce[MessageT]:
    """Resolve scopes, outermost first (the adapter's own settings are the outermost).

    Raises:
        ConfigurationError: what they come to is a condition without a processor.
    """
    whole = combined(scopes)
    processor = None if isinstance(whole.processor, Inherit) else whole.processor
    condition = None if isinstance(whole.condition, Inherit) else whole.condition
    if condition is not None and processor is None:
        raise ConfigurationError(
            f"history_processor_condition={condition!r} has no history_processor to decide about: "
            "give one in the same scope or outside it, or leave the condition out"
        )
    return HistoryProcessingInForce(processor, condition)


@dataclass(frozen=True)
class CompactionSettings:
    """What one scope says about the provider's own compaction.

    Attributes:
        mode: see `CompactionMode`; None is `disabled`; omitted, the one outside is inherited.
        threshold: from how many input tokens on; None for the provider's own figure; omitted, the inherited mode keeps
            its own, and a mode that is given here has none.
    """

    mode: CompactionMode | Inherit | None = INHERIT
    threshold: int | Inherit | None = INHERIT

    def __post_init__(self) -> None:
        if not isinstance(self.mode, Inherit) and self.mode not in (None, "native", "disabled"):
            raise refused("compaction_mode", self.mode, "'native', 'disabled' or None")
        if not isinstance(self.threshold, Inherit) and self.threshold is not None:
            check_count("compaction_threshold", self.threshold, least=1, give="a positive number of input tokens")


@dataclass(frozen=True)
class CompactionInForce:
    """The provider compacts the history.

    Attributes:
        threshold: from how many input tokens on; None for the provider's own figure.
    """

    threshold: int | None = None


def combined_compaction(scopes: Iterable[CompactionSettings]) -> CompactionInForce | None:
    """Resolve scopes, outermost first. None where nothing is to be compacted.

    Raises:
        ConfigurationError: there is a threshold and no compaction.
    """
    mode: CompactionMode | None = None
    threshold: int | None = None
    for scope in scopes:
        if not isinstance(scope.mode, Inherit):
            mode, threshold = scope.mode, None
        if not isinstance(scope.threshold, Inherit):
            threshold = scope.threshold
    if mode == "native":
        return CompactionInForce(threshold)
    if threshold is not None:
        raise ConfigurationError(
            f"compaction_threshold={threshold} is given and compaction is {mode or 'disabled'!r}: give "
            "compaction_mode='native' with it, or leave it out"
        )
    return None
