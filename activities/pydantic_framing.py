"""What a Pydantic AI run's requests carry beside their messages, seen once the framework has prepared one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings

from laneway.activities.framing import FramingMemory
from laneway.activities.pydantic_budget import framing_of

__all__ = ["FramingWatch", "RequestFraming", "is_same_model"]


@dataclass(frozen=True)
class RequestFraming:
    """What a request carried beside its messages."""

    model: Model
    parameters: ModelRequestParameters
    settings: ModelSettings | None

    @property
    def tokens(self) -> int:
        """An estimate of it."""
        return framing_of(self.parameters).total_tokens


class FramingWatch:
    """Remembers what a lane's requests carry. It is no capability by itself: each one costs a run at every hook."""

    def __init__(self, memory: FramingMemory[RequestFraming], lane_id: str) -> None:
        self._memory = memory
        self._lane_id = lane_id

    def see(self, request_context: ModelRequestContext) -> None:
        """Remember what a request carries that is about to be sent."""
        settings = request_context.model_settings
        framing = RequestFraming(
            request_context.model,
            replace(request_context.model_request_parameters),
            None if settings is None else ModelSettings(**settings),
        )
        self._memory.put(self._lane_id, framing)


def is_same_model(one: Model, other: Model) -> bool:
    """Whether two models are one to their provider. Scripts that only share a name are not."""
    if one is other:
        return True
    if isinstance(one, FunctionModel | TestModel):
        return False
    return (type(one), one.model_id, one.base_url) == (type(other), other.model_id, other.base_url)
