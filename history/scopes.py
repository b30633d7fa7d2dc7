"""Which processor and which condition are in force: the adapter's, or what a scope inside it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic

from laneway.errors import ConfigurationError
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.dialect import MessageT

__all__ = ["INHERIT", "HistoryProcessingInForce", "HistoryProcessingSettings", "Inherit", "in_force"]


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
    """

    processor: HistoryProcessor[MessageT] | Inherit | None = INHERIT
    condition: HistoryProcessorCondition | Inherit | None = INHERIT


@dataclass(frozen=True)
class HistoryProcessingInForce(Generic[MessageT]):
    """What holds for a request once the scopes are resolved. Without a processor there is no condition."""

    processor: HistoryProcessor[MessageT] | None = None
    condition: HistoryProcessorCondition | None = None


def in_force(scopes: Iterable[HistoryProcessingSettings[MessageT]]) -> HistoryProcessingInForce[MessageT]:
    """Resolve scopes, outermost first (the adapter's own settings are the outermost).

    Raises:
        ConfigurationError: a scope gives a condition where no processor is in force.
    """
    processor: HistoryProcessor[MessageT] | None = None
    condition: HistoryProcessorCondition | None = None
    for scope in scopes:
        if not isinstance(scope.processor, Inherit):
            processor, condition = scope.processor, None
        if not isinstance(scope.condition, Inherit):
            condition = scope.condition
        if condition is not None and processor is None:
            raise ConfigurationError(
                f"history_processor_condition={condition!r} has no history_processor to decide about: "
                "give one in the same scope or outside it, or leave the condition out"
            )
    return HistoryProcessingInForce(processor, condition)
