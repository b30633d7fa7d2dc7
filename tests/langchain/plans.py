"""Random graphs: what their nodes do is written down in a plan, so that two runs of one plan can be compared.

Every channel kind that a graph may have is among them, and every way in which a node may go on: edges, several at once,
`Command(goto=…)`, `Send`, subgraphs with and without a state of their own. Nodes log what they are given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.managed import IsLastStep, RemainingSteps
from langgraph.types import Command, Overwrite, Send
from typing_extensions import TypedDict

from tests.langchain.graphs import ScriptedModel, called, said

NODES = ("a", "b", "c")

Log = list[tuple[Any, ...]]
log_of: ContextVar[Log] = ContextVar("log_of")


@dataclass(frozen=True)
class Move:
    """What a node does once.

    Attributes:
        does: what it writes.
        then: where it goes: nodes, several of them at once.
        how: whether by edges, a `Command`, or `Send`s.
    """

    does: str
    then: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class GraphPlan:
    """A graph and its turns.

    Attributes:
        moves: what each node does, one after the other, over and over.
        start: the nodes that a turn begins with.
        delta: whether messages and notes are in delta channels.
        synchronous: which nodes are synchronous functions.
        limit: the recursion limit.
        turns: how many turns there are.
    """

    moves: dict[str, tuple[Move, ...]]
    start: tuple[str, ...]
    delta: bool
    synchronous: frozenset[str]
    limit: int
    turns: int


DOES = (
    "say",
    "ask_model",
    "call_tools",
    "note",
    "count",
    "scratch",
    "forget_first",
    "forget_all",
    "replace_last",
    "overwrite",
    "nothing",
    "stream",
    "keeping_subgraph",
    "passing_subgraph",
    "fail",
)


@st.composite
def graph_plans(draw: st.DrawFn) -> GraphPlan:
    targets = st.sampled_from([*NODES, END])
    several = st.lists(targets, min_size=1, max_size=2, unique=True).map(tuple)
    does = st.sampled_from(DOES[:-1]) if draw(st.booleans()) else st.sampled_from(DOES)
    move = st.builds(Move, does=does, then=several, how=st.sampled_from(["edge", "edge", "command", "send"]))
    return GraphPlan(
        moves={node: tuple(draw(st.lists(move, min_size=1, max_size=3))) for node in NODES},
        start=draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True).map(tuple)),
        delta=draw(st.booleans()),
        synchronous=frozenset(draw(st.sets(st.sampled_from(NODES)))),
        limit=draw(st.sampled_from([4, 7, 10])),
        turns=draw(st.integers(1, 3)),
    )


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**old, **new}


def extended(old: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*old, *(item for write in writes for item in write)]


def added(old: list[BaseMessage], writes: Sequence[Any]) -> list[BaseMessage]:
    for write in writes:
        old = add_messages(old, write)  # type: ignore[assignment]
    return old


class PlainState(TypedDict):
    messages: Annotated[list[Any], add_messages]
    notes: Annotated[list[Any], operator.add]
    facts: Annotated[dict[str, Any], merged]
    count: NotRequired[int]
    scratch: NotRequired[Annotated[int, UntrackedValue(int, guard=False)]]
    left: RemainingSteps
    last: IsLastStep


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(added)]
    notes: Annotated[list[Any], DeltaChannel(extended, snapshot_frequency=2)]
    facts: Annotated[dict[str, Any], merged]
    count: NotRequired[int]
    scratch: NotRequired[Annotated[int, UntrackedValue(int, guard=False)]]
    left: RemainingSteps
    last: IsLastStep


class InnerState(TypedDict):
    messages: Annotated[list[Any], add_messages]
    rounds: Annotated[int, operator.add]


def _inner(*, keeps: bool) -> Any:
    """A subgraph of two nodes; with `keeps` its state lives from turn to turn."""

    async def first(state: InnerState) -> dict[str, Any]:
        log_of.get().append(("inner first", state.get("rounds", 0), texts(state["messages"])))
        return {"rounds": 1}

    def second(state: InnerState) -> dict[str, Any]:
        log_of.get().append(("inner second", state["rounds"], texts(state["messages"])))
        return {"rounds": 1, "messages": [AIMessage(f"inner {state['rounds']}")]}

    graph = StateGraph(InnerState)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph.compile(checkpointer=True if keeps else None)


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [f"{message.type}: {message.text}" for message in messages]


def build(plan: GraphPlan) -> StateGraph[Any, Any, Any, Any]:
    """The graph of a plan."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(DeltaState if plan.delta else PlainState)  # type: ignore[arg-type]
    model = ScriptedModel(answer=lambda messages: said(f"answer to {len(messages)}"))
    for name in NODES:
        graph.add_node(name, _node(plan, name, model), destinations=(*NODES, END))
        graph.add_conditional_edges(name, _router(plan, name), [*NODES, END])
    graph.add_conditional_edges(START, lambda state: list(plan.start), list(NODES))
    return graph


