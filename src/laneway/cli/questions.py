"""What a turn waits for, in words, and what a person at a terminal types in answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from laneway.cli.output import one_line
from laneway.history.records import EventKind, LaneEvent
from laneway.history.requests import Answer, PendingRequest, approve, deny, result

__all__ = ["answer_typed", "prompt_for", "question_line", "where_to_answer"]


def question_line(event: LaneEvent) -> str | None:
    """What the turn waits for from now on, on one line; None of other events, and of work that another agent does."""
    if event.kind is not EventKind.REQUEST_PENDING or event.data.get("kind") == "delegation":
        return None
    data = event.data
    asks = one_line(json.dumps(data["payload"], ensure_ascii=False), limit=500) if "payload" in data else "…"
    what = {"approval": "leave to run", "external": "the result of"}.get(str(data.get("kind")), "an answer to")
    return f"waits for {what} {data.get('name')} {asks}"


def where_to_answer(event: LaneEvent) -> str:
    """The commands that answer it."""
    request = event.data.get("request")
    if event.data.get("kind") == "approval" or _is_decision(event.data.get("payload")):
        return f"`laneway approve {request}` or `laneway deny {request}`"
    return f"`laneway answer {request} JSON`"


def prompt_for(request: PendingRequest) -> str:
    """What a person is asked at the prompt."""
    asks = f"{request.name} {one_line(json.dumps(request.payload, ensure_ascii=False), limit=500)}"
    if _takes_yes(request):
        return f"{asks}: y to allow it, n or a reason to refuse> "
    return f"{asks}: your answer, text or JSON> "


def answer_typed(request: PendingRequest, text: str) -> Answer | None:
    """The answer that a person typed; None where that is none."""
    typed = text.strip()
    if not typed:
        return None
    if not _takes_yes(request):
        return result(_value(typed))
    match typed.lower():
        case "y" | "yes":
            return approve()
        case "n" | "no":
            return deny()
        case _:
            return deny(typed)


def _value(typed: str) -> object:
    try:
        return json.loads(typed)
    except ValueError:
        return typed


def _takes_yes(request: PendingRequest) -> bool:
    return request.kind == "approval" or _is_decision(request.payload)


def _is_decision(payload: object) -> bool:
    """Whether it is LangChain's `HumanInTheLoopMiddleware` that asks: to it, approvals are its decisions."""
    return isinstance(payload, dict) and isinstance(cast("Mapping[str, object]", payload).get("action_requests"), list)
