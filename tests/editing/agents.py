"""A scripted agent that remembers what it was sent, and processors to edit its history."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
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

from laneway import HistoryProcessorContext, LangChainAdapter, PydanticAdapter

from tests.langchain.graphs import USAGE as LANGCHAIN_USAGE
from tests.langchain.graphs import ScriptedModel, called, said

USAGE = RequestUsage(input_tokens=10, output_tokens=5)


class Held:
    """A model request that is held: it says that it has come, and goes on when it may."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()


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
class Remembering:
    """What both remember and are told.

    Attributes:
        sent: the texts of each request that reached the model.
        fails: the prompts that it cannot answer.
        fails_after: the prompts that it cannot answer after so many tool calls.
        held: the prompts at which a request is held.
    """

    sent: list[list[str]] = field(default_factory=list[list[str]])
    fails: set[str] = field(default_factory=set[str])
    fails_after: dict[str, int] = field(default_factory=dict[str, int])
    held: dict[str, Held] = field(default_factory=dict[str, Held])

    async def _meet(self, prompt: str, looked: int) -> None:
        """Fail or hold a request, where that was asked for."""
        if prompt in self.held:
            self.held[prompt].reached.set()
            await self.held[prompt].go.wait()
        if prompt in self.fails or looked == self.fails_after.get(prompt):
            raise ValueError(f"cannot answer {prompt!r}")


@dataclass
class Recorder(Remembering):
    """An agent whose model answers `re: <prompt>`, first calling the tool `look` as often as the prompt says `look`."""

    input_tokens: ClassVar[int] = USAGE.input_tokens

    texts_of = staticmethod(texts_of)

    @staticmethod
    def user(text: str) -> Any:
        """A user's message."""
        return ModelRequest([UserPromptPart(text)])

    @staticmethod
    def answer(text: str) -> Any:
        """A model's message."""
        return ModelResponse([TextPart(text)])

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(texts_of(messages))
        start = max(i for i, m in enumerate(messages) if isinstance(m, ModelRequest) and _prompt(m))
        prompt = _prompt(messages[start])
        looked = sum(isinstance(message, ModelResponse) for message in messages[start:])
        await self._meet(prompt, looked)
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


@dataclass
class LangChainRecorder(Remembering):
    """The same of LangChain's: an agent of `create_agent`."""

    input_tokens: ClassVar[int] = LANGCHAIN_USAGE["input_tokens"]

    @staticmethod
    def texts_of(messages: list[BaseMessage]) -> list[str]:
        """Every text and tool result of a history, in order."""
        found: list[str] = []
        for message in messages:
            if isinstance(message, AIMessage):
                found += [f"{call['name']}()" for call in message.tool_calls]
            found += [str(message.text)] if message.text else []
        return found

    @staticmethod
    def user(text: str) -> Any:
        """A user's message."""
        return HumanMessage(text)

    @staticmethod
    def answer(text: str) -> Any:
        """A model's message."""
        return AIMessage(text)

    async def _model(self, messages: list[BaseMessage]) -> AIMessage:
        self.sent.append(self.texts_of(messages))
        start = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage))
        prompt = str(messages[start].text)
        looked = sum(isinstance(message, AIMessage) for message in messages[start:])
        await self._meet(prompt, looked)
        if looked < prompt.count("look"):
            return called(("look", {}, f"{prompt}-{looked}"))
        return said(f"re: {prompt}")

    def adapter(
        self, processor: Callable[[HistoryProcessorContext[BaseMessage]], Any] | None = None, **options: Any
    ) -> LangChainAdapter:
        def look() -> str:
            """Look."""
            return "seen"

        graph = create_agent(ScriptedModel(answer=self._model, model_name="recorder"), [look])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return LangChainAdapter(graph, history_processor=processor, **options)


AnyRecorder = Recorder | LangChainRecorder


def _prompt(message: ModelMessage) -> str:
    parts = [part for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content) if parts else ""


def keep(n: int) -> Callable[[HistoryProcessorContext[Any]], list[Any]]:
    """A processor that keeps the last `n` groups."""
    return lambda ctx: ctx.keep_recent_groups(n)