def _node(plan: GraphPlan, name: str, model: ScriptedModel) -> Callable[[Any], Any]:
    asked: dict[str, Any] = {
        "ask_model": model,
        "keeping_subgraph": _inner(keeps=True),
        "passing_subgraph": _inner(keeps=False),
    }

    def question(does: str, messages: list[Any]) -> Any:
        return messages if does == "ask_model" else {"messages": messages[-2:], "rounds": 0}

    async def node(state: Any) -> Any:
        move, messages = _begin(plan, name, state), state.get("messages", [])
        answer = None
        if move.does in asked:
            answer = await asked[move.does].ainvoke(question(move.does, messages))
        return _end(name, move, state, answer)

    def synchronous(state: Any) -> Any:
        move, messages = _begin(plan, name, state), state.get("messages", [])
        answer = None
        if move.does in asked:
            answer = asked[move.does].invoke(question(move.does, messages))
        return _end(name, move, state, answer)

    return synchronous if name in plan.synchronous else node


def _begin(plan: GraphPlan, name: str, state: Any) -> Move:
    move = _move(plan, name, state)
    fields = ("notes", "facts", "count", "scratch", "left", "last")
    log_of.get().append((name, move.does, texts(state.get("messages", [])), [state.get(field) for field in fields]))
    return move


def _end(name: str, move: Move, state: Any, answer: Any) -> Any:
    messages = state.get("messages", [])
    update: dict[str, Any] = {"facts": {f"moves of {name}": _times(name, state) + 1}}
    match move.does:
        case "say":
            update["messages"] = [AIMessage(f"{name} says {len(messages)}")]
        case "ask_model":
            update["messages"] = [answer]
        case "keeping_subgraph" | "passing_subgraph":
            update["messages"] = answer["messages"][-1:]
            update["facts"][f"rounds of {name}"] = answer["rounds"]
        case "call_tools":
            call = called(("look", {"n": len(messages)}, f"{name}-{len(messages)}"))
            result = ToolMessage("found", tool_call_id=call.tool_calls[0]["id"] or "", artifact={"n": [1, 2]})
            update["messages"] = [call, result]
        case "note":
            update["notes"] = [{"by": name, "seen": len(messages)}, messages[-1] if messages else None]
        case "count":
            update["facts"][f"{name} counted"] = {"set": {1, 2}, "n": len(messages)}
        case "scratch":
            update["scratch"] = (state.get("scratch") or 0) + 1
        case "forget_first" if messages:
            update["messages"] = [RemoveMessage(id=messages[0].id)]
        case "forget_all":
            update["messages"] = [RemoveMessage(id=REMOVE_ALL_MESSAGES), AIMessage(f"summary by {name}")]
        case "replace_last" if messages:
            update["messages"] = [messages[-1].model_copy(update={"content": f"replaced by {name}"})]
        case "overwrite":
            update["notes"] = Overwrite([name])
        case "stream":
            get_stream_writer()({"from": name})
        case "fail":
            raise RuntimeError(f"{name} fails at {len(messages)}")
        case _:
            pass
    if move.how == "command":
        return Command(update=update, goto=[one for one in move.then if one != END])
    return update


def _router(plan: GraphPlan, name: str) -> Callable[[Any], Any]:
    def route(state: Any) -> Any:
        move = _move(plan, name, state, done=True)
        if move.how == "command":
            return END
        if move.how == "send":
            sent = {**state, "facts": dict(state.get("facts") or {}), "count": len(state.get("messages", []))}
            sent.pop("left", None)
            sent.pop("last", None)
            return [END if one == END else Send(one, sent) for one in move.then]
        return list(move.then)

    return route


def _times(name: str, state: Any) -> int:
    return int((state.get("facts") or {}).get(f"moves of {name}", 0))


def _move(plan: GraphPlan, name: str, state: Any, *, done: bool = False) -> Move:
    moves = plan.moves[name]
    return moves[(_times(name, state) - done) % len(moves)]


def prompt_of(turn: int) -> str:
    return f"prompt {turn}"


def plain_form(value: Any, names: dict[str, str] | None = None) -> Any:
    """State in a form that two runs have in common: ids are numbered in the order in which they come."""
    names = {} if names is None else names
    if isinstance(value, BaseMessage):
        fields = {key: plain_form(item, names) for key, item in vars(value).items() if key != "id"}
        return type(value).__name__, names.setdefault(str(value.id), f"m{len(names)}"), fields
    if isinstance(value, dict):
        return {key: plain_form(item, names) for key, item in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain_form(item, names) for item in value]
    return value


__all__ = ["GraphPlan", "HumanMessage", "build", "graph_plans", "log_of", "plain_form", "prompt_of"]
