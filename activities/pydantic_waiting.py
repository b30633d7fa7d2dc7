"""Pydantic AI's deferred tools, as requests that a turn waits for.

A batch of tool calls that leaves some of them deferred ends its step waiting. The next step begins the same batch
again: finished calls are answered from the journal, deferred ones from what was answered, through the framework's own
hook for that. So an agent needs no `DeferredToolRequests` among its output types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset
from pydantic_core import to_jsonable_python

from laneway.activities.adapter import StepWork
from laneway.errors import ConfigurationError
from laneway.history.delegation import Delegation, tools_of
from laneway.history.requests import Answer, Answered, PendingRequest, RequestKind, request_id

__all__ = ["allow_deferral", "deferred_result", "delegate_tools", "requests_of", "results_for"]

T = TypeVar("T")

# What a tool's metadata says of its requests; after a crash, metadata that was raised is read from its JSON.
_timeout: TypeAdapter[timedelta] = TypeAdapter(timedelta)
_answer: TypeAdapter[Answer] = TypeAdapter(Answer)
_TIMEOUT, _DEFAULT = "answer_timeout", "default_answer"


def allow_deferral(run: AgentRun[Any, Any]) -> None:
    """Let a batch of tool calls end with deferred ones, whatever the agent's output types are."""
    deps = run.ctx.deps
    deps.output_schema = copy(deps.output_schema)
    deps.output_schema.allows_deferred_tools = True


def delegate_tools(delegates: Mapping[str, Delegation]) -> list[AbstractToolset[Any]]:
    """The tools by which a model hands work to other agents.

    Raises:
        ConfigurationError: see `tools_of`.
    """
    tools = [
        ToolDefinition(
            name=tool,
            description=delegates[name].description,
            parameters_json_schema=dict(delegates[name].schema),
        )
        for tool, name in tools_of(delegates).items()
    ]
    return [ExternalToolset(tools, id="delegates")] if tools else []


def requests_of(
    work: StepWork[Any],
    run: AgentRun[Any, Any],
    deferred: DeferredToolRequests,
    delegates: Mapping[str, Delegation],
) -> tuple[PendingRequest, ...]:
    """What a batch of tool calls waits for.

    Raises:
        ConfigurationError: a tool's `answer_timeout` or `default_answer` cannot be one.
    """
    tools = tools_of(delegates)
    return tuple(
        _delegation(work, call, tools[call.tool_name], delegates[tools[call.tool_name]])
        if call.tool_name in tools
        else _request(work, run, call, deferred.kind(call.tool_call_id), deferred.metadata.get(call.tool_call_id, {}))
        for call in (*deferred.approvals, *deferred.calls)
    )


def _delegation(work: StepWork[Any], call: ToolCallPart, name: str, delegation: Delegation) -> PendingRequest:
    return PendingRequest(
        id=request_id(work.lane_id, work.turn_id, work.step, call.tool_call_id),
        kind="delegation",
        name=call.tool_name,
        payload=_arguments(call),
        ref=call.tool_call_id,
        delegation=delegation,
        delegate=name,
    )


def _arguments(call: ToolCallPart) -> Any:
    return to_jsonable_python(call.args_as_dict(), bytes_mode="base64", inf_nan_mode="strings")


def _request(
    work: StepWork[Any],
    run: AgentRun[Any, Any],
    call: ToolCallPart,
    kind: RequestKind,
    given: Mapping[str, Any],
) -> PendingRequest:
    tool = run.ctx.deps.tool_manager.get_tool_def(call.tool_name)
    metadata: dict[str, Any] = {**((tool.metadata or {}) if tool is not None else {}), **given}
    timeout = _read(_timeout, metadata.get(_TIMEOUT), call, f"{_TIMEOUT}: give seconds or a timedelta")
    default = _read(_answer, metadata.get(_DEFAULT), call, f"{_DEFAULT}: give an answer, such as deny('too late')")
    schema = None
    if tool is not None:
        schema = tool.parameters_json_schema if kind == "approval" else tool.return_schema
    return PendingRequest(
        id=request_id(work.lane_id, work.turn_id, work.step, call.tool_call_id),
        kind=kind,
        name=call.tool_name,
        payload=_arguments(call),
        ref=call.tool_call_id,
        schema=schema,
        timeout=None if timeout is None else timeout.total_seconds(),
        default=default,
        takes=("result", "error") if kind == "question" else (),
        metadata=to_jsonable_python(dict(given), fallback=repr) if given else None,
    )


def _read(kind: TypeAdapter[T], value: object, call: ToolCallPart, what: str) -> T | None:
    try:
        return None if value is None else kind.validate_python(value)
    except ValidationError:
        raise ConfigurationError(f"tool {call.tool_name!r} has {value!r} as its {what}") from None


def results_for(requests: DeferredToolRequests, answers: Sequence[Answered]) -> DeferredToolResults | None:
    """The results for deferred calls, as far as they were answered."""
    results = DeferredToolResults()
    for call in requests.approvals:
        answer = _answer_to(answers, call.tool_call_id, approval=True)
        if answer is not None and answer.kind == "approved":
            arguments = None if answer.arguments is None else dict(answer.arguments)
            results.approvals[call.tool_call_id] = ToolApproved(override_args=arguments)
        elif answer is not None:
            results.approvals[call.tool_call_id] = ToolDenied(answer.reason or "")
    for call in requests.calls:
        answer = _answer_to(answers, call.tool_call_id, approval=False)
        if answer is not None:
            results.calls[call.tool_call_id] = (
                ToolFailed(answer.reason or "") if answer.kind == "error" else answer.value
            )
    return results if results.approvals or results.calls else None


def deferred_result(call_id: str | None, answers: Sequence[Answered]) -> Answer | None:
    """The result of a call that was let run, and then deferred itself."""
    return None if call_id is None else _answer_to(answers, call_id, approval=False)


def _answer_to(answers: Sequence[Answered], call_id: str, *, approval: bool) -> Answer | None:
    fitting = [
        one.answer for one in answers if one.request.ref == call_id and (one.request.kind == "approval") is approval
    ]
    return fitting[-1] if fitting else None
