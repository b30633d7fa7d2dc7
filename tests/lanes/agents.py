"""Scripted agents whose pace the tests set."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import LangChainAdapter, PydanticAdapter

from tests.langchain.graphs import ScriptedModel
from tests.langchain.graphs import prompts_of as prompts_in_graphs

USAGE = RequestUsage(input_tokens=1, output_tokens=1)
GRAPH_USAGE = UsageMetadata(input_tokens=1, output_tokens=1, total_tokens=2)

FRAMEWORKS = ("pydantic_ai", "langchain")


def prompts_of(messages: list[Any]) -> list[str]:
    """The user's prompts in a history of either framework, in order."""
    if messages and isinstance(messages[0], BaseMessage):
        return prompts_in_graphs(messages)
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


@dataclass
class Paced:
    """An agent whose model answers each prompt with `re: <prompt>`, when it may.

    A prompt that contains `wait` is answered only once `release` was called for it, `fail` fails, `tools` first calls
    a sync and an async tool that wait in the same way.

    Attributes:
        framework: whose agent it is: one of `FRAMEWORKS`.
        asked: the prompts that the model was asked, one for each request.
        cancelled: what was cancelled while it waited.
        finished: tools that came to their end.
    """

    framework: str = "pydantic_ai"
    asked: list[str] = field(default_factory=list[str])
    cancelled: list[str] = field(default_factory=list[str])
    finished: list[str] = field(default_factory=list[str])
    begun: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    gates: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    thread_gate: threading.Event = field(default_factory=threading.Event)

    def release(self, prompt: str) -> None:
        self.gates[prompt].set()

    async def _wait(self, name: str) -> None:
        self.begun[name].set()
        try:
            await self.gates[name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    async def _turn(self, prompt: str, *, begins: bool) -> bool:
        """What comes before the model's answer to a prompt; whether it is to call the tools."""
        self.asked.append(prompt)
        if "fail" in prompt:
            raise ValueError(f"cannot answer {prompt!r}")
        if "tools" in prompt:
            return begins
        if "wait" in prompt:
            await self._wait(prompt)
        return False

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = prompts_of(messages)[-1]
        if await self._turn(prompt, begins=isinstance(messages[-1].parts[0], UserPromptPart)):
            return ModelResponse([ToolCallPart("slow", {}, "s"), ToolCallPart("threaded", {}, "t")], usage=USAGE)
        return ModelResponse([TextPart(f"re: {prompt}")], usage=USAGE)

    async def _graph_model(self, messages: list[BaseMessage]) -> AIMessage:
        prompt = prompts_of(messages)[-1]
        if await self._turn(prompt, begins=isinstance(messages[-1], HumanMessage)):
            # Ids of its own for each turn, as every provider gives them.
            calls = [{"name": name, "args": {}, "id": f"{name}-{len(messages)}"} for name in ("slow", "threaded")]
            return AIMessage("", tool_calls=calls, usage_metadata=GRAPH_USAGE)
        return AIMessage(f"re: {prompt}", usage_metadata=GRAPH_USAGE)

    async def _slow(self) -> str:
        """Waits, and can be cancelled."""
        await self._wait("slow")
        self.finished.append("slow")
        return "slow done"

    def _threaded(self) -> str:
        """Waits in a thread."""
        self.begun_threads.set()
        assert self.thread_gate.wait(30)
        self.finished.append("threaded")
        return "threaded done"

    def adapter(self) -> PydanticAdapter[None, str] | LangChainAdapter:
        async def slow() -> str:
            """Waits, and can be cancelled."""
            return await self._slow()

        def threaded() -> str:
            """Waits in a thread."""
            return self._threaded()

        if self.framework == "langchain":
            return LangChainAdapter(create_agent(ScriptedModel(answer=self._graph_model), [slow, threaded]))
        agent = Agent(FunctionModel(self._model, model_name="paced"))
        agent.tool_plain(slow)
        agent.tool_plain(threaded)
        return PydanticAdapter(agent)

    begun_threads: threading.Event = field(default_factory=threading.Event)

    def agents(self) -> Mapping[str, PydanticAdapter[None, str] | LangChainAdapter]:
        return {"agent": self.adapter()}
