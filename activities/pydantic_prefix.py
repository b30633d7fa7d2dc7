"""What comes before every message, watched for the models that tie their reasoning to it.

The hard fact: instructions and tool definitions are no history and can change with every deploy, and newer Claude
models refuse, for good, reasoning that was signed under others. What a request will carry is known only once the
framework has prepared it. Its hook for that is also the last place where the history can still be changed, so the
comparison and the release are there, after the hooks of everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, cast

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.tools import RunContext

from laneway.activities.pydantic_editing import DIALECT, request_of, ties_reasoning
from laneway.activities.pydantic_growth import Growth
from laneway.errors import HistoryProcessingValidationError
from laneway.history.editing import EditOutcome
from laneway.history.prefix import RELEASE, release_reasoning
from laneway.history.stored_json import any_json

__all__ = ["PrefixWatch", "prefix_of"]


def prefix_of(parameters: ModelRequestParameters) -> str:
    """Digests of what a request carries before its messages: of what only a deploy changes, and of everything.

    Tools that joined a run under way are left out: the framework adds them to the messages.
    """
    parts = parameters.instruction_parts or []
    tools = [
        [tool.name, tool.description, tool.parameters_json_schema, tool.strict, tool.defer_loading]
        for tool in (*parameters.function_tools, *parameters.output_tools)
        if tool.name not in parameters.introduced_tool_names
    ]
    steady = [[part.content for part in parts if not part.dynamic], tools, parameters.native_tools]
    everything = [[part.content for part in parts], steady]
    return ":".join(blake2b(any_json(value), digest_size=8).hexdigest() for value in (steady, everything))


class PrefixWatch(AbstractCapability[Any]):
    """Releases reasoning of finished cycles that what is sent before the messages no longer fits.

    In the cycle that runs, a change of what only a deploy changes is refused. Instructions that a function makes may
    differ with each request by the agent's own design: there the provider judges, as in a run without Laneway.

    Attributes:
        growth: the step's; set before it asks a model.
    """

    def __init__(self, owner: object) -> None:
        super().__init__()
        self.growth: Growth | None = None
        self._owner = owner
        self._is_stale = False
        self._keep_open = False

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        growth = self.growth
        if growth is None or not ties_reasoning(request_context.model):
            return request_context
        now = prefix_of(request_context.model_request_parameters)
        if not self._is_stale:
            # Another attempt at the request begins from the same messages, so what was found stale stays stale.
            before = growth.prefix
            self._is_stale = before not in (None, now) or growth.is_written_anew(ctx.messages)
            self._keep_open = before is None or _steady(before) == _steady(now)
        growth.prefix = now
        if self._is_stale and not _asks_to_drop(request_context.model_settings):
            model, step = request_context.model, ctx.run_step
            kept = growth.release(self._released(growth, model, step, ctx.messages))
            if kept is not None:
                ctx.messages[:] = kept
            request_context.messages = list(self._released(growth, model, step, request_context.messages).messages)
            if any(DIALECT.bound_reasoning(message) for message in ctx.messages):
                growth.prefix = f"{now}:kept"  # the open cycle's, to be released when it is closed
        return request_context

    def _released(
        self, growth: Growth, model: Model, request_index: int, messages: list[ModelMessage]
    ) -> EditOutcome[ModelMessage]:
        request = request_of(
            growth.work,
            owner=self._owner,
            model=model,
            messages=messages,
            entries=growth.known(messages),
            request_index=request_index,
        )
        try:
            return release_reasoning(DIALECT, request, name=RELEASE, keep_open=self._keep_open)
        except HistoryProcessingValidationError as error:
            raise HistoryProcessingValidationError(
                "the instructions or tools are not those that this turn began with, and the model ties the reasoning "
                f"of message {error.index} to them: submit the turn again, or have the provider drop the reasoning: "
                "anthropic_thinking={'type': 'adaptive', 'block_binding': {'prefix_mismatch_behavior': 'drop_block'}}",
                rule=error.rule,
                index=error.index,
            ) from error


def _steady(prefix: str) -> str:
    return prefix.partition(":")[0]


def _asks_to_drop(settings: Mapping[str, Any] | None) -> bool:
    """Whether the caller has the provider drop what no longer fits."""
    thinking = cast("Mapping[str, Any]", (settings or {}).get("anthropic_thinking") or {})
    binding = cast("Mapping[str, Any]", thinking.get("block_binding") or {})
    return binding.get("prefix_mismatch_behavior") == "drop_block"
