"""What a graph is made of, as far as can be seen from outside: its models, tools and schemas.

LangGraph's nodes are functions, and what they ask is somewhere in their closures, globals or instances. This module
looks there, as LangGraph itself does to find subgraphs. What a function makes only when it is called cannot be seen.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langgraph.graph.state import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from laneway.errors import ConfigurationError

__all__ = ["BoundModel", "Found", "Graph", "all_graphs", "compiled", "find", "models_of_nodes", "response_types"]

Graph = Pregel[Any, Any, Any, Any]

_MAX_DEPTH: Final = 12
_MAX_OBJECTS: Final = 2
"""How many objects of an application's own are opened on the way, one inside of the other."""
_CLOSED: Final = ("laneway", "langchain", "langchain_core", "langgraph")
"""Packages whose functions' globals and whose objects, runnables aside, are not looked into."""


@dataclass(frozen=True)
class BoundModel:
    """A model, and what a binding always passes to it."""

    model: BaseChatModel
    bound: Mapping[str, object]


_OF_AN_ENTRYPOINT: Final = "__previous__"
"""The channel that only a workflow of the functional API has."""

Found = BoundModel | BaseTool | Any


def compiled(graph: object) -> Graph:
    """A graph that a lane can run.

    Raises:
        ConfigurationError: it is none, or has what a lane has in its place; the error says what to do.
    """
    if isinstance(graph, StateGraph):
        graph = cast("StateGraph[Any, Any, Any, Any]", graph).compile()
    if not isinstance(graph, Pregel):
        raise ConfigurationError(
            f"LangChainAdapter takes what create_agent returns, or a StateGraph, not {type(graph).__name__} ({graph!r})"
        )
    made = cast("Graph", graph)
    if _OF_AN_ENTRYPOINT in made.channels:
        raise ConfigurationError(
            f"{', '.join(made.nodes)!r} is a workflow of LangGraph's functional API (@entrypoint), which has no "
            "channels for a lane to keep: call it, or its tasks, in a node of a StateGraph"
        )
    if made.checkpointer:
        raise ConfigurationError(
            f"the graph {made.name!r} is compiled with a checkpointer of its own ({type(made.checkpointer).__name__}): "
            "the lane keeps its checkpoints. Compile it without `checkpointer`"
        )
    for argument, nodes in (
        ("interrupt_before", made.interrupt_before_nodes),
        ("interrupt_after", made.interrupt_after_nodes),
    ):
        if nodes:
            raise ConfigurationError(
                f"the graph {made.name!r} is compiled with {argument}={nodes!r}: a lane stops between all nodes by "
                "itself and goes on. Call interrupt() in the node where somebody has to answer"
            )
    return made


def find(graph: Graph) -> list[Found]:
    """What there is in a graph and its subgraphs, in the order of its nodes."""
    search = _Search()
    for name in graph.nodes:
        search.visit(graph.nodes[name].bound)
    return search.found


def models_of_nodes(graph: Graph) -> dict[str, list[BoundModel]]:
    """The models that each node of a graph itself asks, subgraphs aside; nodes without one are left out."""
    models: dict[str, list[BoundModel]] = {}
    for name in graph.nodes:
        search = _Search(into_subgraphs=False)
        search.visit(graph.nodes[name].bound)
        found = [one for one in search.found if isinstance(one, BoundModel)]
        if found:
            models[name] = found
    return models


def response_types(graph: Graph) -> list[Any]:
    """The schemas that `create_agent` was given as `response_format`; empty where there is none."""
    types: list[Any] = []
    for one in find(graph):
        if isinstance(one, _strategies()):
            specs: Any = getattr(one, "schema_specs", None)
            types.extend(spec.schema for spec in specs) if specs else types.append(cast("Any", one).schema)
    return list(dict.fromkeys(one for one in types if isinstance(one, type)))


def _strategies() -> tuple[type, ...]:
    """The classes in which `create_agent` holds a response format; none where nobody has imported it."""
    module = sys.modules.get("langchain.agents.structured_output")
    names = ("AutoStrategy", "ProviderStrategy", "ToolStrategy")
    return tuple(getattr(module, name) for name in names) if module is not None else ()


class _Search:
    """Looks into functions and what they hold."""

    def __init__(self, *, into_subgraphs: bool = True) -> None:
        self.found: list[Found] = []
        self._into_subgraphs = into_subgraphs
        self._seen: set[int] = set()

    def visit(self, value: object, depth: int = 0, objects: int = 0) -> None:
        if depth > _MAX_DEPTH or id(value) in self._seen:
            return
        if isinstance(value, str | bytes | int | float | complex | type | ModuleType | None):
            return
        self._seen.add(id(value))
        if _is_object(value):
            objects += 1
            if objects > _MAX_OBJECTS:
                return
        for inner in self._inside(value):
            self.visit(inner, depth + 1, objects)

    def _inside(self, value: object) -> Iterator[object]:
        if isinstance(value, BaseChatModel):
            self.found.append(BoundModel(value, {}))
        elif isinstance(value, RunnableBinding):
            yield from self._bound(value)
        elif isinstance(value, ToolNode):
            yield from value.tools_by_name.values()
        elif isinstance(value, BaseTool):
            self.found.append(value)  # what it asks in turn is no matter of this history
        elif isinstance(value, _strategies()):
            self.found.append(value)
        elif isinstance(value, Pregel):
            if self._into_subgraphs:
                yield from (node.bound for node in cast("Graph", value).nodes.values())
        elif isinstance(value, Mapping):
            yield from cast("Mapping[object, object]", value).values()
        elif isinstance(value, list | tuple | set | frozenset):
            yield from cast("list[object]", value)
        elif isinstance(value, partial):
            part = cast("partial[Any]", value)
            yield from (part.func, part.args, part.keywords)
        elif isinstance(value, MethodType):
            yield from (value.__func__, value.__self__)
        elif isinstance(value, FunctionType):
            yield from _held_by(value)
        elif isinstance(value, Runnable) or _is_object(value):
            yield from vars(value).values()

    def _bound(self, binding: RunnableBinding[Any, Any]) -> Iterator[object]:
        inner: Any = binding.bound
        keywords = dict(cast("Mapping[str, object]", binding.kwargs))
        while isinstance(inner, RunnableBinding):
            inner, keywords = inner.bound, {**inner.kwargs, **keywords}
        if isinstance(inner, BaseChatModel):
            self._seen.add(id(inner))
            self.found.append(BoundModel(inner, keywords))
        else:
            yield inner


def _held_by(function: Callable[..., Any]) -> Iterator[object]:
    try:
        held = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return
    yield from held.nonlocals.values()
    if not _is_closed(function):
        yield from held.globals.values()


def _is_object(value: object) -> bool:
    """Whether a value is an object of the application's own."""
    return hasattr(value, "__dict__") and not (
        isinstance(value, BaseChatModel | BaseTool | FunctionType | MethodType | Mapping | Pregel | Runnable | partial)
        or _is_closed(type(value))
    )


def _is_closed(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _CLOSED


def all_graphs(graph: Graph) -> list[Graph]:
    """A graph and the subgraphs that LangGraph finds in it."""
    return [graph, *(cast("Graph", inner) for _, inner in graph.get_subgraphs(recurse=True))]
