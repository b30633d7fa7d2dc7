"""Budgets of graphs: what is asked inside of nodes, several times in one, in threads and in subgraphs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from laneway import Delegation, LangChainAdapter, RequestBudget, RetryPolicy
from laneway.activities.langchain_budget import Sized, estimate_of

from tests.budgets.test_turns import refused
from tests.langchain.graphs import USAGE, ScriptedModel, called, said
from tests.support.bench import Bench
from tests.support.provider import always
from tests.wire.providers import wire


def answering() -> Any:
    """A model that makes as many calls of `add` as the prompt says, and then is done."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], HumanMessage):
            return called(*(("add", {"n": one}, f"c{one}") for one in range(int(messages[-1].text))))
        return said("done")

    return ScriptedModel(answer=answer)


@pytest.mark.parametrize("is_inner", [False, True], ids=["graph", "subgraph"])
@pytest.mark.parametrize("is_sync", [False, True], ids=["coroutine", "thread"])
async def test_tool_calls_of_a_response_are_made_all_or_none(
    bench: Bench, conversation_id: str, is_inner: bool, is_sync: bool
):
    ran: list[int] = []

    def add(n: int) -> str:
        """Add."""
        ran.append(n)
        return "added"

    agent: Any = create_agent(answering(), [add])
    if is_inner:
        graph: Any = StateGraph(MessagesState)

        async def node(state: MessagesState) -> Any:
            return await agent.ainvoke({"messages": state["messages"]})

        def synchronous(state: MessagesState) -> Any:
            return agent.invoke({"messages": state["messages"]})

        graph.add_node("inner", synchronous if is_sync else node)
        graph.add_edge(START, "inner")
    elif is_sync:
        model = answering()
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([add]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges(
            "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
        )
        graph.add_edge("tools", "model")
    else:
        graph = agent
    adapter = LangChainAdapter(
        graph, budget=RequestBudget(tool_call_limit=2), model_nodes=["inner"] if is_inner else None
    )
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "2")).output == "done"
    assert sorted(ran) == [0, 1]
    error = await refused(conversation.ask("agent", "3"))
    assert "tool_call_limit is 2, 0 are consumed and this takes 3 more" in error.error_message
    assert sorted(ran) == [0, 1]


