"""A graph's other channels begin anew with each turn, as its messages do, where its turns begin with a text window."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph

from laneway import LangChainAdapter, TextWindow

from tests.langchain.graphs import ScriptedModel, said
from tests.support.bench import Bench


class Notes(MessagesState):
    """Messages, and channels of two kinds: one that grows, one that is written over."""

    notes: Annotated[list[str], operator.add]
    latest: str


def noting() -> StateGraph[Any, Any, Any, Any]:
    """Notes what it is told in one superstep, and says in the next all that it has noted."""

    def note(state: Notes) -> dict[str, Any]:
        prompt = str(state["messages"][-1].text).splitlines()[-1]
        before = state.get("latest", "nothing")
        return {"notes": [prompt.removeprefix("user: ")], "latest": f"{prompt} after {before}"}

    async def say(state: Notes) -> dict[str, Any]:
        model = ScriptedModel(answer=lambda messages: said(f"{', '.join(state['notes'])} ({state['latest']})"))
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Notes)
    graph.add_node("note", note)
    graph.add_node("say", say)
    graph.add_edge(START, "note")
    graph.add_edge("note", "say")
    return graph


@pytest.mark.parametrize("window", [TextWindow(6), TextWindow(0), None], ids=repr)
async def test_channels_begin_anew_with_each_turn_of_a_window(
    bench: Bench, conversation_id: str, window: TextWindow | None
):
    """Within a turn they hold from one superstep to the next; without a window, from turn to turn."""
    client = await bench.serve({"agent": LangChainAdapter(noting(), history=window, model_nodes=["say"])})
    conversation = client.conversation(conversation_id)
    told = [str((await conversation.ask("agent", prompt)).output) for prompt in ("one", "two", "three")]
    state = await conversation.state("agent")
    if window is None:
        assert told[-1].startswith("one, two, three (three after two after one after nothing")
        assert state["notes"] == ["one", "two", "three"]
        return
    for prompt, answer in zip(("one", "two", "three"), told, strict=True):
        assert answer.startswith(f"{prompt} (")
        assert answer.endswith("after nothing)")
    assert not state.get("notes"), "nothing of them is kept"
    assert len(state["messages"]) == len(await conversation.messages("agent")) == 6, "of the messages all are"
