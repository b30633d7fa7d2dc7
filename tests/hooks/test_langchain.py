"""The same hooks around turns of a LangChain agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from laneway import AfterTool, BeforeTool, Deny, Edit, Hooks, LangChainAdapter, TurnDenied
from laneway.activities.hooks import HOOK_NAMES, AfterModelRequest, BeforeModelRequest
from laneway.errors import TurnFailed

from tests.hooks import told
from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench


def agent_of(sent: list[list[str]], hooks: Hooks) -> LangChainAdapter:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        sent.append([str(message.text) for message in messages])
        start = max(i for i, one in enumerate(messages) if isinstance(one, HumanMessage))
        if "look" in str(messages[start].text) and start == len(messages) - 1:
            call = {"name": "look", "args": {}, "id": f"call-{len(messages)}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(f"re: {messages[start].text}")

    def look() -> str:
        """Look."""
        return "seen"

    return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [look]), hooks=hooks)


async def test_hooks_edit_prompts_and_are_told_of_model_requests(bench: Bench, conversation_id: str):
    sent: list[list[str]] = []
    seen: list[Any] = []
    hooks = Hooks(
        user_prompt_submit=lambda event: Edit(f"{event.prompt}!"),
        before_model_request=seen.append,
        after_model_request=seen.append,
    )
    client = await bench.serve({"agent": agent_of(sent, hooks)})
    result = await client.conversation(conversation_id).ask("agent", "look")
    assert result.output == "re: look!"
    assert sent == [["look!"], ["look!", "", "seen"]]
    assert [type(event) for event in seen] == [BeforeModelRequest, AfterModelRequest] * 2
    assert [event.request_index for event in seen] == [1, 1, 2, 2]
    assert [(event.text, event.tools) for event in seen if isinstance(event, AfterModelRequest)] == [
        ("", ("look",)),
        ("re: look!", ()),
    ]


async def test_a_prompt_and_a_model_request_can_be_denied(bench: Bench, conversation_id: str):
    sent: list[list[str]] = []
    hooks = Hooks(before_model_request=lambda event: Deny("enough") if event.request_index == 2 else None)
    client = await bench.serve({"agent": agent_of(sent, hooks)})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnDenied, match="enough"):
        await conversation.ask("agent", "look")
    async with client.scope(hooks=Hooks(user_prompt_submit=told.no_secrets)):
        with pytest.raises(TurnDenied, match="it has a secret"):
            await conversation.ask("agent", "the secret")
    assert (await conversation.ask("agent", "hello")).output == "re: hello"
    assert sent == [["look"], ["hello"]]


async def until_told(seen: list[Any], count: int) -> None:
    """Those of a turn's end are told after the caller has the result."""
    async with asyncio.timeout(30):
        while len(seen) < count:
            await asyncio.sleep(0.01)


async def test_hooks_around_tools_are_called_in_order_once_each(bench: Bench, conversation_id: str):
    seen: list[Any] = []
    every: dict[str, Any] = dict.fromkeys(HOOK_NAMES, seen.append)
    client = await bench.serve({"agent": agent_of([], Hooks(**every))})
    await client.conversation(conversation_id).ask("agent", "look")
    await until_told(seen, 8)
    assert [type(event).__name__ for event in seen] == [
        "UserPromptSubmit", "BeforeModelRequest", "AfterModelRequest", "BeforeTool", "AfterTool",
        "BeforeModelRequest", "AfterModelRequest", "TurnEnd",
    ]  # fmt: skip
    (after,) = (event for event in seen if isinstance(event, AfterTool))
    assert (after.tool, after.arguments, after.call_id, after.outcome) == ("look", {}, "call-1", "returned")
    assert after.step == 1