async def test_each_request_of_a_node_counts(bench: Bench, conversation_id: str):
    """Two at once in one node; one more than the budget has is not sent, and no retry of a middleware's gets past."""
    asked = 0

    def answer(messages: list[BaseMessage]) -> AIMessage:
        nonlocal asked
        asked += 1
        return said("so")

    model = ScriptedModel(answer=answer)

    async def both(state: MessagesState) -> Any:
        first, second = await asyncio.gather(model.ainvoke("one"), model.ainvoke("two"))
        return {"messages": [AIMessage(f"{first.text} {second.text}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("both", both)
    graph.add_edge(START, "both")
    retrying = create_agent(model, [], middleware=[ModelRetryMiddleware(max_retries=3, initial_delay=0)])
    budget = RequestBudget(request_limit=3, max_total_input_tokens=1000)
    client = await bench.serve({"both": LangChainAdapter(graph), "retrying": LangChainAdapter(retrying)})
    conversation = client.conversation(conversation_id, budget=budget)
    assert (await conversation.ask("both", "go")).output == "so so"
    requests, tokens = (await conversation.status("both")).headroom
    assert (requests.consumed, tokens.consumed) == (2, 2 * USAGE["input_tokens"]), "settled, each by itself"
    error = await refused(conversation.ask("both", "go"))
    assert (error.error_type, asked) == ("BudgetExceeded", 3)
    error = await refused(conversation.ask("retrying", "go", budget=RequestBudget(request_limit=0)))
    assert (error.error_type, asked) == ("BudgetExceeded", 3)


async def test_requests_that_fail_count_and_what_has_finished_is_not_counted_again(bench: Bench, conversation_id: str):
    """Two model nodes side by side: one answers, the other fails twice on its way."""
    asked = {"sure": 0, "shaky": 0}

    def sure(messages: list[BaseMessage]) -> AIMessage:
        asked["sure"] += 1
        return said("sure")

    async def shaky(messages: list[BaseMessage]) -> AIMessage:
        asked["shaky"] += 1
        while not asked["sure"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        if asked["shaky"] < 3:
            raise ConnectionError("gone")
        return said("at last")

    models = {"sure": ScriptedModel(answer=sure), "shaky": ScriptedModel(answer=shaky)}
    graph: Any = StateGraph(MessagesState)
    for name, model in models.items():

        async def node(state: MessagesState, model: ScriptedModel = model) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph.add_node(name, node)
        graph.add_edge(START, name)
    quick = RetryPolicy(first_delay=timedelta(milliseconds=10))
    client = await bench.serve({"agent": LangChainAdapter(graph, retry_policy=quick)})
    conversation = client.conversation(conversation_id, budget=RequestBudget(request_limit=9, tool_call_limit=1))
    record = await (await conversation.submit("agent", "hello")).committed()
    assert asked == {"sure": 1, "shaky": 3}
    requests, _ = (await conversation.status("agent")).headroom
    assert (requests.consumed, record.usage.requests) == (4, 2)


async def test_a_request_over_the_budget_never_reaches_the_provider(bench: Bench, conversation_id: str):
    """The system's text, schemas and the reserved output count; a measured history is not counted twice."""

    def add(n: int) -> str:
        """Add a number to the sum, however large or small it is."""
        return str(n)

    async with wire(always("word " * 50)) as provider:
        model = provider.langchain_model("chat", max_tokens=300)
        agent: Any = create_agent(model, [add], system_prompt="Be brief. " * 30)
        client = await bench.serve({"agent": LangChainAdapter(agent, budget=RequestBudget(max_request_tokens=900))})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "hello")
        await conversation.ask("agent", "hello again")
        error = await refused(conversation.ask("agent", "word " * 400))
        assert error.error_type == "fit-overflow"
        for words in ("max_request_tokens is 900", "of new content", "of tool schemas", "300 reserved for the output"):
            assert words in error.error_message
        for words in (" 0 measured", " 0 of instructions", " 0 of tool schemas"):
            assert words not in error.error_message
        assert len(provider.server.requests) == 2
        await conversation.ask("agent", "short")
        assert len(provider.server.requests) == 3


async def test_what_stops_the_worker_is_refused(bench: Bench, conversation_id: str):
    """A model that is asked synchronously in an asynchronous node cannot be asked about."""
    model = answering()

    async def blocking(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("blocking", blocking)
    graph.add_edge(START, "blocking")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    conversation = client.conversation(conversation_id)
    error = await refused(conversation.ask("agent", "0", budget=RequestBudget(request_limit=1)))
    assert error.error_type == "ConfigurationError"
    assert "use ainvoke()" in error.error_message


async def test_a_delegate_is_bound_by_the_budget_of_the_tree(bench: Bench, conversation_id: str):
    asked = 0

    def read(messages: list[BaseMessage]) -> AIMessage:
        nonlocal asked
        asked += 1
        return said("read")

    def lead(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], HumanMessage):
            calls = range(int(messages[-1].text))
            return called(*(("delegate_to_reader", {"brief": f"b{n}"}, f"d{n}") for n in calls))
        return said("; ".join(str(one.text) for one in messages if one.type == "tool"))

    delegates = {"reader": Delegation("reader", "reads")}
    graph: Any = create_agent(ScriptedModel(answer=lead), LangChainAdapter.delegate_tools(delegates))
    agents: Any = {
        "lead": LangChainAdapter(graph, delegates=delegates),
        "reader": LangChainAdapter(create_agent(ScriptedModel(answer=read), [])),
    }
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    two = RequestBudget(request_limit=3, tool_call_limit=1)
    assert (await conversation.ask("lead", "1", budget=two)).output == "read"
    error = await refused(conversation.ask("lead", "1", budget=RequestBudget(request_limit=2)))
    assert (error.error_type, asked) == ("BudgetExceeded", 2)
    one = await refused(conversation.ask("lead", "2", budget=RequestBudget(request_limit=2, tool_call_limit=2)))
    assert one.error_type == "BudgetExceeded"
    assert asked == 3, "of two readers at once one had what was left"


def test_a_history_that_is_not_sent_whole_is_not_taken_for_measured():
    messages = [
        HumanMessage("word " * 100, id="a"),
        AIMessage("re", id="b", usage_metadata={"input_tokens": 5000, "output_tokens": 1, "total_tokens": 5001}),
        HumanMessage("and", id="c"),
    ]
    before = Sized(messages, framing=40)
    whole = estimate_of(messages, {"tools": [{"name": "add"}]}, before)
    assert (whole.measured_tokens, whole.estimated_tokens) == (5001, 0)
    assert whole.new_tokens > 0
    assert whole.input_tokens == 5001 + whole.new_tokens, "the schema was in what was measured"
    assert estimate_of(messages[1:], {}, before).measured_tokens == 0
    assert estimate_of(messages, {}, Sized(messages, live=2)).measured_tokens == 0
    assert estimate_of([HumanMessage("other")], {}, before).measured_tokens == 0
