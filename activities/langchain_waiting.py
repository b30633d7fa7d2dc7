"""LangGraph's interrupts, as requests that a turn waits for.

A superstep in which nodes call `interrupt()` ends its step waiting. The next step begins the same superstep again, with
what its other tasks have written and with the answers: LangGraph gives each to the call that asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from langgraph.types import Command, Interrupt, StateSnapshot
from pydantic_core import PydanticSerializationError, to_jsonable_python

from laneway.activities.adapter import StepWork
from laneway.activities.langchain_delegation import asked_delegate, delegation_of, told
from laneway.activities.retries import SerializationFailed
from laneway.history.delegation import Delegation
from laneway.history.requests import Answer, PendingRequest, request_id

__all__ = ["requests_of", "resume_with"]

_ACTIONS: Final = "action_requests"
"""What LangChain's `HumanInTheLoopMiddleware` asks about."""


def requests_of(
    work: StepWork[Any], snapshot: StateSnapshot, delegates: Mapping[str, Delegation]
) -> tuple[PendingRequest, ...]:
    """What a superstep waits for.

    Raises:
        SerializationFailed: what a node asks has no JSON form; it names the node.
        ConfigurationError: a tool hands work to a delegate that the adapter does not have.
    """
    return tuple(
        _request(work, task.name, interrupt, delegates) for task in snapshot.tasks for interrupt in task.interrupts
    )


def _request(
    work: StepWork[Any], node: str, interrupt: Interrupt, delegates: Mapping[str, Delegation]
) -> PendingRequest:
    payload = _payload(node, interrupt)
    if asked_delegate(payload) is not None:
        return delegation_of(work, interrupt.id, cast("Mapping[str, Any]", payload), delegates)
    return PendingRequest(
        id=request_id(work.lane_id, work.turn_id, work.step, interrupt.id),
        kind="question",
        name=node,
        payload=payload,
        ref=interrupt.id,
        takes=("result", "approved", "denied"),
    )


def _payload(node: str, interrupt: Interrupt) -> object:
    try:
        return to_jsonable_python(interrupt.value, bytes_mode="base64", inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise SerializationFailed(
            f"what node {node!r} asks with interrupt() cannot be stored: {error}. Ask with JSON values"
        ) from error


def resume_with(work: StepWork[Any]) -> Command[Any] | None:
    """What goes on with the superstep that the step before ended waiting in; None where it did not.

    Where a node is asked several times, only the last question is open: what was answered before is in the journal.
    """
    values = {
        one.request.ref: told(one.answer)
        if one.request.kind == "delegation"
        else _value(one.request.payload, one.answer)
        for one in work.answers
        if one.step == work.step - 1
    }
    return Command(resume=values) if values else None


def _value(asked: object, answer: Answer) -> object:
    """What `interrupt()` returns."""
    if answer.kind == "result":
        return answer.value
    decisions = _decisions(asked, answer)
    if decisions is not None:
        return {"decisions": decisions}
    return answer.kind == "approved"


def _decisions(asked: object, answer: Answer) -> Sequence[Mapping[str, object]] | None:
    """An approval or a denial of all tool calls that LangChain's own middleware asks about."""
    actions: object = cast("Mapping[str, object]", asked).get(_ACTIONS) if isinstance(asked, dict) else None
    if not isinstance(actions, list):
        return None
    calls = cast("list[Mapping[str, object]]", actions)
    if answer.kind == "denied":
        return [{"type": "reject", "message": answer.reason or ""} for _ in calls]
    if answer.arguments is not None and len(calls) == 1:
        edited = {"name": calls[0].get("name"), "args": dict(answer.arguments)}
        return [{"type": "edit", "edited_action": edited}]
    return [{"type": "approve"} for _ in calls]
