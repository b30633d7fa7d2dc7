"""Work that a graph hands to other agents: a tool for each delegate, whose call waits in `interrupt()`.

A compiled graph has its tools bound already, so its author gives it these when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import interrupt

from laneway.activities.adapter import StepWork
from laneway.errors import ConfigurationError
from laneway.history.delegation import Delegation, tools_of
from laneway.history.requests import Answer, PendingRequest, request_id

__all__ = ["asked_delegate", "check_tools", "delegate_tools", "delegation_of", "told"]

_DELEGATE: Final = "laneway_delegate"
_FAILED: Final = "laneway_failed"


def delegate_tools(delegates: Mapping[str, Delegation]) -> list[BaseTool]:
    """The tools by which a graph's model hands work to other agents, to be given to the graph when it is made.

    Args:
        delegates: as `LangChainAdapter` takes them.

    Raises:
        ConfigurationError: a name cannot be one, or two tools have the same.
    """
    return [_tool(tool, name, delegates[name]) for tool, name in tools_of(delegates).items()]


def _tool(tool: str, name: str, delegation: Delegation) -> BaseTool:
    def call(**arguments: Any) -> Any:
        answer = interrupt({_DELEGATE: name, "arguments": arguments})
        if isinstance(answer, dict) and _FAILED in answer:
            raise ToolException(str(cast("dict[str, Any]", answer)[_FAILED]))
        return cast("Any", answer)

    async def acall(**arguments: Any) -> Any:
        return call(**arguments)

    return StructuredTool(
        name=tool,
        description=delegation.description,
        args_schema=dict(delegation.schema),
        func=call,
        coroutine=acall,
        handle_tool_error=True,
    )


def check_tools(delegates: Mapping[str, Delegation], tools: Mapping[str, BaseTool], *, graph: str) -> None:
    """Make sure that a graph has the tools of its delegates.

    Raises:
        ConfigurationError: it has not.
    """
    missing = [tool for tool in tools_of(delegates) if tool not in tools]
    if missing:
        raise ConfigurationError(
            f"the graph {graph!r} has no tool {', '.join(missing)}: make it with tools=[…, "
            "*LangChainAdapter.delegate_tools(delegates)], and give the adapter the same delegates"
        )


def asked_delegate(asked: object) -> str | None:
    """The delegate that an interrupt hands work to; None for any other interrupt."""
    name = cast("Mapping[str, object]", asked).get(_DELEGATE) if isinstance(asked, dict) else None
    return name if isinstance(name, str) else None


def delegation_of(
    work: StepWork[Any], ref: str, payload: Mapping[str, Any], delegates: Mapping[str, Delegation]
) -> PendingRequest:
    """The request of a tool that hands on work.

    Raises:
        ConfigurationError: the adapter has no such delegate.
    """
    name = str(payload[_DELEGATE])
    if name not in delegates:
        raise ConfigurationError(
            f"a tool of the graph hands work to the delegate {name!r}, which the adapter does not have: give it the "
            "delegates that the tools were made of"
        )
    delegation = delegates[name]
    return PendingRequest(
        id=request_id(work.lane_id, work.turn_id, work.step, ref),
        kind="delegation",
        name=delegation.tool_name or f"delegate_to_{name}",
        payload=payload["arguments"],
        ref=ref,
        delegation=delegation,
        delegate=name,
    )


def told(answer: Answer) -> object:
    """What a delegate's tool is told of what came of the work."""
    return answer.value if answer.kind == "result" else {_FAILED: answer.reason or "the work was not done"}
