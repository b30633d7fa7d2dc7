"""Compaction on demand of a graph's lane: messages, the state beside them, and what the summary costs."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from redis.asyncio import Redis

from laneway import LangChainAdapter, RequestBudget, Settings, SummarizationProcessor
from laneway.history.compaction import Compaction, CompactionReport
from laneway.history.processor_summary import SUMMARY_OPENING

from tests.adapters.scripted import Plan
from tests.editing.agents import LangChainRecorder
from tests.editing.test_crashes import EditedLane
from tests.langchain.graphs import ScriptedModel, said
from tests.support.bench import Bench
from tests.support.provider import always
from tests.wire.providers import wire

texts_of = LangChainRecorder.texts_of


async def test_the_graphs_own_model_sums_up_what_is_old(bench: Bench, conversation_id: str):
    """The next turn goes on from the summary; a budget binds it; doing it again does nothing."""
    async with wire(always("short")) as provider:
        agent: Any = create_agent(provider.langchain_model("chat"), [], system_prompt="Be brief.")
        client = await bench.serve({"agent": LangChainAdapter(agent)})
        conversation = client.conversation(conversation_id)
        assert (await conversation.compact("agent")).reason == "the lane has no history yet"
        for n in range(3):
            await conversation.ask("agent", f"q{n} " + "word " * 100)
        bounded = client.conversation(conversation_id, budget=RequestBudget(request_limit=3))
        assert "BudgetExceeded" in ((await bounded.compact("agent")).reason or "")
        assert len(provider.server.requests) == 3
        report = await conversation.compact("agent", focus="order numbers", turn_id="c1")
        assert report.compacted
        assert report.receipt is not None
        assert (report.receipt.entries_before, report.receipt.entries_after) == (6, 3)
        assert report.usage.requests == 1
        assert "Pay particular attention to: order numbers" in str(provider.server.requests[-1].body)
        texts = texts_of(await conversation.messages("agent"))
        assert texts[0] == f"{SUMMARY_OPENING}\n\nshort"
        assert (len(texts), texts[1][:3]) == (3, "q2 ")
        assert (await conversation.compact("agent", focus="order numbers", turn_id="c1")) == report, "it is done once"
        assert "nothing to sum up" in ((await conversation.compact("agent")).reason or "")
        await conversation.ask("agent", "and now?")
        sent = str(provider.server.requests[-1].body["messages"])
        assert SUMMARY_OPENING in sent
        assert "Be brief." in sent
        assert "q0 " not in sent
        assert (await conversation.status("agent")).epoch == 1


class Noting(MessagesState):
    noted: Annotated[list[Any], add_messages]
    count: int


async def test_other_channels_keep_what_they_hold(bench: Bench, conversation_id: str):
    """Messages in another channel that are in the history no more, and those that still are."""
    model = ScriptedModel(answer=lambda messages: said(f"re: {messages[-1].text}"))

    async def node(state: Noting) -> Any:
        answer = await model.ainvoke(state["messages"])
        return {"messages": [answer], "noted": [state["messages"][-1]], "count": state.get("count", 0) + 1}

    graph: Any = StateGraph(Noting)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    summaries = SummarizationProcessor(summarizer=lambda text: "SUM", trigger=("messages", 100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        adapter = LangChainAdapter(graph, history_processor=summaries)
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    for n in range(3):
        await conversation.ask("agent", f"q{n}")
    assert (await conversation.compact("agent")).compacted
    assert texts_of(await conversation.messages("agent")) == [f"{SUMMARY_OPENING}\n\nSUM", "q2", "re: q2"]
    state = await conversation.state("agent")
    assert (texts_of(state["noted"]), state["count"]) == (["q0", "q1", "q2"], 3)
    assert (await conversation.ask("agent", "q3")).output == "re: q3"
    state = await conversation.state("agent")
    assert (texts_of(state["noted"]), state["count"]) == (["q0", "q1", "q2", "q3"], 4)
    assert texts_of(state["messages"])[0] == f"{SUMMARY_OPENING}\n\nSUM"


async def test_a_graph_without_a_model_that_is_found_says_so(bench: Bench, conversation_id: str):
    graph: Any = StateGraph(MessagesState)
    graph.add_node("echo", lambda state: {"messages": [AIMessage(f"re: {state['messages'][-1].text}")]})
    graph.add_edge(START, "echo")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    assert "give the adapter a SummarizationProcessor" in ((await conversation.compact("agent")).reason or "")


class CompactedGraphLane(EditedLane):
    """Two turns of a graph, then a compaction whose workers die."""

    paid = 0

    def _summarize(self, text: str) -> str:
        self.paid += 1
        return "SUM"

    def adapter(self) -> Any:
        recorder: Any = self.recorder
        return recorder.adapter(SummarizationProcessor(summarizer=self._summarize))


@pytest.mark.parametrize("death", [(0, False), (0, True), (1, False), (1, True)], ids=str)
async def test_a_compaction_whose_worker_dies_comes_out_the_same(redis: Redis, settings: Settings, death: Any):
    recorder: Any = LangChainRecorder()
    lane = CompactedGraphLane(redis, settings.redis_prefix, Plan("text", ()), recorder=recorder)
    await lane.ask("t0", "q0")
    await lane.ask("t1", "q1")
    lane.deaths = [death]
    report = CompactionReport.of(await lane.take("compact", Compaction("x").to_bytes()))
    assert report.compacted
    assert lane.deaths == []
    assert lane.paid == (2 if death == (0, False) else 1)
    messages: Any = await lane.messages()
    assert texts_of(messages) == [f"{SUMMARY_OPENING}\n\nSUM", "q1", "re: q1"]
