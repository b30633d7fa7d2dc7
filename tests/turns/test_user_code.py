"""Code of the user's that ends in an odd way fails its turn, is run once, and takes nothing else with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter
from laneway.errors import TurnFailed

from tests.langchain.graphs import ScriptedModel
from tests.support.bench import Bench

ODD = "a file name that is no UTF-8: caf\udce9.txt"


async def leave() -> str:
    sys.exit(3)


async def wait_for_what_is_cancelled() -> str:
    waiting = asyncio.create_task(asyncio.sleep(60))
    waiting.cancel()
    await waiting
    return "never"


async def fail_oddly() -> str:
    raise OSError(ODD)


ENDS: list[tuple[Callable[[], Any], str]] = [
    (leave, "wanted to end the process"),
    (wait_for_what_is_cancelled, "CancelledError"),
    (fail_oddly, r"caf\\udce9.txt"),
]


def pydantic_agent(end: Callable[[], Any], ran: list[str]) -> PydanticAdapter[None, str]:
    """Calls two tools side by side where it is told to: one ends oddly."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if "go" not in str(messages[-1]):
            return ModelResponse([TextPart("fine")])
        ran.append("model")
        return ModelResponse([ToolCallPart("end", {}, "a"), ToolCallPart("other", {}, "b")])

    agent: Agent[None, str] = Agent(FunctionModel(answer))
    agent.tool_plain(name="end")(end)
    agent.tool_plain(name="other")(lambda: "other")
    return PydanticAdapter(agent)


def graph_agent(end: Callable[[], Any], ran: list[str]) -> LangChainAdapter:
    """The same, of LangChain's."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage) or "go" not in str(messages[-1].content):
            return AIMessage("fine")
        ran.append("model")
        calls: Any = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("end", "other")]
        return AIMessage("", tool_calls=calls)

    ends = tool("end", description="Ends.")(end)
    other = tool("other", description="Another.")(lambda: "other")
    return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [ends, other]))


@pytest.mark.parametrize("make", [pydantic_agent, graph_agent])
@pytest.mark.parametrize(("end", "said"), ENDS, ids=[end.__name__ for end, _ in ENDS])
async def test_a_tool_that_ends_oddly_fails_its_turn_once(
    bench: Bench,
    conversation_id: str,
    make: Callable[[Callable[[], Any], list[str]], Any],
    end: Callable[[], Any],
    said: str,
):
    """It says why; the model is asked once and the tool run once; the worker lives and the lane goes on."""
    ran: list[str] = []

    async def counted() -> str:
        ran.append("tool")
        return str(await end())

    client = await bench.serve({"agent": make(counted, ran)})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match=said):
        await conversation.ask("agent", "go", timeout=30)
    assert ran == ["model", "tool"]
    assert await conversation.messages("agent") == []
    assert (await conversation.ask("agent", "hello", timeout=30)).output == "fine"


async def test_a_node_that_would_end_the_process_fails_its_turn(bench: Bench, conversation_id: str):
    def leave_in_a_thread(state: MessagesState) -> dict[str, Any]:
        sys.exit("usage: command FILE")

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("run", leave_in_a_thread)
    graph.add_edge(START, "run")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    with pytest.raises(TurnFailed, match="the agent wanted to end the process .*usage: command FILE"):
        await client.conversation(conversation_id).ask("agent", "go", timeout=30)


async def test_a_graphs_tool_may_return_what_has_no_form_in_utf_8(bench: Bench, conversation_id: str):
    """LangChain's messages are stored with the escape that JSON has for it."""
    ran: list[str] = []

    async def name_of_file() -> str:
        return ODD

    client = await bench.serve({"agent": graph_agent(name_of_file, ran)})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "go", timeout=30)).output == "fine"
    assert ODD in [message.content for message in await conversation.messages("agent")]


async def test_a_character_that_a_provider_cut_in_two_is_on_the_stream_as_it_came(bench: Bench, conversation_id: str):
    """Half of an emoji has no form in UTF-8: its event has it as an escape, and does not cost the turn."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "smile \ud83d"

    client = await bench.serve({"agent": PydanticAdapter(Agent(FunctionModel(stream_function=answer)))})
    turn = await client.conversation(conversation_id).submit("agent", "go", timeout=30)
    said = [event.data["text"] async for event in turn.events() if event.kind == "text.delta"]
    assert said == ["smile \ud83d"]
    with pytest.raises(TurnFailed, match="a ModelResponse cannot be stored"):  # the history is another matter
        await turn.result()
