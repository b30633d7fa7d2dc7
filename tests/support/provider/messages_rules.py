"""Anthropic Messages: what a request may look like. Thinking has its own module, ``preserved``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.support.provider.errors import Refusal
from tests.support.provider.transcript import Json

_TOOL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_NO_PREFILL = re.compile(r"^claude-(opus|sonnet)-4-[6-9]|^claude-[a-z]+-[5-9]")
_SYSTEM_MESSAGES = re.compile(r"^claude-opus-4-8|^claude-[a-z]+-[5-9]")


def check_fields(body: Json, *, counting: bool = False) -> list[Json]:
    """The messages of a request, their content as lists of blocks; raises ``Refusal`` where fields are wrong."""
    if not counting and not isinstance(body.get("max_tokens"), int):
        raise Refusal("max_tokens: Field required")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Refusal("messages: Field required")
    if not messages:
        raise Refusal("messages: at least one message is required")
    normal: list[Json] = []
    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "system" and not _SYSTEM_MESSAGES.match(str(body.get("model"))):
            raise Refusal(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.'
            )
        if role not in ("user", "assistant", "system"):
            raise Refusal(f"messages.{at}.role: Input should be 'user', 'assistant' or 'system'")
        content = message.get("content")
        if content is None:
            raise Refusal(f"messages.{at}.content: Field required")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        normal.append({"role": role, "content": blocks})
    return normal


SUMMARY = "What was said until here."
COMPACTION_BETA = "compact-2026-01-12"
_COMPACTION_EDIT = "compact_20260112"
_LEAST_THRESHOLD = 50_000


def compaction_threshold(body: Json) -> int | None:
    """From how many input tokens on a request has the server compact; None where it has not."""
    for edit in (body.get("context_management") or {}).get("edits") or []:
        if edit.get("type") == _COMPACTION_EDIT:
            return int((edit.get("trigger") or {}).get("value", 150_000))
    return None


def check_compaction(body: Json, messages: list[Json], *, beta: str) -> None:
    """Compaction asks for its beta, and its blocks come back as they were."""
    threshold = compaction_threshold(body)
    blocks = [block for message in messages for block in message["content"] if block.get("type") == "compaction"]
    if (threshold is not None or blocks) and COMPACTION_BETA not in beta:
        raise Refusal("context_management: Extra inputs are not permitted")
    if threshold is not None and threshold < _LEAST_THRESHOLD:
        raise Refusal(f"context_management.edits.0.trigger.value: must be at least {_LEAST_THRESHOLD}")
    if any(block.get("content") != SUMMARY for block in blocks):
        raise Refusal("messages: compaction blocks cannot be modified")


def since_compaction(messages: list[Json]) -> list[Json]:
    """What the model still sees: a compaction stands for all that came before it."""
    at = max(
        (at for at, one in enumerate(messages) if any(b.get("type") == "compaction" for b in one["content"])), default=0
    )
    return messages[at:]


def check_messages(body: Json, messages: list[Json], *, alternate: bool = False) -> None:
    """Order, emptiness and tool pairing.

    The API takes consecutive messages of one role for one turn; ``alternate`` refuses them, as it once did.
    """
    # What stands before a compaction is ignored, so clients leave it out and open with the answer that holds it.
    if messages[0]["role"] != "user" and "compaction" not in (block.get("type") for block in messages[0]["content"]):
        raise Refusal('messages: first message must use the "user" role')
    if alternate:
        for before, after in pairwise(messages):
            if before["role"] == after["role"]:
                raise Refusal(
                    'messages: roles must alternate between "user" and "assistant", but found multiple '
                    f'"{after["role"]}" roles in a row'
                )
    _check_content(body, messages)
    if messages[-1]["role"] == "assistant" and _NO_PREFILL.match(str(body["model"])):
        raise Refusal(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _check_tools(messages)
    check_cache_marks(body)


def _check_content(body: Json, messages: list[Json]) -> None:
    system = body.get("system")
    if isinstance(system, list) and any(not block.get("text") for block in system):
        raise Refusal("system: text content blocks must be non-empty")
    for at, message in enumerate(messages):
        last_assistant = at == len(messages) - 1 and message["role"] == "assistant"
        blocks = message["content"]
        if not blocks and not last_assistant:
            raise Refusal(
                f"messages.{at}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
        for number, block in enumerate(blocks):
            if block.get("type") == "text":
                _check_text(block, at, number)
            for inner in _inner(block):
                if inner.get("type") == "text" and not inner.get("text"):
                    raise Refusal("messages: text content blocks must be non-empty")
        if last_assistant and blocks and blocks[-1].get("type") == "text" and blocks[-1]["text"][-1:].isspace():
            raise Refusal("messages: final assistant content cannot end with trailing whitespace")


def _check_text(block: Json, at: int, number: int) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Refusal(f"messages.{at}.content.{number}.text.text: Input should be a valid string")
    if not text:
        if block.get("cache_control"):
            raise Refusal(f"messages.{at}.content.{number}.text: cache_control cannot be set for empty text blocks")
        raise Refusal("messages: text content blocks must be non-empty")
    if not text.strip():
        raise Refusal("messages: text content blocks must contain non-whitespace text")


def _inner(block: Json) -> list[Any]:
    content = block.get("content") if block.get("type") == "tool_result" else None
    return content if isinstance(content, list) else []


def _turns(messages: list[Json]) -> Iterator[tuple[str, list[tuple[int, int, Json]]]]:
    """Messages merged by role, each block with its position. A system message does not end a turn."""
    role: str | None = None
    blocks: list[tuple[int, int, Json]] = []
    for at, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if role is not None and message["role"] != role:
            yield role, blocks
            blocks = []
        role = message["role"]
        blocks = blocks + [(at, number, block) for number, block in enumerate(message["content"])]
    if role is not None:
        yield role, blocks


def _check_tools(messages: list[Json]) -> None:
    seen: set[str] = set()
    open_ids: list[str] = []
    open_at = 0
    for role, blocks in _turns(messages):
        results: dict[str, None] = {}
        leading = True
        for at, number, block in blocks:
            if role == "user" and block.get("type") == "tool_result":
                id = str(block.get("tool_use_id"))
                if id not in open_ids:
                    raise Refusal(
                        f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                        "message."
                    )
                if id in results:
                    raise Refusal(
                        f"messages.{at}.content.{number}: each tool_use must have a single result. Found multiple "
                        f"`tool_result` blocks with id: {id}"
                    )
                if leading:
                    results[id] = None
            elif role == "user":
                leading = False
        missing = [id for id in open_ids if id not in results]
        if missing:
            _unanswered(open_at, missing)
        open_ids = []
        for at, number, block in blocks:
            if role == "assistant" and block.get("type") == "tool_use":
                id = str(block.get("id"))
                if not _TOOL_ID.match(id):
                    raise Refusal(
                        f"messages.{at}.content.{number}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                    )
                if not isinstance(block.get("input"), dict):
                    raise Refusal(f"messages.{at}.content.{number}.tool_use.input: Input should be a valid dictionary")
                if id in seen:
                    raise Refusal(f"messages.{at}.content.{number}: `tool_use` ids must be unique")
                seen.add(id)
                open_ids.append(id)
                open_at = at
    if open_ids:
        _unanswered(open_at, open_ids)


def _unanswered(at: int, ids: list[str]) -> None:
    raise Refusal(
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def check_cache_marks(body: Json) -> None:
    """At most four ``cache_control`` marks; none on thinking."""
    found = 1 if body.get("cache_control") else 0
    system = body.get("system")
    groups = [body.get("tools") or [], system if isinstance(system, list) else []]
    groups += [m["content"] for m in body["messages"] if isinstance(m.get("content"), list)]
    for group in groups:
        for block in group:
            if block.get("cache_control") and block.get("type") in ("thinking", "redacted_thinking"):
                raise Refusal("messages: cache_control may not be set on thinking blocks")
            found += sum(1 for part in (block, *_inner(block)) if part.get("cache_control"))
    if found > 4:
        raise Refusal(f"A maximum of 4 blocks with cache_control may be provided. Found {found}.")
