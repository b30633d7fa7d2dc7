"""Agents whose tools wait for people and other systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, CallDeferred, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.usage import RequestUsage

from laneway import PydanticAdapter, deny

USAGE = RequestUsage(input_tokens=1, output_tokens=1)


def results_in(messages: Sequence[ModelMessage]) -> list[tuple[str, str, str]]:
    """The tool results in a history: tool, outcome, content."""
    return [
        (part.tool_name, part.outcome, str(part.content))
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


@dataclass
class Office:
    """An agent that makes the tool calls that a prompt names, all in one response, and then says that it is done.

    A prompt is `tool(argument) tool(argument) …`: `send` is approved by its decorator, `pay` asks by itself where the
    amount is over ten, `measure` is external, `order` defers itself once it has noted that it was called, `plain` is a
    tool like any other, `hurried` has an hour… or `timeout` seconds, and a default answer.

    Attributes:
        ran: the tools' calls that came to their end.
        asked: how many requests the model got.
    """

    ran: list[str] = field(default_factory=list[str])
    asked: int = 0
    timeout: float = 3600.0

    def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        last = messages[-1].parts[-1]
        if not isinstance(last, UserPromptPart):
            return ModelResponse([TextPart("done")], usage=USAGE)
        calls: list[Any] = []
        for number, call in enumerate(str(last.content).split()):
            name, _, argument = call.rstrip(")").partition("(")
            calls.append(ToolCallPart(name, {"what": argument}, f"{name}-{number}"))
        return ModelResponse(calls, usage=USAGE)

    def adapter(self, **options: Any) -> PydanticAdapter[None, Any]:
        external = ToolDefinition(
            name="measure",
            parameters_json_schema={"type": "object", "properties": {"what": {"type": "string"}}},
            return_schema={"type": "number"},
        )
        agent = Agent(
            FunctionModel(self._model, model_name="office"), toolsets=[ExternalToolset([external])], **options
        )

        @agent.tool_plain(requires_approval=True)
        def send(what: str) -> str:
            self.ran.append(f"send {what}")
            return f"sent {what}"

        @agent.tool
        def pay(ctx: RunContext[None], what: int) -> str:
            if what > 10 and not ctx.tool_call_approved:
                raise ApprovalRequired({"why": "it is much"})
            self.ran.append(f"pay {what}")
            if what > 100:
                raise CallDeferred
            return f"paid {what}"

        @agent.tool_plain
        def order(what: str) -> str:
            self.ran.append(f"order {what}")
            raise CallDeferred({"job": what})

        @agent.tool_plain
        def ask(what: str) -> dict[str, Any]:
            raise CallDeferred(kind="question")

        @agent.tool_plain
        def plain(what: str) -> str:
            self.ran.append(f"plain {what}")
            return f"did {what}"

        @agent.tool_plain(
            requires_approval=True,
            metadata={"answer_timeout": self.timeout, "default_answer": deny("nobody answered")},
        )
        def hurried(what: str) -> str:
            self.ran.append(f"hurried {what}")
            return f"hurried {what}"

        return PydanticAdapter(agent)
