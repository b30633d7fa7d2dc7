"""What a turn asks of Redis: each script is a round trip and, with synced writes, a wait for the disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import LanewayClient, PydanticAdapter
from laneway.connect import connect_redis
from laneway.history.lanes import LaneKey

from tests.support.bench import Bench

USAGE = RequestUsage(input_tokens=1, output_tokens=1)


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart("y" * 100)], usage=USAGE)


def _answer_with_tools(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if any(isinstance(part, UserPromptPart) for part in messages[-1].parts):
        return ModelResponse(
            [ToolCallPart(name, {}, f"{name}-{len(messages)}") for name in ("one", "two")], usage=USAGE
        )
    return _answer(messages, info)


@asynccontextmanager
async def commands_of(client: LanewayClient, lane: LaneKey) -> AsyncGenerator[list[str]]:
    """The names of the commands that are sent for a lane while the block runs, in order."""
    redis: Any = await connect_redis(client.settings)
    found: list[str] = []
    base, mark = client.store.names(lane).base, uuid4().hex
    try:
        async with redis.monitor() as monitor:
            yield found
            await client.store.record(lane, mark)
            async for one in monitor.listen():
                if mark in one["command"]:
                    return
                if one["client_type"] != "lua" and base in one["command"]:
                    found.append(one["command"].split(" ")[0].upper())
    finally:
        await redis.aclose()


async def test_a_turn_of_one_step_is_three_scripts(bench: Bench, conversation_id: str):
    """The prompt, the step's beginning, the commit: the answer comes with the news of the turn's end."""
    client = await bench.serve({"agent": PydanticAdapter(Agent(FunctionModel(_answer)))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")  # listens to the lane from here on
    async with commands_of(client, conversation.lane("agent")) as commands:
        result = await conversation.ask("agent", "second")
    assert result.output == "y" * 100
    assert commands == ["EVALSHA"] * 3


async def test_parallel_tools_that_end_together_are_journaled_together(bench: Bench, conversation_id: str):
    """Three steps: the prompt, a beginning and an end of each step, and one script for what both tools did."""
    agent = Agent(FunctionModel(_answer_with_tools))

    @agent.tool_plain
    async def one() -> str:
        return "1"

    @agent.tool_plain
    async def two() -> str:
        return "2"

    client = await bench.serve({"agent": PydanticAdapter(agent)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")
    async with commands_of(client, conversation.lane("agent")) as commands:
        result = await conversation.ask("agent", "second")
    assert result.steps == 3
    assert commands == ["EVALSHA"] * 8
