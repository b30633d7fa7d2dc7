"""Graphs behave on RedisSaver as on InMemorySaver: the same states, histories, interrupts, forks and resumptions."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt

from laneway.langgraph import RedisSaver

THREAD: Any = {"configurable": {"thread_id": "a thread"}}


class FakeModel(GenericFakeChatModel):
    def bind_tools(self, tools: Sequence[Any], **_: Any) -> FakeModel:
        return self


def history(graph: Any, config: Any = THREAD) -> list[tuple[Any, ...]]:
    """What LangGraph makes of a thread's checkpoints, without what chance decides."""
    return [
        (
            state.values,
            state.next,
            _plain(state.metadata),
            [(task.name, task.result, task.interrupts) for task in state.tasks],
        )
        for state in graph.get_state_history(config)
    ]


def _plain(metadata: Any) -> Any:
    known = {key: value for key, value in metadata.items() if key != "parents"}
    if "counters_since_delta_snapshot" in known:  # tuples in memory
        known["counters_since_delta_snapshot"] = {k: list(v) for k, v in known["counters_since_delta_snapshot"].items()}
    return known


def both(saver: RedisSaver) -> list[BaseCheckpointSaver[Any]]:
    return [saver, InMemorySaver()]


def alike(saver: RedisSaver, run: Callable[[BaseCheckpointSaver[Any]], Any]) -> Any:
    """Run the same on both savers; the results must be equal."""
    ours, reference = (run(each) for each in both(saver))
    assert ours == reference
    return ours


def test_an_agent_with_tools_talks_for_many_turns(saver: RedisSaver) -> None:
    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city} " * 100

    def run(checkpointer: BaseCheckpointSaver[Any]) -> Any:
        ids = itertools.count()
        answers = itertools.cycle(
            [
                lambda: AIMessage(
                    "",
                    id=f"m{next(ids)}",
                    tool_calls=[
                        {"name": "weather", "args": {"city": city}, "id": f"c{next(ids)}"} for city in ("Rome", "Oslo")
                    ],
                ),
                lambda: AIMessage("it is sunny", id=f"m{next(ids)}"),
            ]
        )
        model = FakeModel(messages=(answer() for answer in answers))
        agent = create_agent(model, [weather], checkpointer=checkpointer)
        for turn in range(8):
            agent.invoke({"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")]}, THREAD)
        return [
            [(message.type, message.content) for message in values["messages"]] if values else None
            for values, *_ in history(agent)
        ]

    assert len(alike(saver, run)[0]) == 8 * 5


async def test_an_agent_runs_asynchronously(saver: RedisSaver) -> None:
    model = FakeModel(messages=iter([AIMessage(f"answer {at}") for at in range(3)]))
    agent = create_agent(model, [], checkpointer=saver)
    for turn in range(3):
        await agent.ainvoke({"messages": [HumanMessage(f"turn {turn}")]}, THREAD)
    state = await agent.aget_state(THREAD)
    assert [message.content for message in state.values["messages"]] == [
        "turn 0",
        "answer 0",
        "turn 1",
        "answer 1",
        "turn 2",
        "answer 2",
    ]
    assert len([one async for one in agent.aget_state_history(THREAD)]) == 9
    assert agent.get_state(THREAD).values == state.values  # the same class, synchronously


class Sum(TypedDict):
    parts: Annotated[list[int], operator.add]
    total: int


def fan_out(checkpointer: Any, fail: Callable[[int], bool] = lambda _: False, seen: list[int] | None = None) -> Any:
    def square(task: dict[str, int]) -> dict[str, list[int]]:
        if fail(task["n"]):
            raise RuntimeError("down")
        if seen is not None:
            seen.append(task["n"])
        return {"parts": [task["n"] ** 2]}

    builder: Any = StateGraph(Sum)
    builder.add_node("square", square)
    builder.add_node("add", lambda state: {"total": sum(state["parts"])})
    builder.add_conditional_edges(START, lambda _: [Send("square", {"n": n}) for n in range(6)])
    builder.add_edge("square", "add")
    builder.add_edge("add", END)
    return builder.compile(checkpointer=checkpointer)


