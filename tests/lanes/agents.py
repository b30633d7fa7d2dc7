"""Scripted agents whose pace the tests set."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import PydanticAdapter

USAGE = RequestUsage(input_tokens=1, output_tokens=1)


def prompts_of(messages: list[ModelMessage]) -> list[str]:
    """The user's prompts in a history, in order."""
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
        asked: the prompts that the model was asked, one for each request.
        cancelled: what was cancelled while it waited.
        finished: tools that came to their end.
    """

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

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = prompts_of(messages)[-1]
        self.asked.append(prompt)
        if "fail" in prompt:
            raise ValueError(f"cannot answer {prompt!r}")
        if "tools" in prompt and isinstance(messages[-1].parts[0], UserPromptPart):
            return ModelResponse([ToolCallPart("slow", {}, "s"), ToolCallPart("threaded", {}, "t")], usage=USAGE)
        if "wait" in prompt and "tools" not in prompt:
            await self._wait(prompt)
        return ModelResponse([TextPart(f"re: {prompt}")], usage=USAGE)

    def adapter(self) -> PydanticAdapter[None, str]:
        agent = Agent(FunctionModel(self._model, model_name="paced"))

        @agent.tool_plain
        async def slow() -> str:
            await self._wait("slow")
            self.finished.append("slow")
            return "slow done"

        @agent.tool_plain
        def threaded() -> str:
            self.begun_threads.set()
            assert self.thread_gate.wait(30)
            self.finished.append("threaded")
            return "threaded done"

        return PydanticAdapter(agent)

    begun_threads: threading.Event = field(default_factory=threading.Event)

    def agents(self) -> Mapping[str, PydanticAdapter[None, str]]:
        return {"agent": self.adapter()}
