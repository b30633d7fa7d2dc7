"""Agents whose tools can be held, so that messages come while a turn runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter

from tests.langchain.graphs import ScriptedModel, called, said


def shape(messages: Sequence[Any]) -> list[str]:
    """A history of either framework, told the same way."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            found.append(f"user {message.content}")
        elif isinstance(message, ToolMessage):
            found.append(f"result {message.content}")
        elif isinstance(message, AIMessage):
            found.append(f"says {message.content}" if not message.tool_calls else "calls")
        else:
            for part in message.parts:
                match part:
                    case UserPromptPart(content=content):
                        found.append(f"user {content}")
                    case ToolReturnPart(content=content):
                        found.append(f"result {content}")
                    case TextPart(content=content):
                        found.append(f"says {content}")
                    case ToolCallPart():
                        found.append("calls")
                    case _:
                        raise AssertionError(part)
    return found


@dataclass
class Held:
    """An agent of each framework. `work …` calls a tool that is held until `gate` opens; then it says what it was told
    since its last answer. `last …` is held in its only model request, `fail …` fails after the tool.

    Attributes:
        seen: what the models were sent, request by request.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[list[str]] = field(default_factory=list[list[str]])

    async def _hold(self) -> None:
        self.begun.set()
        await self.gate.wait()

    async def _answer(self, told: list[str]) -> str | None:
        """What is said; None to call the tool."""
        self.seen.append(told)
        since = next((i + 1 for i in range(len(told) - 1, -1, -1) if told[i].startswith("says")), 0)
        told = told[since:]
        prompts = [one.removeprefix("user ") for one in told if one.startswith("user")]
        if prompts[0].startswith("last"):
            await self._hold()
        elif not any(one.startswith("result") for one in told) and prompts[0].startswith(("work", "fail")):
            return None
        if prompts[0].startswith("fail") and len(self.seen) == 2:
            raise ValueError("cannot")
        return ", ".join(prompts)

    def pydantic(self, **options: Any) -> PydanticAdapter[None, str]:
        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            text = await self._answer(shape(messages))
            if text is None:
                return ModelResponse([ToolCallPart("hold", {}, f"c{len(self.seen)}")])
            return ModelResponse([TextPart(text)])

        agent: Agent[None, str] = Agent(FunctionModel(answer, model_name="held"))

        @agent.tool_plain
        async def hold() -> str:
            await self._hold()
            return "held"

        return PydanticAdapter(agent, **options)

    def langchain(self, **options: Any) -> LangChainAdapter:
        async def answer(messages: list[BaseMessage]) -> AIMessage:
            text = await self._answer(shape(messages))
            return called(("hold", {}, f"c{len(self.seen)}")) if text is None else said(text)

        @tool
        async def hold() -> str:
            """Waits."""
            await self._hold()
            return "held"

        return LangChainAdapter(create_agent(ScriptedModel(answer=answer), tools=[hold]), **options)

    def of(self, framework: str, **options: Any) -> PydanticAdapter[None, str] | LangChainAdapter:
        return self.pydantic(**options) if framework == "pydantic_ai" else self.langchain(**options)
