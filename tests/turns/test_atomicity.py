"""A turn that fails or is cancelled leaves the lane's head and history byte for byte as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits
from redis.asyncio import Redis

from laneway import LangChainAdapter, PydanticAdapter
from laneway.errors import TurnCancelled, TurnFailed
from laneway.history.lanes import LaneKey
from laneway.history.store import HistoryStore

from tests.langchain.graphs import ScriptedModel, called, prompts_of, said
from tests.support.bench import Bench


class Hold:
    """A point that a turn reaches and does not leave."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def here(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


def orders(messages: Sequence[ModelMessage]) -> list[str]:
    """What the last prompt tells the model to do, answer by answer."""
    prompts = [p for m in messages for p in m.parts if isinstance(p, UserPromptPart)]
    return str(prompts[-1].content).split("; ")


def pydantic_adapter(hold: Hold) -> PydanticAdapter[Any, Any]:
    """An agent whose prompts say what each of its answers is: tools to call, or `say`, `fail`, `hold`."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        results = 0
        for message in reversed(messages):
            if any(isinstance(part, UserPromptPart) for part in message.parts):
                break
            results += any(isinstance(part, ToolReturnPart) for part in message.parts)
        order = orders(messages)[results]
        if order == "fail":
            raise RuntimeError("the model broke")
        if order == "hold":
            await hold.here()
        if order == "say":
            return ModelResponse([TextPart(f"said after {len(messages)}")])
        return ModelResponse([ToolCallPart(tool, {}, f"{tool}-{results}") for tool in order.split(" and ")])

    agent: Agent[None, str] = Agent(FunctionModel(answer), retries=1)

    @agent.tool_plain
    async def work() -> str:
        return "worked"

    @agent.tool_plain
    async def breaks() -> str:
        raise ValueError("the tool broke")

    @agent.tool_plain
    async def retry() -> str:
        raise ModelRetry("never right")

    @agent.tool_plain
    async def hang() -> str:
        await hold.here()
        return "never"

    return PydanticAdapter(agent, usage_limits=UsageLimits(request_limit=5))


def langchain_adapter(hold: Hold) -> LangChainAdapter:
    """The same with `create_agent`. It has no retries of tools; a tool that does not exist is told to its model."""

    async def answer(messages: list[BaseMessage]) -> AIMessage:
        asked = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        results = sum(isinstance(message, AIMessage) for message in messages[asked:])
        order = prompts_of(messages)[-1].split("; ")[results]
        if order == "fail":
            raise RuntimeError("the model broke")
        if order == "hold":
            await hold.here()
        if order == "say":
            return said(f"said after {len(messages)}")
        return called(*((tool, {}, f"{tool}-{len(messages)}") for tool in order.split(" and ")))

    async def work() -> str:
        """Works."""
        return "worked"

    async def breaks() -> str:
        """Breaks."""
        raise ValueError("the tool broke")

    async def hang() -> str:
        """Hangs."""
        await hold.here()
        return "never"

    agent: Any = create_agent(ScriptedModel(answer=answer), [work, breaks, hang])
    return LangChainAdapter(agent, config={"recursion_limit": 10})


ADAPTERS = {"pydantic_ai": pydantic_adapter, "langchain": langchain_adapter}


async def everything_but_the_record(redis: Redis, store: HistoryStore, lane: LaneKey) -> dict[bytes, tuple[bytes, int]]:
    """All of a lane's keys, each as the server dumps it, and when it expires; but for records, accounts and events."""
    names = store.names(lane)
    kept: dict[bytes, tuple[bytes, int]] = {}
    async for key in redis.scan_iter(match=f"{names.base.replace('{', '[{]').replace('}', '[}]')}*", count=1000):
        if key.decode() not in (names.turns, names.events, names.spent):
            kept[key] = (await redis.dump(key), await redis.pexpiretime(key))
    return kept


FAILURES = {
    "fail": "RuntimeError",
    "work; fail": "RuntimeError",
    "work; breaks": "ValueError",
    "work and breaks; say": "ValueError",
    "work; work; breaks and work": "ValueError",
}
OWN_FAILURES = {
    "pydantic_ai": {
        "work; retry; retry; say": "UnexpectedModelBehavior",
        "work; work; work; work; work; say": "UsageLimitExceeded",
        "no_such_tool; no_such_tool; say": "UnexpectedModelBehavior",
    },
    "langchain": {"work; work; work; work; work; say": "GraphRecursionError"},
}


@pytest.mark.parametrize("framework", ADAPTERS)
async def test_a_failed_turn_leaves_every_key_as_it_was(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str, framework: str
):
    """In its first request or a later one, among tools, after staged steps: only its record says that there was one."""
    client = await bench.serve({"agent": ADAPTERS[framework](Hold())})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    for committed in range(2):
        before = await everything_but_the_record(redis, store, lane)
        assert len(before) == (2 if committed else 0)
        for number, (prompt, error) in enumerate((FAILURES | OWN_FAILURES[framework]).items()):
            turn = await conversation.submit("agent", prompt, turn_id=f"{committed}-{number}")
            with pytest.raises(TurnFailed) as failed:
                await turn.result()
            assert failed.value.error_type == error, prompt
            assert await everything_but_the_record(redis, store, lane) == before, prompt
            record = await turn.record()
            assert (record.outcome, record.checkpoint, record.error_type) == ("failed", None, error)
        assert (await conversation.ask("agent", "work; say")).output == f"said after {4 * committed + 3}"


@pytest.mark.parametrize("framework", ADAPTERS)
@pytest.mark.parametrize(
    "prompt", ["hold", "work; hold", "hang; say", "work and hang; say", "work; work; hang and work"]
)
async def test_a_cancelled_turn_leaves_every_key_as_it_was(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str, framework: str, prompt: str
):
    """In a request or among tools, with steps staged before it and tools finished beside it."""
    hold = Hold()
    client = await bench.serve({"agent": ADAPTERS[framework](hold)})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    await conversation.ask("agent", "work; say")
    before = await everything_but_the_record(redis, store, lane)
    assert len(before) == 2
    turn = await conversation.submit("agent", prompt)
    await hold.reached.wait()
    assert await everything_but_the_record(redis, store, lane) != before
    assert await turn.cancel() == "cancelled"
    with pytest.raises(TurnCancelled):
        await turn.result()
    assert await everything_but_the_record(redis, store, lane) == before
    assert (await conversation.ask("agent", "work; say")).output == "said after 7"
