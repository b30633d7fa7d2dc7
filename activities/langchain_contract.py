"""What of a LangGraph graph makes the lane contract: what a history or a stored state would not fit any more."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langgraph.channels.base import BaseChannel
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import to_jsonable_python

from laneway.activities.langchain_graphs import BoundModel, Graph, all_graphs, find, response_types
from laneway.activities.schemas import structure_of

__all__ = ["contract_of"]

_NOT_OF_THE_CONTRACT: Final = (
    "api_base",
    "api_key",
    "base_url",
    "cache",
    "callbacks",
    "client",
    "metadata",
    "proxy",
    "retries",
    "stream",
    "tags",
    "timeout",
    "token_usage",
    "verbose",
)
"""Words in the names of settings that change how a model is reached, and not what it answers."""


_INTERNAL: Final = ("__", "branch:")
"""How channels begin that LangGraph makes of nodes and edges."""


def contract_of(graph: Graph) -> Mapping[str, object]:
    """The lane contract of a graph, as JSON.

    The models that are found in its nodes, with their settings but for timeouts and the like; names and parameters of
    its tools; the schema of its structured response; nodes, edges and channels. Prompts are not in it.
    """
    found = find(graph)
    return {
        "adapter": "langchain",
        "models": _unique(_model(one) for one in found if isinstance(one, BoundModel)),
        "tools": _unique([one.name, _parameters(one)] for one in found if isinstance(one, BaseTool)),
        "output": [_schema(one) for one in response_types(graph)],
        "graphs": [_topology(one) for one in all_graphs(graph)],
    }


def _unique(items: Iterator[object]) -> list[object]:
    return list({repr(item): item for item in sorted(items, key=repr)}.values())


def _model(found: BoundModel) -> object:
    model = found.model
    known: Mapping[str, object] = cast("Mapping[str, object]", model._get_ls_params())  # pyright: ignore[reportPrivateUsage]
    name = known.get("ls_model_name") or getattr(model, "model_name", None) or getattr(model, "model", None)
    return {
        # Without its module: an application's own class is in `__main__` in one process and in a module in another.
        "class": type(model).__qualname__,
        "name": name if isinstance(name, str) else None,
        "settings": _settings(model._identifying_params),  # pyright: ignore[reportPrivateUsage]
        "bound": structure_of(_settings(found.bound)),
    }


def _settings(settings: Mapping[str, object]) -> object:
    kept = {
        name: value
        for name, value in settings.items()
        if value is not None and not any(word in name for word in _NOT_OF_THE_CONTRACT)
    }
    return to_jsonable_python(kept, fallback=_name_of)


def _name_of(value: object) -> object:
    kind = value if isinstance(value, type) else type(value)
    return _schema(kind) if isinstance(value, type) and issubclass(value, BaseModel) else kind.__qualname__


def _parameters(tool: BaseTool) -> object:
    schema: Any = tool.tool_call_schema
    return structure_of(schema if isinstance(schema, dict) else schema.model_json_schema())


def _schema(kind: Any) -> object:
    try:
        return structure_of(TypeAdapter(kind).json_schema())
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError):
        return getattr(kind, "__qualname__", repr(kind))


def _topology(graph: Graph) -> object:
    channels = {
        name: [type(channel).__name__, _type_name(channel.ValueType)]
        for name, channel in sorted(graph.channels.items())
        if isinstance(channel, BaseChannel) and not name.startswith(_INTERNAL)
    }
    edges: list[object] = []
    if isinstance(graph, CompiledStateGraph):
        builder = graph.builder
        edges = sorted(
            [
                *map(list, builder.edges),
                *([sorted(starts), end] for starts, end in builder.waiting_edges),
                *(
                    [node, name, sorted(branch.ends.values()) if branch.ends else None]
                    for node, branches in builder.branches.items()
                    for name, branch in branches.items()
                ),
            ],
            key=repr,
        )
    return {"nodes": sorted(graph.nodes), "edges": edges, "channels": channels}


def _type_name(kind: Any) -> str:
    """A type by name: without annotations, and with one name for all of LangChain's messages."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_name(arguments[0])
    if isinstance(kind, type) and origin is None:
        return "message" if issubclass(kind, BaseMessage) else f"{kind.__module__}.{kind.__qualname__}"
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None:
        inner = dict.fromkeys(map(_type_name, arguments))
        return f"{getattr(origin, '__qualname__', origin)}[{', '.join(inner)}]"
    return str(getattr(kind, "__name__", type(kind).__qualname__))
