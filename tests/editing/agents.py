"""A scripted agent that remembers what it was sent, and processors to edit its history."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import HistoryProcessorContext, PydanticAdapter

USAGE = RequestUsage(input_tokens=10, output_tokens=5)


def texts_of(messages: list[ModelMessage]) -> list[str]:
    """Every text and tool result of a history, in order."""
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content) | ToolReturnPart(content=content):
                    found.append(str(content))
                case TextPart(content=content):
                    found.append(content)
                case ToolCallPart(tool_name=name):
                    found.append(f"{name}()")
                case _:
                    found.append(type(part).__name__)
    return found


@dataclass
class Recorder:
    """An agent whose model answers `re: <prompt>`, first calling the tool `look` as often as the prompt says `look`.

    Attributes:
        sent: the texts of each request that reached the model.
    """

    sent: list[list[str]] = field(default_factory=list[list[str]])
    fails: set[str] = field(default_factory=set[str])

    def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(texts_of(messages))
        start = max(i for i, m in enumerate(messages) if isinstance(m, ModelRequest) and _prompt(m))
        prompt = _prompt(messages[start])
        looked = sum(isinstance(message, ModelResponse) for message in messages[start:])
        if prompt in self.fails:
            raise ValueError(f"cannot answer {prompt!r}")
        if looked < prompt.count("look"):
            return ModelResponse([ToolCallPart("look", {}, f"{prompt}-{looked}")], usage=USAGE)
        return ModelResponse([TextPart(f"re: {prompt}")], usage=USAGE)

    def adapter(
        self, processor: Callable[[HistoryProcessorContext[ModelMessage]], Any] | None = None, **options: Any
    ) -> PydanticAdapter[None, str]:
        agent = Agent(FunctionModel(self._model, model_name="recorder"))
        agent.tool_plain(name="look")(lambda: "seen")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return PydanticAdapter(agent, history_processor=processor, **options)


def _prompt(message: ModelMessage) -> str:
    parts = [part for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content) if parts else ""


def keep(n: int) -> Callable[[HistoryProcessorContext[ModelMessage]], list[ModelMessage]]:
    """A processor that keeps the last `n` groups."""
    return lambda ctx: ctx.keep_recent_groups(n)
