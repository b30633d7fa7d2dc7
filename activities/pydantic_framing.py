"""What a lane's requests carried beside their messages, remembered while the worker lives.

A summary that is asked of the conversation's own model finds its messages cached at the provider only if what comes
before them is the same: tools, instructions, settings. They are known once the framework has prepared a request, and
are no data: a worker that has not seen the lane asks without them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from laneway.activities.pydantic_budget import framing_of

__all__ = ["FramingMemory", "FramingWatch", "RequestFraming", "is_same_model"]

_MAX_LANES: Final = 1000


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


class FramingMemory:
    """The framing of each lane's last request, of the lanes that were used last."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, RequestFraming] = OrderedDict()

    def get(self, lane_id: str) -> RequestFraming | None:
        """What a lane's last request carried; None where this worker has seen none."""
        return self._held.get(lane_id)

    def put(self, lane_id: str, framing: RequestFraming) -> None:
        """Remember it."""
        self._held[lane_id] = framing
        self._held.move_to_end(lane_id)
        if len(self._held) > _MAX_LANES:
            self._held.popitem(last=False)


class FramingWatch(AbstractCapability[Any]):
    """Remembers what a lane's requests carry."""

    def __init__(self, memory: FramingMemory, lane_id: str) -> None:
        super().__init__()
        self._memory = memory
        self._lane_id = lane_id

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        settings = request_context.model_settings
        framing = RequestFraming(
            request_context.model,
            replace(request_context.model_request_parameters),
            None if settings is None else ModelSettings(**settings),
        )
        self._memory.put(self._lane_id, framing)
        return request_context


def is_same_model(one: Model, other: Model) -> bool:
    """Whether two models are one to their provider. Scripts that only share a name are not."""
    if one is other:
        return True
    if isinstance(one, FunctionModel | TestModel):
        return False
    return (type(one), one.model_id, one.base_url) == (type(other), other.model_id, other.base_url)
