"""Spans of a graph's model requests and tool calls, under the names that OpenTelemetry has for generative AI.

LangChain has no instrumentation of its own, where Pydantic AI has one; what it has are callbacks. Parents are found by
the runs' ids rather than by what is current: callbacks are called in tasks and threads that end before their runs do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from laneway.activities.telemetry import StepTelemetry
from laneway.history.stored_json import any_json, kind_of

__all__ = ["GraphSpans"]

_ROLES: Final[Sequence[tuple[type[BaseMessage], str]]] = (
    (SystemMessage, "system"),
    (HumanMessage, "user"),
    (AIMessage, "assistant"),
    (ToolMessage, "tool"),
)
_SETTINGS: Final[Mapping[str, str]] = {
    "ls_temperature": "gen_ai.request.temperature",
    "ls_max_tokens": "gen_ai.request.max_tokens",
}


class GraphSpans(BaseCallbackHandler):
    """Makes a span of each model request and of each tool call of a superstep, beneath the step's.

    A request that is stopped before it is sent has none.

    Args:
        telemetry: the step's.
    """

    run_inline = True
    """So that spans begin and end when their runs do."""

    def __init__(self, telemetry: StepTelemetry) -> None:
        super().__init__()
        self._telemetry = telemetry
        self._tracer = telemetry.instruments.tracer
        self._content = telemetry.instruments.telemetry.include_content
        self._place = {
            name: value
            for name, value in telemetry.attributes.items()
            if name in ("gen_ai.agent.name", "gen_ai.conversation.id")
        }
        self._step = otel_context.get_current()
        # Of each run that has begun: what is beneath it, and its span, where it has one.
        self._contexts: dict[UUID, Context] = {}
        self._spans: dict[UUID, tuple[Span, dict[str, Any], float]] = {}

    # What LangChain calls ---------------------------------------------------------------------------------------------

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._contexts[run_id] = self._above(parent_run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._contexts.pop(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._contexts.pop(run_id, None)

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        known = metadata or {}
        model = str(known.get("ls_model_name") or kwargs.get("name") or "model")
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        if provider := known.get("ls_provider"):
            attributes["gen_ai.provider.name"] = str(provider)
        more = {name: known[key] for key, name in _SETTINGS.items() if isinstance(known.get(key), int | float)}
        if self._content:
            more["gen_ai.input.messages"] = _as_json([one for request in messages for one in request])
        self._begin(f"chat {model}", run_id, parent_run_id, attributes, more, kind=SpanKind.CLIENT)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        answers = [
            generation.message
            for generations in response.generations
            for generation in generations
            if isinstance(generation, ChatGeneration)
        ]
        told: dict[str, Any] = {}
        for answer in answers:
            if isinstance(answer, AIMessage):
                told |= _told_by(answer)
        if self._content:
            told["gen_ai.output.messages"] = _as_json(answers)
        self._end(run_id, told)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, {}, error)

    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: Any = None,
        **kwargs: Any,
    ) -> None:
        tool = str(cast("Mapping[str, Any]", serialized or {}).get("name") or kwargs.get("name") or "tool")
        attributes: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        if call_id := kwargs.get("tool_call_id"):
            attributes["gen_ai.tool.call.id"] = str(call_id)
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = _text(inputs or input_str)
        self._begin(f"execute_tool {tool}", run_id, parent_run_id, attributes, {}, kind=SpanKind.INTERNAL)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        failed = isinstance(output, ToolMessage) and output.status == "error"
        content = cast("object", output.content if isinstance(output, ToolMessage) else output)
        told = {"gen_ai.tool.call.result": _text(content)} if self._content else {}
        self._end(run_id, told, failed="tool_error" if failed else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        # An interrupt is none: the call is made again when it is answered.
        self._end(run_id, {}, None if isinstance(error, GraphBubbleUp) else error)

    # Spans ------------------------------------------------------------------------------------------------------------

    def _above(self, parent: UUID | None) -> Context:
        return self._step if parent is None else self._contexts.get(parent, self._step)

    def _begin(
        self,
        name: str,
        run_id: UUID,
        parent: UUID | None,
        attributes: dict[str, Any],
        more: Mapping[str, Any],
        *,
        kind: SpanKind,
    ) -> None:
        above = self._above(parent)
        span = self._tracer.start_span(name, context=above, kind=kind, attributes={**self._place, **attributes, **more})
        self._contexts[run_id] = trace.set_span_in_context(span, above)
        self._spans[run_id] = span, attributes, time.monotonic()

    def _end(
        self, run_id: UUID, told: Mapping[str, Any], error: BaseException | None = None, *, failed: str | None = None
    ) -> None:
        self._contexts.pop(run_id, None)
        begun = self._spans.pop(run_id, None)
        if begun is None:
            return
        span, attributes, started = begun
        span.set_attributes(told)
        # The type only: what it says may hold what was sent.
        failed = type(error).__name__ if error is not None else failed
        if failed is not None:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR, failed))
        span.end()
        if attributes["gen_ai.operation.name"] == "chat":
            if failed is not None:
                attributes = {**attributes, "error.type": failed}
            self._telemetry.instruments.asked(
                time.monotonic() - started,
                attributes,
                input_tokens=told.get("gen_ai.usage.input_tokens", 0),
                output_tokens=told.get("gen_ai.usage.output_tokens", 0),
            )


def _told_by(answer: AIMessage) -> dict[str, Any]:
    """What a model's answer says of itself."""
    told: dict[str, Any] = {}
    known: Mapping[str, Any] = answer.response_metadata
    if usage := answer.usage_metadata:
        told["gen_ai.usage.input_tokens"] = usage["input_tokens"]
        told["gen_ai.usage.output_tokens"] = usage["output_tokens"]
    if model := known.get("model_name") or known.get("model"):
        told["gen_ai.response.model"] = str(model)
    if response_id := known.get("id"):
        told["gen_ai.response.id"] = str(response_id)
    if reason := known.get("finish_reason") or known.get("stop_reason"):
        told["gen_ai.response.finish_reasons"] = [str(reason)]
    return told


def _as_json(messages: Iterable[BaseMessage]) -> str:
    """Messages in the form that OpenTelemetry has for them."""
    return _text([{"role": _role(message), "parts": _parts(message)} for message in messages])


def _role(message: BaseMessage) -> str:
    return next((role for kind, role in _ROLES if isinstance(message, kind)), message.type)


def _parts(message: BaseMessage) -> list[dict[str, object]]:
    if isinstance(message, ToolMessage):
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": cast("object", message.content)}]
    parts: list[dict[str, object]] = [{"type": "text", "content": str(message.text)}] if message.text else []
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return parts + [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]} for call in calls
    ]


def _text(value: object) -> str:
    return any_json(value, fallback=kind_of).decode()
