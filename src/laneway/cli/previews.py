"""Stored messages for a reader who has no framework at hand: who said what, out of the serialised form.

The two frameworks' forms are known here by their JSON alone, since reading a history must not need the application. A
form that is not known is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

__all__ = ["Line", "Role", "preview"]

Role = Literal["system", "user", "assistant", "thinking", "call", "result", "retry", "other"]

_PYDANTIC_ROLES: Mapping[str, Role] = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "assistant",
    "thinking": "thinking",
    "tool-call": "call",
    "builtin-tool-call": "call",
    "tool-return": "result",
    "builtin-tool-return": "result",
    "retry-prompt": "retry",
    "retry-feedback": "retry",
}
_LANGCHAIN_ROLES: Mapping[str, Role] = {
    "system": "system",
    "human": "user",
    "ai": "assistant",
    "tool": "result",
}


@dataclass(frozen=True)
class Line:
    """One part of a message.

    Attributes:
        role: whose.
        text: what is said; of a call its arguments.
        tool: the tool of a call, a result or a retry; empty elsewhere.
    """

    role: Role
    text: str
    tool: str = ""


def preview(message: object) -> list[Line]:
    """What a stored message says, part by part.

    Args:
        message: its stored form, read as JSON.
    """
    if isinstance(message, dict):
        fields = cast("Mapping[str, object]", message)
        if isinstance(parts := fields.get("parts"), list):
            return [_pydantic_line(part) for part in _objects(cast("list[object]", parts))]
        if isinstance(fields.get("type"), str):
            return list(_langchain_lines(str(fields["type"]), fields))
    return [Line("other", _text(cast("object", message)))]


def _pydantic_line(part: Mapping[str, object]) -> Line:
    role = _PYDANTIC_ROLES.get(str(part.get("part_kind")), "other")
    content = part.get("args") if role == "call" else part.get("content")
    if role == "other":
        content = part if content is None else content
    return Line(role, _text(content), str(part.get("tool_name") or ""))


def _langchain_lines(kind: str, message: Mapping[str, object]) -> Iterator[Line]:
    data = message.get("data")
    fields = cast("Mapping[str, object]", data) if isinstance(data, dict) else message
    role = _LANGCHAIN_ROLES.get(kind, "other")
    if content := fields.get("content"):
        yield Line(role, _text(content), str(fields.get("name") or "") if role == "result" else "")
    for call in _objects(fields.get("tool_calls") or []):
        yield Line("call", _text(call.get("args")), str(call.get("name") or ""))


def _text(content: object) -> str:
    """Content as text: of a list the texts, and of anything else in it what it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(_item(item) for item in cast("list[object]", content))
    return json.dumps(content, ensure_ascii=False)


def _item(item: object) -> str:
    if isinstance(item, dict):
        fields = cast("Mapping[str, object]", item)
        if isinstance(text := fields.get("text"), str):
            return text
        kind = fields.get("kind") or fields.get("type")
        if isinstance(kind, str):
            what = fields.get("media_type") or fields.get("url") or ""
            return f"[{kind}{f' {what}' if what else ''}]"
    return _text(cast("object", item))


def _objects(items: object) -> Iterator[Mapping[str, object]]:
    for item in cast("Sequence[object]", items) if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield cast("Mapping[str, object]", item)
