"""Workers die in the middle of supersteps: what had finished is kept, and no answer is paid twice."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from redis.asyncio import Redis

from laneway import LangChainAdapter, Settings

from tests.langchain.graphs import ScriptedModel, said
from tests.langchain.two_ways import Lane


class State(MessagesState):
    found: Annotated[list[str], operator.add]


@dataclass
class Dying(Lane):
    """A lane of a graph that counts what it runs.

    Attributes:
        ran: how often each node was run, and each model asked.
    """

    ran: Counter[str] = field(default_factory=Counter)

    def adapter(self) -> LangChainAdapter:
        return LangChainAdapter(self._graph())

    def _graph(self) -> StateGraph[Any, Any, Any, Any]:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            self.ran["model asked"] += 1
            return said(f"answer to {len(messages)}")

        model = ScriptedModel(answer=answer)

        async def think(state: State) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        async def look(state: dict[str, Any]) -> dict[str, Any]:
            self.ran[f"looked for {state['what']}"] += 1
            return {"found": [state["what"]]}

        def first(state: State) -> dict[str, Any]:
            self.ran["inner first"] += 1
            return {"found": ["inner"]}

        async def second(state: State) -> dict[str, Any]:
            self.ran["inner second"] += 1
            return {"messages": [await model.ainvoke(state["messages"])]}

        inner: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        inner.add_node("first", first)
        inner.add_node("second", second)
        inner.add_edge(START, "first")
        inner.add_edge("first", "second")
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        graph.add_node("think", think)
        graph.add_node("look", look)
        graph.add_node("inner", inner.compile())
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", lambda _: [Send("look", {"what": one}) for one in "abc"], ["look"])
        graph.add_edge("look", "inner")
        return graph


NONE: tuple[int, bool] | None = None
# Each attempt's death: before or after which of its writes; and what is run more than once for it.
DEATHS: list[tuple[str, list[tuple[int, bool] | None], dict[str, int]]] = [
    ("before the answer is kept", [(0, False)], {"model asked": 3}),
    ("after the answer is kept", [(0, True)], {}),
    ("before the step is staged", [(1, False)], {}),
    ("after the step is staged", [(1, True)], {}),
    ("before the second of three tasks is kept", [NONE, (1, False)], {"twice": 2}),
    ("after the second of three tasks is kept", [NONE, (1, True)], {"twice": 1}),
    ("in a subgraph, after its first node", [NONE, NONE, (4, False)], {}),
    ("in a subgraph, after its model's answer", [NONE, NONE, (5, True)], {}),
    ("before the commit", [NONE, NONE, (7, False)], {}),
]


@pytest.mark.parametrize(("place", "deaths", "more"), DEATHS, ids=[one[0] for one in DEATHS])
async def test_what_had_finished_is_not_run_again(
    redis: Redis, settings: Settings, place: str, deaths: list[tuple[int, bool] | None], more: dict[str, int]
):
    """Of the parallel tasks only those whose end was not kept; of a subgraph only what follows its last checkpoint."""
    plan: Any = None
    whole = Dying(redis, settings.redis_prefix, plan)
    dying = Dying(redis, settings.redis_prefix, plan, deaths=list(deaths))
    expected, ended = await whole.turn(0), await dying.turn(0)
    assert (dying.deaths, dying.survivors) == ([], 0)
    assert [m.text for m in ended.messages] == [m.text for m in expected.messages]
    assert ended.state["found"] == expected.state["found"] == ["a", "b", "c", "a", "b", "c", "inner"]
    again = {name: times for name, times in dying.ran.items() if times != whole.ran[name]}
    if "twice" in more:
        assert len(again) == more["twice"]
        assert set(again.values()) == {2}
    else:
        assert again == more
