"""What a lane's saver refuses, and what nodes are told of where they run."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from redis.asyncio import Redis

from laneway import LangChainAdapter, Settings
from laneway.activities.langchain_lane import LaneGraph

from tests.support.stepped_lane import SteppedLane


def looks_back(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Ask for earlier checkpoints where the prompt says so; else say where it runs."""
    names = config["configurable"]
    if state["messages"][-1].text == "look back":
        saver = next(value for key, value in names.items() if key == "__pregel_checkpointer")
        list(saver.list(config))
    return {"messages": [AIMessage(f"turn {names['turn_id']} of {names['thread_id']}")]}


class LookingLane(SteppedLane):
    def adapter(self) -> LangChainAdapter:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("look", looks_back)
        graph.add_edge(START, "look")
        return LangChainAdapter(graph)


async def test_a_node_that_looks_for_earlier_checkpoints_is_told_what_to_do(redis: Redis, settings: Settings):
    """Its turn fails by name; the lane goes on, and nodes know their conversation and turn."""
    lane = LookingLane(redis, settings.redis_prefix, None)
    record = await lane.ask("t0", "look back")
    assert (record.outcome, record.error_type) == ("failed", "InvalidInput")
    assert "laneway.langgraph.RedisSaver" in (record.error_message or "")
    await lane.ask("t1", "where?")
    assert [message.text for message in await lane.messages()] == ["where?", f"turn t1 of {lane.conversation}"]


def test_what_is_known_of_a_model_goes_before_what_its_name_tells():
    def ask(state: MessagesState) -> dict[str, Any]:
        return {}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    for known, binds in ((None, False), (True, True), (False, False)):
        lane: LaneGraph = LangChainAdapter(graph, model_nodes=["ask"], binds_reasoning=known)._lane
        assert lane.models["ask"].binds_reasoning is binds
