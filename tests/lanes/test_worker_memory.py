"""What a step had in memory goes with the step.

Python frees what nothing refers to at once; what refers to itself in a circle waits for the collector, which counts
objects and not bytes: a worker with much code loaded would hold the decoded histories of a great many steps by then.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter
from laneway.activities.adapter import Adapter
from laneway.errors import TurnFailed
from laneway.history.checkpoints import StoredEntry

from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder
from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench

TURNS = 6


@pytest.fixture
def collector_off() -> Generator[Callable[[], int]]:
    """No collection; what is returned counts the models' messages in memory."""
    gc.collect()
    gc.disable()
    try:
        yield lambda: sum(isinstance(one, ModelResponse | AIMessage) for one in gc.get_objects())
    finally:
        gc.enable()


async def _settled(count: Callable[[], int]) -> int:
    """The messages in memory, once the step that was last has ended for the worker as well."""
    await asyncio.sleep(0.2)
    return count()


@pytest.mark.parametrize("kind", [Recorder, LangChainRecorder], ids=["pydantic", "langchain"])
async def test_a_step_leaves_no_history_in_memory(
    bench: Bench, conversation_id: str, kind: type[AnyRecorder], collector_off: Callable[[], int]
):
    """Where the worker keeps no decoded histories, none is there between turns, however many there were."""
    agent = kind()
    client = await bench.serve({"agent": agent.adapter()}, history_cache_bytes=0)
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")
    before = await _settled(collector_off)
    for number in range(TURNS):
        await conversation.ask("agent", f"question {number}")
    assert await _settled(collector_off) <= before


@pytest.mark.parametrize("kind", [Recorder, LangChainRecorder], ids=["pydantic", "langchain"])
async def test_a_step_that_fails_leaves_no_history_in_memory(
    bench: Bench,
    conversation_id: str,
    kind: type[AnyRecorder],
    collector_off: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
):
    """The error that it fails with refers to all that the step had."""
    caplog.set_level(logging.ERROR, "laneway")  # what is logged, the error included, is kept for the test
    agent = kind(fails={"bad"})
    client = await bench.serve({"agent": agent.adapter()}, history_cache_bytes=0)
    conversation = client.conversation(conversation_id)
    for number in range(TURNS):
        await conversation.ask("agent", f"question {number}")

    async def fail() -> None:
        with pytest.raises(TurnFailed):
            await conversation.ask("agent", "bad")

    await fail()  # the first finds the scripts of Redis not loaded, and that error knows this one
    before = await _settled(collector_off)
    for _ in range(TURNS):
        await fail()
    assert await _settled(collector_off) <= before


@pytest.mark.parametrize("framework", ["pydantic", "langchain"])
@pytest.mark.parametrize("cache_bytes", [0, 10**6])
async def test_while_a_model_is_asked_a_history_is_in_memory_once(
    bench: Bench, conversation_id: str, framework: str, cache_bytes: int
):
    """As what the agent is given, and not as it is stored besides; of tool rounds before, in the same turn, neither."""
    held: list[int] = []

    def stored() -> int:
        return sum(isinstance(one, StoredEntry) for one in gc.get_objects())

    def ask(rounds: int, prompt: str) -> bool:
        held.append(stored())
        return "tools" in prompt and rounds < 2

    client = await bench.serve({"agent": _asking(framework, ask)}, history_cache_bytes=cache_bytes)
    conversation = client.conversation(conversation_id)
    for prompt in ("one", "two", "tools", "four"):
        await conversation.ask("agent", prompt)
    assert held == [0] * 6


def _asking(framework: str, ask: Callable[[int, str], bool]) -> Adapter[Any]:
    """An agent that looks once more where it is told so: with how many looks behind it, and by which prompt."""

    def look() -> str:
        """Look."""
        return "seen"

    if framework == "pydantic":

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            parts = [part for message in messages for part in message.parts]
            last = max(at for at, part in enumerate(parts) if isinstance(part, UserPromptPart))
            rounds = sum(isinstance(part, ToolReturnPart) for part in parts[last:])
            again = ask(rounds, str(cast("UserPromptPart", parts[last]).content))
            return ModelResponse([ToolCallPart("look", {}) if again else TextPart("done")])

        agent = Agent(FunctionModel(answer, model_name="asking"))
        agent.tool_plain(look)
        return PydanticAdapter(agent)

    async def graph_answer(messages: list[BaseMessage]) -> AIMessage:
        last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        again = ask(sum(isinstance(one, ToolMessage) for one in messages[last:]), messages[last].text)
        return called(("look", {}, f"call-{len(messages)}")) if again else said("done")

    return LangChainAdapter(create_agent(ScriptedModel(answer=graph_answer), [look]))


async def test_many_lanes_at_once_take_a_bounded_number_of_threads(bench: Bench, conversation_id: str):
    """A thread that has been needed once would stay; they end with the worker."""

    def threads() -> int:
        return sum(one.name.startswith("laneway-workflow") for one in threading.enumerate())

    agents = {"agent": Recorder().adapter()}
    worker = await bench.worker(agents)
    client = await bench.client(agents)
    lanes = [client.conversation(f"{conversation_id}-{number}") for number in range(40)]
    await asyncio.gather(*(lane.ask("agent", "hello") for lane in lanes))
    assert 1 <= threads() <= 8
    await worker.aclose()
    async with asyncio.timeout(10):
        while threads():
            await asyncio.sleep(0.05)
