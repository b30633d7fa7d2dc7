"""What of a Pydantic AI agent makes the lane contract: what a history would not fit any more if it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import to_jsonable_python

from laneway.activities.schemas import structure_of
from laneway.history.delegation import Delegation, tools_of

__all__ = ["contract_of", "output_types_of"]

_NOT_OF_THE_CONTRACT = frozenset({"timeout"})


def contract_of(
    agent: AbstractAgent[Any, Any], *, delegates: Mapping[str, Delegation] | None = None
) -> Mapping[str, object]:
    """The lane contract of an agent, as JSON.

    A model, its settings but for timeouts, the names and parameters of function tools, the identity of other toolsets
    (of an MCP server its id, not its changing list of tools), and the output schema. What is computed for each run,
    such as settings from a function, counts as being there, not by its value.
    """
    contract: dict[str, object] = {
        "adapter": "pydantic_ai",
        "model": _model_name(agent.model),
        "settings": _settings(getattr(agent, "model_settings", None)),
        "toolsets": _toolsets(agent),
        "output": _output_schema(agent),
    }
    if delegates:
        tools = tools_of(delegates)
        contract["delegates"] = [[tool, structure_of(delegates[tools[tool]].schema)] for tool in sorted(tools)]
    return contract


def output_types_of(agent: AbstractAgent[Any, Any]) -> list[Any]:
    """The types that a turn's output may have, by the agent's output specification; empty where it does not tell."""
    types: list[Any] = []
    for spec in _flatten(agent.output_type):
        try:
            TypeAdapter(spec)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError):
            return []
        if spec is Any or spec is object:
            return []
        if spec not in types:
            types.append(spec)
    return types


def _flatten(spec: Any) -> list[Any]:
    if isinstance(spec, list | tuple):
        return [inner for item in cast("Sequence[Any]", spec) for inner in _flatten(item)]
    if isinstance(spec, NativeOutput | PromptedOutput):
        return _flatten(cast("Any", spec).outputs)
    if isinstance(spec, ToolOutput):
        return _flatten(cast("Any", spec).output)
    if isinstance(spec, TextOutput):
        return _returned(cast("Any", spec).output_function)
    if callable(spec) and not isinstance(spec, type) and hasattr(spec, "__annotations__"):
        return _returned(spec)
    if get_origin(spec) in (Union, UnionType):
        return _flatten(get_args(spec))
    return [spec]


def _returned(function: Any) -> list[Any]:
    from typing import get_type_hints

    try:
        return [get_type_hints(function).get("return", Any)]
    except (NameError, TypeError):
        return [Any]


def _model_name(model: object) -> str:
    if isinstance(model, Model):
        return f"{model.system}:{model.model_name}"
    return str(model)


def _settings(settings: object) -> object:
    if settings is None:
        return {}
    if callable(settings):
        over = getattr(settings, "laid_over", None)  # a profile's, which are known
        return "computed" if over is None else ["computed", _settings(over)]
    kept = {k: v for k, v in cast("Mapping[str, object]", settings).items() if k not in _NOT_OF_THE_CONTRACT}
    return to_jsonable_python(kept, fallback=lambda value: type(value).__name__)


def _toolsets(agent: AbstractAgent[Any, Any]) -> list[object]:
    found: list[object] = []

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            for name, tool in sorted(toolset.tools.items()):
                found.append(["tool", name, structure_of(tool.function_schema.json_schema)])
        else:
            found.append(["toolset", type(toolset).__name__, _identity(toolset)])

    for toolset in agent.toolsets:
        if "Output" not in type(toolset).__name__:
            toolset.apply(visit)
    return sorted(found, key=repr)


def _identity(toolset: AbstractToolset[Any]) -> object:
    """What tells a tool server from another: its id, else its command without the folders, which differ by machine."""
    if toolset.id is not None:
        return toolset.id
    transport: Any = getattr(getattr(toolset, "client", None), "transport", None)
    command: list[object] = [getattr(transport, "command", None), *(getattr(transport, "args", None) or ())]
    return [PurePath(part).name for part in command if isinstance(part, str)] or None


def _output_schema(agent: AbstractAgent[Any, Any]) -> object:
    try:
        return structure_of(agent.output_json_schema())
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError):
        return repr(agent.output_type)