def many(ran: list[str], *, in_one_task: bool, **wrapper: Any) -> Any:
    """A graph whose model calls two tools at once; each a task, or both in one of a subgraph."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return said(", ".join(f"{m.text} ({m.status})" for m in messages if isinstance(m, ToolMessage)))
        return called(("fetch", {"what": "a"}, "c1"), ("fetch", {"what": "b"}, "c2"))

    def fetch(what: str) -> str:
        """Fetch."""
        ran.append(what)
        return f"fetched {what}"

    model = ScriptedModel(answer=answer)
    if not in_one_task:
        return create_agent(model, [fetch])
    inner: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    inner.add_node("tools", ToolNode([fetch], handle_tool_errors=True, **wrapper))
    inner.add_edge(START, "tools")
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    ask = lambda state: {"messages": [model.invoke(state["messages"])]}  # noqa: E731
    graph.add_node("first", ask)
    graph.add_node("inner", inner.compile())
    graph.add_node("last", ask)
    graph.add_edge(START, "first")
    graph.add_edge("first", "inner")
    graph.add_edge("inner", "last")
    return graph


def no_b(event: BeforeTool) -> Deny | None:
    return Deny("not b") if event.arguments["what"] == "b" else None


@pytest.mark.parametrize("in_one_task", [False, True], ids=["agent", "tool node in a subgraph"])
async def test_a_tool_that_is_denied_is_not_run_and_the_model_is_told(
    bench: Bench, conversation_id: str, in_one_task: bool
):
    ran: list[str] = []
    after: list[AfterTool] = []
    adapter = LangChainAdapter(
        many(ran, in_one_task=in_one_task), hooks=Hooks(before_tool=no_b, after_tool=after.append)
    )
    client = await bench.serve({"agent": adapter})
    result = await client.conversation(conversation_id).ask("agent", "go")
    assert result.output == "fetched a (success), not b (error)"
    assert ran == ["a"]
    assert sorted((event.call_id, event.outcome) for event in after) == [("c1", "returned"), ("c2", "failed")]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_hooks_see_what_a_wrapper_makes_of_a_call(bench: Bench, conversation_id: str, sync: bool):
    """They are asked inside of the node's own wrapper: about what the tool is given."""
    ran: list[str] = []
    asked: list[BeforeTool] = []

    def changed(request: ToolCallRequest) -> ToolCallRequest:
        return request.override(
            tool_call={**request.tool_call, "args": {"what": request.tool_call["args"]["what"] * 2}}
        )

    async def wrap(request: ToolCallRequest, execute: Any) -> Any:
        return await execute(changed(request))

    wrapper: dict[str, Any] = {"awrap_tool_call": wrap}
    if sync:
        wrapper = {"wrap_tool_call": lambda request, execute: execute(changed(request))}
    graph = many(ran, in_one_task=True, **wrapper)
    client = await bench.serve({"agent": LangChainAdapter(graph, hooks=Hooks(before_tool=asked.append))})
    await client.conversation(conversation_id).ask("agent", "go")
    assert sorted(event.arguments["what"] for event in asked) == sorted(ran) == ["aa", "bb"]


async def test_a_cancelled_turn_stops_a_tool_inside_of_a_synchronous_wrapper(bench: Bench, conversation_id: str):
    """The wrapper's thread cannot be stopped, and what it waits for can."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def fetch(what: str) -> str:
        """Fetch."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    model = ScriptedModel(answer=lambda messages: called(("fetch", {"what": "a"}, "c1")))
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("first", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([fetch], wrap_tool_call=lambda request, execute: execute(request)))
    graph.add_edge(START, "first")
    graph.add_edge("first", "tools")
    client = await bench.serve({"agent": LangChainAdapter(graph, hooks=Hooks(before_tool=told.note))})
    turn = await client.conversation(conversation_id).submit("agent", "go")
    await asyncio.wait_for(begun.wait(), 30)
    assert await turn.cancel() == "cancelled"
    await asyncio.wait_for(stopped.wait(), 30)


async def test_a_hook_that_fails_fails_the_turn_though_tool_errors_are_handled(bench: Bench, conversation_id: str):
    """Its failure is no tool's, so no tool node makes a message of it."""
    ran: list[str] = []

    def broken(event: BeforeTool) -> None:
        raise ValueError("no idea")

    adapter = LangChainAdapter(many(ran, in_one_task=True), hooks=Hooks(before_tool=broken))
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match="no idea") as failed:
        await conversation.ask("agent", "go")
    assert failed.value.error_type == "HookError"
    assert ran == []
    assert await conversation.messages("agent") == []


async def test_a_tool_that_no_hook_could_be_asked_about_is_not_run(bench: Bench, conversation_id: str):
    ran: list[str] = []

    @tool
    def fetch(what: str) -> str:
        """Fetch."""
        ran.append(what)
        return "fetched"

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(await fetch.ainvoke({"what": "a"}))]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "go")).output == "fetched"
    async with client.scope(hooks=Hooks(before_tool=told.note)):
        with pytest.raises(TurnFailed, match="'fetch' is run outside of the graph's tool nodes"):
            await conversation.ask("agent", "go")
    assert ran == ["a"]
