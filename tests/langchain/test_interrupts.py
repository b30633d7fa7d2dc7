"""`interrupt()` in a graph lets its turn wait for answers, for as long as it takes."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt
from redis.asyncio import Redis

from laneway import LangChainAdapter
from laneway.errors import InvalidInput, TurnCancelled, TurnFailed
from laneway.history.requests import approve, deny, failed
from laneway.history.store import HistoryStore
from laneway.turns import Turn

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench

ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


class Asking(MessagesState):
    answers: Annotated[list[str], operator.add]


def asking() -> StateGraph[Any, Any, Any, Any]:
    """Three tasks at once: two ask, one of these twice, and one in a subgraph; the third does not ask."""

    async def colour(state: dict[str, Any]) -> dict[str, Any]:
        ran["colour"] += 1
        first = interrupt({"what": "colour"})
        return {"answers": [f"{first} and {interrupt('another colour')}"]}

    def name(state: Asking) -> dict[str, Any]:
        ran["name"] += 1
        return {"answers": [f"name {interrupt('name')}"]}

    def before(state: Asking) -> dict[str, Any]:
        ran["before"] += 1
        return {"messages": [AIMessage("inside")]}

    inner: StateGraph[Any, Any, Any, Any] = StateGraph(Asking)
    inner.add_node("before", before)
    inner.add_node("name", name)
    inner.add_edge(START, "before")
    inner.add_edge("before", "name")

    async def other(state: dict[str, Any]) -> dict[str, Any]:
        ran["other"] += 1
        return {"messages": [AIMessage("other")]}

    def end(state: Asking) -> dict[str, Any]:
        ran["end"] += 1
        return {"messages": [AIMessage(", ".join(sorted(state["answers"])))]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Asking)
    graph.add_node("colour", colour)
    graph.add_node("inner", inner.compile())
    graph.add_node("other", other)
    graph.add_node("end", end)
    graph.add_conditional_edges(
        START, lambda state: [Send("colour", {}), "inner", "other"], ["colour", "inner", "other"]
    )
    graph.add_edge(["colour", "inner", "other"], "end")
    return graph


async def until_pending(turn: Turn, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        while len(found := await turn.pending()) != count:
            await asyncio.sleep(0.02)
    return found


async def test_a_turn_waits_for_several_answers_and_goes_on(bench: Bench, conversation_id: str):
    """By interrupt, over a restart of the worker; what had finished beside them is not run again."""
    agents = {"agent": LangChainAdapter(asking())}
    client = await bench.client(agents)
    worker = await bench.worker(agents)
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "go")
    pending = {one.request.name: one.request for one in await until_pending(turn, 2)}
    assert pending["colour"].payload == {"what": "colour"}
    assert pending["inner"].payload == "name"
    assert await conversation.messages("agent") == []
    await worker.aclose()
    await turn.answer(pending["colour"].id, result="red")
    await turn.answer(pending["inner"].id, result="Ada")
    with pytest.raises(InvalidInput, match="takes result=… or approve"):
        await turn.answer(pending["colour"].id, failed("no"))
    await bench.worker(agents)
    (again,) = await until_pending(turn, 1)
    assert (again.request.name, again.request.payload) == ("colour", "another colour")
    await turn.answer(again.request.id, result="blue")
    result = await turn.result()
    assert result.output == "name Ada, red and blue"
    assert ran == {"colour": 3, "before": 1, "name": 2, "other": 1, "end": 1}
    messages = await conversation.messages("agent")
    assert [message.text for message in messages if message.type == "human"] == ["go"]
    state = await conversation.state("agent")
    assert sorted(state["answers"]) == ["name Ada", "red and blue"]


async def test_a_turn_that_waits_can_be_cancelled(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str
):
    client = await bench.serve({"agent": LangChainAdapter(asking())})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "go")
    await until_pending(turn, 2)
    assert await turn.cancel() == "cancelled"
    with pytest.raises(TurnCancelled):
        await turn.result()
    assert (await store.head(conversation.lane("agent"))).version == 0
    assert await conversation.messages("agent") == []


def pay(amount: int) -> str:
    """Pays."""
    ran[f"paid {amount}"] += 1
    return f"paid {amount}"


def paying(messages: list[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], HumanMessage):
        return called(("pay", {"amount": 5}, f"p{len(messages)}"))
    return said(f"then: {messages[-1].text}")


async def test_langchains_own_approvals_are_answered_like_any(bench: Bench, conversation_id: str):
    """Approved, approved with other arguments, denied with a reason, or answered in the middleware's own words."""
    middleware = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    agent = create_agent(ScriptedModel(answer=paying), [pay], middleware=[middleware])
    client = await bench.serve({"agent": LangChainAdapter(agent)})
    conversation = client.conversation(conversation_id)
    answers: list[tuple[dict[str, Any], str]] = [
        ({"decision": approve()}, "then: paid 5"),
        ({"decision": approve(arguments={"amount": 3})}, "paid 3"),
        ({"decision": deny("too much")}, "too much"),
        ({"result": {"decisions": [{"type": "approve"}]}}, "then: paid 5"),
    ]
    for given, output in answers:
        turn = await conversation.submit("agent", "pay")
        (pending,) = await until_pending(turn, 1)
        assert pending.request.payload["action_requests"][0]["args"] == {"amount": 5}
        await turn.answer(pending.request.id, **given)
        assert output in (await turn.result()).output
    assert ran == {"paid 5": 2, "paid 3": 1}


async def test_what_is_asked_has_to_be_plain(bench: Bench, conversation_id: str):
    def ask(state: MessagesState) -> dict[str, Any]:
        interrupt(object())
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    with pytest.raises(TurnFailed, match="cannot be stored"):
        await client.conversation(conversation_id).ask("agent", "go")