def test_sends_fan_out(saver: RedisSaver) -> None:
    def run(checkpointer: BaseCheckpointSaver[Any]) -> Any:
        graph = fan_out(checkpointer)
        return graph.invoke({"parts": []}, THREAD), history(graph)

    assert alike(saver, run)[0]["total"] == 55


def test_after_a_crash_only_the_failed_task_runs_again(saver: RedisSaver, make_saver: Any) -> None:
    seen: list[int] = []
    with pytest.raises(RuntimeError):
        fan_out(saver, lambda n: n == 4, seen).invoke({"parts": []}, THREAD)
    assert 4 not in seen
    done = set(seen)
    again: list[int] = []
    result = fan_out(make_saver(), seen=again).invoke(None, THREAD)  # a new process
    assert result["total"] == 55
    assert done.isdisjoint(again)
    assert sorted([*seen, *again]) == list(range(6))


def asking(checkpointer: Any) -> Any:
    class State(TypedDict):
        answers: Annotated[list[str], operator.add]

    def ask(state: State) -> dict[str, list[str]]:
        return {"answers": [interrupt({"question": 1}), interrupt({"question": 2})]}

    inner: Any = StateGraph(State)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    builder: Any = StateGraph(State)
    builder.add_node("inner", inner.compile())
    builder.add_node("other", lambda _: {"answers": [interrupt("other?")]})
    builder.add_edge(START, "inner")
    builder.add_edge(START, "other")
    return builder.compile(checkpointer=checkpointer)


def test_interrupts_in_subgraphs_are_answered_by_id(saver: RedisSaver, make_saver: Any) -> None:
    def run(checkpointer: BaseCheckpointSaver[Any]) -> Any:
        graph = asking(checkpointer)
        waiting = graph.invoke({"answers": ["begun"]}, THREAD)
        asked: dict[str, Interrupt] = {str(one.value): one for one in waiting["__interrupt__"]}
        if isinstance(checkpointer, RedisSaver):
            graph = asking(make_saver())  # a new process
        waiting = graph.invoke(
            Command(resume={asked["other?"].id: "fine", asked["{'question': 1}"].id: "first"}), THREAD
        )
        nested = graph.get_state(THREAD, subgraphs=True).tasks[0].state.values
        result = graph.invoke(Command(resume="second"), THREAD)
        return sorted(asked), [one.value for one in waiting["__interrupt__"]], nested, result

    *_, result = alike(saver, run)
    assert result["answers"] == ["begun", "begun", "first", "second", "fine"]


def test_time_travel_forks_and_updates(saver: RedisSaver) -> None:
    def run(checkpointer: BaseCheckpointSaver[Any]) -> Any:
        count = itertools.count()
        builder: Any = StateGraph(MessagesState)
        builder.add_node("model", lambda _: {"messages": [AIMessage(f"answer {next(count)}", id=f"a{next(count)}")]})
        builder.add_edge(START, "model")
        graph = builder.compile(checkpointer=checkpointer)
        for turn in range(4):
            graph.invoke({"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")]}, THREAD)
        states = list(graph.get_state_history(THREAD))
        early = states[6]
        results = [
            graph.invoke(None, early.config)["messages"],
            graph.invoke({"messages": [HumanMessage("another way", id="h9")]}, early.config)["messages"],
            graph.invoke(None, early.config)["messages"],  # a second branch from the same point
        ]
        forked = graph.update_state(early.config, {"messages": [HumanMessage("edited", id="h1")]})
        results.append(graph.invoke(None, forked)["messages"])
        copied = graph.update_state(states[3].config, None, as_node="__copy__")
        results.append(graph.get_state(copied).values["messages"])
        graph.update_state(THREAD, {"messages": Overwrite([HumanMessage("only this", id="x")])})
        results.append(graph.get_state(THREAD).values["messages"])
        graph.update_state(THREAD, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]})
        found = [graph.get_state(state.config).values.get("messages") for state in states]
        return results, found, [entry[:2] for entry in history(graph)]

    alike(saver, run)


