"""Summaries of a graph's own model: they send what the provider has cached, and only where they can."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph

from laneway import LangChainAdapter, SummarizationProcessor
from laneway.history.processor_summary import SUMMARY_OPENING

from tests.support.bench import Bench
from tests.support.provider import RequestRecord, always, by_step, call
from tests.wire.providers import APIS, Api, Wire, add, wire

ABOVE = "It is the conversation above."


def summarized(graph: Any, model: Any, **options: Any) -> LangChainAdapter:
    summary = SummarizationProcessor(model, trigger=("messages", 5), keep=("messages", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LangChainAdapter(graph, history_processor=summary, **options)


def agent(model: BaseChatModel) -> Any:
    return create_agent(model, [add], system_prompt="You can count.")


def graph(model: BaseChatModel) -> Any:
    """A node of one's own, with system text of its own before the history and a reminder after it."""
    bound = model.bind_tools([add])

    async def ask(state: MessagesState) -> dict[str, Any]:
        opening, reminder = SystemMessage("You can count."), HumanMessage("Be brief.")
        return {"messages": [await bound.ainvoke([opening, *state["messages"], reminder])]}

    built = StateGraph(MessagesState)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    return built


def said(record: RequestRecord) -> list[Any]:
    """What a request carries, in order: tools and system text first."""
    body = record.body
    items = body["messages"] if "messages" in body else body["input"]
    return [body.get("tools"), body.get("system"), body.get("instructions"), *items]


def summaries(provider: Wire) -> list[RequestRecord]:
    """The requests that ask for one: a step that is tried again asks anew, so they have no fixed place."""
    return [one for one in provider.server.requests if is_summary(one)]


def is_summary(record: RequestRecord) -> bool:
    last = str(said(record)[-1])
    return ABOVE in last or "<conversation>" in last


async def asked_thrice(bench: Bench, conversation_id: str, adapter: LangChainAdapter) -> Any:
    """Three turns, of which the last one begins with a summary; its record."""
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    for n in range(3):
        turn = await conversation.submit("agent", f"q{n} " + "word " * 300)
        record = await turn.committed()
    messages = await conversation.messages("agent")
    assert str(messages[0].text).startswith(SUMMARY_OPENING)
    return record


@pytest.mark.parametrize("make", [agent, graph])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", APIS)
async def test_a_summary_sends_what_the_graph_s_node_has_sent(
    bench: Bench, conversation_id: str, api: Api, stream: bool, make: Callable[[BaseChatModel], Any]
):
    """Tools, system text and messages, value for value, and an instruction after them."""
    async with wire(always("word " * 300)) as provider:
        model = provider.langchain_model(api)
        record = await asked_thrice(bench, conversation_id, summarized(make(model), model, stream=stream))
        (summary,) = summaries(provider)
        second = provider.server.requests[provider.server.requests.index(summary) - 1]
        before, sent = said(second), said(summary)
        same = len(before) - (make is graph)  # without the reminder
        assert sent[:same] == before[:same]
        # The last answer, and the instruction. Anthropic is sent the reminder as a part of the prompt.
        assert len(sent) == same + 2 + (make is graph and api == "messages")
        assert ABOVE in str(sent[-1])
        (edit,) = record.tally.edits
        assert [one.outcome for one in edit.calls] == ["answered"]
        assert record.usage.requests == 2
        if api != "messages":  # which caches only what it is told to
            assert edit.calls[0].usage.cache_read_tokens > 0.5 * edit.calls[0].usage.input_tokens


async def test_compacting_on_demand_sends_it_too(bench: Bench, conversation_id: str):
    async with wire(always("fine")) as provider:
        model = provider.langchain_model("chat")
        client = await bench.serve({"agent": LangChainAdapter(agent(model))})
        conversation = client.conversation(conversation_id)
        for n in range(2):
            await conversation.ask("agent", f"q{n}")
        assert (await conversation.compact("agent", focus="numbers")).compacted
        first, (summary,) = provider.server.requests[0], summaries(provider)
        assert said(summary)[: len(said(first))] == said(first)
        assert "Pay particular attention to: numbers" in str(said(summary)[-1])


async def test_a_model_that_calls_a_tool_instead_is_asked_about_a_text(bench: Bench, conversation_id: str):
    """Both requests are counted."""
    answers = by_step(["one"], ["two"], [[call("add", {"a": 1, "b": 1})]])

    def script(request: Any) -> Any:
        if ABOVE in request.prompt:
            return call("add", {"a": 1, "b": 1})
        if "<conversation>" in request.prompt:
            return "SUM"
        return "three" if SUMMARY_OPENING in str(request.body) else answers(request)

    async with wire(script) as provider:
        model = provider.langchain_model("chat")
        record = await asked_thrice(bench, conversation_id, summarized(agent(model), model))
        cached, text = summaries(provider)
        assert [bool(one.body.get("tools")) for one in (cached, text)] == [True, False]
        (edit,) = record.tally.edits
        assert edit.calls[0].usage.requests == 2
        assert record.usage.requests == 3


class Shortening(AgentMiddleware[Any, Any]):
    """Sends the last message alone."""

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(messages=request.messages[-1:]))


def shortened(provider: Wire) -> Any:
    model = provider.langchain_model("chat")
    return summarized(create_agent(model, [add], middleware=[Shortening()]), model)


def another(provider: Wire) -> Any:
    return summarized(agent(provider.langchain_model("chat")), provider.langchain_model("chat", reasoning_effort="low"))


def forced(provider: Wire) -> Any:
    model = provider.langchain_model("chat")
    bound = model.bind_tools([add], tool_choice="none").bind(response_format={"type": "json_object"})

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    return summarized(built, model)


@pytest.mark.parametrize("make", [shortened, another, forced])
async def test_elsewhere_the_messages_are_sent_as_text(bench: Bench, conversation_id: str, make: Callable[[Wire], Any]):
    """Where the node sent others, where another model sums up, and where the answer would have to be something else."""
    async with wire(always('{"fine": "JSON"}')) as provider:
        await asked_thrice(bench, conversation_id, make(provider))
        (summary,) = summaries(provider)
        assert summary.body.get("tools") is None
        (message,) = summary.body["messages"]
        assert "user: q0 word word" in str(message)


async def test_a_model_that_is_set_up_alike_is_the_same(bench: Bench, conversation_id: str):
    async with wire(always("word " * 300)) as provider:
        one, other = provider.langchain_model("chat"), provider.langchain_model("chat")
        await asked_thrice(bench, conversation_id, summarized(agent(one), other))
        assert [ABOVE in str(one.body["messages"][-1]) for one in summaries(provider)] == [True]
