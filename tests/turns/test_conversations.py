"""A conversation from end to end, without anything going wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench


def clock() -> str:
    """Says how late it is."""
    return "noon"


def pydantic_agent() -> PydanticAdapter[None, str]:
    """Asks for the time once, then says how many messages there are."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse([ToolCallPart("clock", {}, "c1")])
        return ModelResponse([TextPart(f"{len(messages)} messages")])

    agent = Agent(FunctionModel(answer))
    agent.tool_plain(clock)
    return PydanticAdapter(agent)


def graph_agent() -> LangChainAdapter:
    """The same, of LangChain's."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if not isinstance(messages[-1], ToolMessage):
            return called(("clock", {}, f"c{len(messages)}"))
        return said(f"{len(messages)} messages")

    return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [clock]))


@pytest.mark.parametrize("make", [pydantic_agent, graph_agent])
async def test_turns_of_a_conversation_are_committed_one_after_another(make: Any, bench: Bench, conversation_id: str):
    """Each turn sees the messages of the ones before, and the lane's head moves with it."""
    client = await bench.serve({"agent": make()})
    conversation = client.conversation(conversation_id)
    for number in (1, 2, 3):
        result = await conversation.ask("agent", f"question {number}")
        assert result.output == f"{4 * number - 1} messages"
        assert result.steps == 3
        assert result.checkpoint.length == 4 * number
    assert len(await conversation.messages("agent")) == 12
    async with asyncio.timeout(30):  # a client hears of the end before the lane's workflow does
        while (status := await conversation.status("agent")).turn is not None:
            await asyncio.sleep(0.02)
    assert (status.version, status.queue) == (3, ())
