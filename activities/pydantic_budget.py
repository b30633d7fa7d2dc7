"""How large a request of a Pydantic AI run is as a whole, and whether it may be sent.

What a request carries beside its messages is known only once the framework has prepared it, and its hook for that is
the last place before the provider, so the budget is asked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.tools import RunContext, ToolDefinition

from laneway.activities.account import TurnAccount
from laneway.activities.pydantic_editing import measured
from laneway.activities.pydantic_growth import Growth
from laneway.history.budget import Framing, RequestEstimate
from laneway.history.estimation import estimate_text
from laneway.history.stored_json import any_json

__all__ = ["BudgetGate", "framing_of"]


class BudgetGate(AbstractCapability[Any]):
    """Has each model request counted before it is sent.

    Attributes:
        growth: the step's; set before it asks a model.
    """

    def __init__(self, account: TurnAccount) -> None:
        super().__init__()
        self.growth: Growth | None = None
        self._account = account

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        growth = self.growth
        if growth is not None:
            estimate = self._estimate(growth, request_context) if self._account.measures_tokens else None
            await self._account.request(estimate)
        return request_context

    def _estimate(self, growth: Growth, request_context: ModelRequestContext) -> RequestEstimate:
        messages = request_context.messages
        entries = growth.known(messages)
        framing = framing_of(request_context.model_request_parameters)
        settings = cast("Mapping[str, object]", request_context.model_settings or {})
        output = settings.get("max_tokens")
        estimate = measured(messages, entries, growth.continuity.live).framed(
            framing,
            new_tokens=entries[-1].estimated_tokens or 0,
            measured_framing_tokens=growth.framing,
            reserved_tokens=output if isinstance(output, int) else 0,
        )
        growth.framing = framing.total_tokens
        return estimate


def framing_of(parameters: ModelRequestParameters) -> Framing:
    """What a request carries beside its messages, as its provider will count it."""
    output = parameters.output_object
    schema = () if output is None else (_tokens([output.name, output.description, output.json_schema]),)
    return Framing(
        instructions_tokens=sum(estimate_text(part.content) for part in parameters.instruction_parts or ()),
        tools_tokens=_tools(parameters.function_tools) + sum(map(_tokens, parameters.native_tools)),
        output_schema_tokens=_tools(parameters.output_tools) + sum(schema),
    )


def _tools(tools: Iterable[ToolDefinition]) -> int:
    return sum(_tokens([tool.name, tool.description, tool.parameters_json_schema]) for tool in tools)


def _tokens(value: object) -> int:
    return estimate_text(any_json(value).decode())
