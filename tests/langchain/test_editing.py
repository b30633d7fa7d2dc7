"""History editing before the model nodes of a graph, on its lane."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from redis.asyncio import Redis

from laneway import HistoryProcessorContext, HistoryProcessorState, LanewayClient, LangChainAdapter, Settings
from laneway.errors import ConfigurationError, HistoryProcessingValidationError, TurnFailed

from tests.langchain.graphs import ScriptedModel, called, said
from tests.langchain.two_ways import Lane
from tests.support.bench import Bench


def clock() -> str:
    """The time."""
    return "noon"


class Watched:
    """An agent that calls a tool and answers, and what its model was sent."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.states: list[HistoryProcessorState] = []

    def agent(self) -> Any:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            self.sent.append([f"{message.type} {message.text}".strip() for message in messages])
            if isinstance(messages[-1], HumanMessage):
                return called(("clock", {}, f"c{len(self.sent)}"))
            return said(f"answer {len(self.sent)}")

        return create_agent(ScriptedModel(answer=answer), [clock])

    def condition(self, state: HistoryProcessorState) -> bool:
        self.states.append(state)
        return state.estimated_tokens > 20


def keep_one(context: HistoryProcessorContext[BaseMessage]) -> Sequence[BaseMessage]:
    """The last group, and what is current."""
    return context.keep_recent_groups(1)


def adapter(watched: Watched, **settings: Any) -> LangChainAdapter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LangChainAdapter(watched.agent(), **settings)


async def test_an_edit_is_sent_and_stored_as_an_epoch_of_its_own(bench: Bench, conversation_id: str):
    """Before each model node, a tool loop's later ones included; the graph's state has what was sent."""
    watched = Watched()
    client = await bench.serve({"agent": adapter(watched, history_processor=keep_one)})
    conversation = client.conversation(conversation_id)
    for number in (1, 2, 3):
        await conversation.ask("agent", f"question {number}")
    assert watched.sent[4:] == [
        ["human question 2", "ai", "tool noon", "ai answer 4", "human question 3"],
        ["human question 2", "ai", "tool noon", "ai answer 4", "human question 3", "ai", "tool noon"],
    ]
    messages = await conversation.messages("agent")
    assert [message.text for message in messages if message.type == "human"] == ["question 2", "question 3"]
    assert (await conversation.state("agent"))["messages"] == messages
    assert (await conversation.status("agent")).epoch == 1
    lane = conversation.lane("agent")
    last = (await client.turns(lane))[-1].tally
    assert (len(last.edits), last.noops) == (1, 1)
    assert (last.edits[0].request_index, last.edits[0].epoch_after) == (1, 1)
    assert last.edits[0].processor.endswith("keep_one")


async def test_a_condition_decides_and_says_so(bench: Bench, conversation_id: str):
    watched = Watched()
    processor = {"history_processor": keep_one, "history_processor_condition": watched.condition}
    client = await bench.serve({"agent": adapter(watched, **processor)})
    conversation = client.conversation(conversation_id)
    for number in (1, 2):
        await conversation.ask("agent", f"question {number}")
    assert [state.request_index for state in watched.states] == [1, 2, 1, 2]
    assert {state.adapter_shortname for state in watched.states} == {"langchain"}
    assert {state.model_id for state in watched.states} == {"scripted:scripted"}
    first, second = [record.tally for record in await client.turns(conversation.lane("agent"))]
    assert first.skips + first.noops + second.skips + second.noops == 4


async def test_what_may_not_be_sent_fails_the_turn_before_its_request(bench: Bench, conversation_id: str):
    """An orphan result is named; nothing was asked, and nothing is kept."""

    def orphaned(context: HistoryProcessorContext[BaseMessage]) -> Sequence[BaseMessage]:
        return [message for message in context.messages if not isinstance(message, AIMessage)]

    watched = Watched()
    client = await bench.serve({"agent": adapter(watched, history_processor=orphaned)})
    with pytest.raises(TurnFailed) as error:
        await client.conversation(conversation_id).ask("agent", "question")
    assert error.value.error_type == HistoryProcessingValidationError.__name__
    assert len(watched.sent) == 1
    assert await client.conversation(conversation_id).messages("agent") == []


def test_a_processor_needs_a_model_node():
    def node(state: MessagesState) -> dict[str, Any]:
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    with pytest.raises(ConfigurationError, match="name the nodes that ask one with model_nodes"):
        LangChainAdapter(graph, history_processor=keep_one)
    with pytest.warns(UserWarning, match="requests after an edit can cost more"):
        LangChainAdapter(graph, history_processor=keep_one, model_nodes=["node"])
    with pytest.raises(ConfigurationError, match="no node 'nodes' to be one of model_nodes; its nodes are: node"):
        LangChainAdapter(graph, model_nodes=["nodes"])


async def test_an_edit_is_made_once_whatever_dies(redis: Redis, settings: Settings):
    """The processor answers otherwise each time; the history is the one that the first answer made."""
    watched, made = Watched(), []

    def numbered(context: HistoryProcessorContext[BaseMessage]) -> Sequence[BaseMessage]:
        made.append(len(made))
        return [HumanMessage(f"summary {len(made)}"), *context.keep_recent_groups(0)]

    class Edited(Lane):
        def adapter(self) -> LangChainAdapter:
            return adapter(watched, history_processor=numbered)

    plan: Any = None
    # In the step that edits: before the model's answer is kept, after it, and before the step is staged.
    lane = Edited(redis, settings.redis_prefix, plan, deaths=[(1, False), (1, False), None])
    ended = await lane.turn(0)
    assert ended.error is None
    assert [m.text for m in ended.messages if m.type == "human"] == ["summary 2", "prompt 0"]
    assert len(made) == 2
    assert [sent[0] for sent in watched.sent[:2]] == ["human summary 1"] * 2


async def test_a_history_made_elsewhere_opens_a_lane(bench: Bench, conversation_id: str):
    """Its messages have ids of their own by then, and the graph goes on from them."""
    watched = Watched()
    client: LanewayClient = await bench.serve({"agent": LangChainAdapter(watched.agent())})
    conversation = client.conversation(conversation_id)
    await conversation.import_messages("agent", [HumanMessage("before"), AIMessage("yes")])
    assert (await conversation.ask("agent", "now")).output == "answer 2"
    assert watched.sent[0] == ["human before", "ai yes", "human now"]
    messages = await conversation.messages("agent")
    assert len({message.id for message in messages}) == len(messages) == 6


async def test_a_graph_that_forgets_writes_an_epoch(bench: Bench, conversation_id: str):
    """`RemoveMessage` is carried out, and never stored."""

    def forget(state: MessagesState) -> dict[str, Any]:
        kept = state["messages"][-1]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), kept, AIMessage(f"kept {kept.text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("forget", forget)
    graph.add_edge(START, "forget")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    conversation = client.conversation(conversation_id)
    for number in (1, 2):
        assert (await conversation.ask("agent", f"question {number}")).output == f"kept question {number}"
    assert [message.text for message in await conversation.messages("agent")] == ["question 2", "kept question 2"]
    assert (await conversation.status("agent")).epoch == 1