def append(state: list[Any], writes: Sequence[Any]) -> list[Any]:
    return [*state, *itertools.chain.from_iterable(write if isinstance(write, list) else [write] for write in writes)]


@pytest.mark.parametrize("snapshot_frequency", [1, 3, 1000])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_delta_channels_are_rebuilt(saver: RedisSaver, snapshot_frequency: int, durability: Any) -> None:
    log = Annotated[list[Any], DeltaChannel(append, snapshot_frequency=snapshot_frequency)]
    fields: dict[str, Any] = {"log": log, "turn": int}
    state: Any = cast("Any", TypedDict)("State", fields)  # evaluated here: the channel is local

    def run(checkpointer: BaseCheckpointSaver[Any]) -> Any:
        builder: Any = StateGraph(state)
        builder.add_node("one", lambda state: {"log": [f"one {state['turn']}" * 50], "turn": state["turn"]})
        builder.add_node("two", lambda state: {"log": [f"two {state['turn']}"]})
        builder.add_node("both", lambda state: {"log": [len(state["log"])]})
        builder.add_edge(START, "one")
        builder.add_edge(START, "two")
        builder.add_edge("one", "both")
        builder.add_edge("both", END)
        graph = builder.compile(checkpointer=checkpointer)
        for turn in range(8):
            graph.invoke({"log": [turn], "turn": turn}, THREAD, durability=durability)
        states = list(graph.get_state_history(THREAD))
        graph.invoke({"log": ["forked"], "turn": 99}, states[5].config, durability=durability)
        graph.update_state(THREAD, {"log": ["updated"], "turn": 1}, as_node="both")
        return history(graph)

    assert len(alike(saver, run)[0][0]["log"]) > 10


def test_pruning_keeps_what_a_delta_channel_is_rebuilt_from(saver: RedisSaver) -> None:
    class State(TypedDict):
        log: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=6)]

    builder: Any = StateGraph(State)
    builder.add_node("one", lambda state: {"log": [f"seen {len(state['log'])}"]})
    builder.add_edge(START, "one")
    graph = builder.compile(checkpointer=saver)
    for turn in range(10):
        graph.invoke({"log": [turn]}, THREAD)
        before = graph.get_state(THREAD).values
        saver.prune(["a thread"])
        assert graph.get_state(THREAD).values == before
        assert len(before["log"]) == 2 * turn + 2
    assert len(list(saver.list(THREAD))) < 15


def test_random_graphs_of_messages_end_alike(saver: RedisSaver) -> None:
    """Several nodes that add, replace and remove messages at random, forked at random."""
    for seed in range(6):

        def run(checkpointer: BaseCheckpointSaver[Any], seed: int = seed) -> Any:
            chance = random.Random(seed)
            ids = itertools.count()

            class State(TypedDict):
                messages: Annotated[list[AnyMessage], add_messages]
                notes: dict[str, Any]
                steps: Annotated[int, operator.add]

            def node(state: State) -> dict[str, Any]:
                known = [str(message.id) for message in state["messages"]]
                changes: list[Any] = [AIMessage("y" * chance.choice([1, 50, 500]), id=f"n{next(ids)}")]
                if len(known) > 3:
                    changes.append(RemoveMessage(chance.choice(known[:-1])))
                    changes.append(HumanMessage("z" * 300, id=known[-1]))
                return {"messages": changes, "steps": 1, "notes": {"last": changes[0].content, "known": known}}

            builder: Any = StateGraph(State)
            builder.add_node("a", node)
            builder.add_node("b", node)
            builder.add_edge(START, "a")
            builder.add_conditional_edges("a", lambda state: "b" if state["steps"] % 3 else END)
            builder.add_edge("b", END)
            graph = builder.compile(checkpointer=checkpointer)
            config: Any = {"configurable": {"thread_id": f"random {seed}"}}
            for turn in range(10):
                states = list(graph.get_state_history(config))
                at = states[chance.randrange(len(states))].config if states and chance.random() < 0.3 else config
                graph.invoke({"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")]}, at)
            return history(graph, config)

        alike(saver, run)
