"""Anthropic Messages: a request's check and transcript, the form of an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider import preserved
from tests.support.provider.answers import Answer, Text, Thinking
from tests.support.provider.errors import Refusal
from tests.support.provider.messages_rules import (
    SUMMARY,
    check_compaction,
    check_fields,
    check_messages,
    compaction_threshold,
    since_compaction,
)
from tests.support.provider.rendering import Checked, Figures, Ids, Rendered, figures, pieces, sse, with_ids
from tests.support.provider.signatures import Signer
from tests.support.provider.tokens import PrefixCache, prompt_segments
from tests.support.provider.transcript import Entry, Json, content_text


@dataclass
class MessagesApi:
    """The API with what it must remember: which tool calls it issued after thinking.

    ``binds`` says which models bind thinking to its prefix: ``None`` those that really do.
    """

    signer: Signer
    cache: PrefixCache
    binds: bool | None = None
    alternate: bool = False
    thought_first: set[str] = field(default_factory=set[str])

    def check(self, body: Json, headers: Mapping[str, str], *, counting: bool = False) -> Checked:
        """Hold a request to the rules; raises ``Refusal``."""
        messages = check_fields(body, counting=counting)
        check_messages(body, messages, alternate=self.alternate)
        check_compaction(body, messages, beta=headers.get("anthropic-beta", ""))
        binds = str(body["model"]).startswith(preserved.BINDING_MODELS) if self.binds is None else self.binds
        kept = preserved.check(body, messages, self.signer, binds=binds, beta=headers.get("anthropic-beta", ""))
        preserved.check_loop(body, messages, frozenset(self.thought_first))
        system = body.get("system")
        system_blocks = [{"type": "text", "text": system}] if isinstance(system, str) and system else system or []
        segments = prompt_segments(body.get("tools"), system_blocks)
        marks = [bool(block.get("cache_control")) for block in [*(body.get("tools") or []), *system_blocks]]
        for message in since_compaction(messages):
            for block in message["content"]:
                segments.append({"role": message["role"], **block})
                inner = block.get("content") if isinstance(block.get("content"), list) else []
                marks.append(any(part.get("cache_control") for part in (block, *inner)))
        if body.get("cache_control") and marks:
            marks[-1] = True
        counted = self.cache.count(
            ("messages", str(body["model"])), segments, breakpoints=[at for at, mark in enumerate(marks) if mark]
        )
        return Checked(
            transcript=tuple(_transcript(system_blocks, messages)),
            tools=tuple(str(tool.get("name", tool.get("type", ""))) for tool in body.get("tools") or []),
            counted=counted,
            context=kept,
        )

    def render(self, body: Json, checked: Checked, answer: Answer, ids: Ids) -> Rendered:
        """The answer as a ``message`` and as its events."""
        answer = with_ids(answer, ids, "toolu_")
        kept = checked.context
        assert isinstance(kept, preserved.Preserved)
        content: list[Json] = []
        thought = False
        threshold = compaction_threshold(body)
        if threshold is not None and checked.counted.input_tokens >= threshold:
            compaction: Json = {"type": "compaction", "content": SUMMARY}
            kept.prefix.add("assistant", compaction)
            content.append(compaction)
        for part in answer.parts:
            if isinstance(part, Thinking):
                thought = True
                signature = preserved.issue(self.signer, kept.prefix, body["model"], part.text, ids.new("think_"))
                content.append(
                    {"type": "redacted_thinking", "data": signature}
                    if part.redacted
                    else {"type": "thinking", "thinking": part.text, "signature": signature}
                )
                continue
            if isinstance(part, Text):
                block: Json = {"type": "text", "text": part.text, "citations": None}
            else:
                if thought:
                    self.thought_first.add(str(part.id))
                args = json.loads(part.args) if isinstance(part.args, str) else dict(part.args)
                block = {"type": "tool_use", "id": part.id, "name": part.name, "input": args}
            kept.prefix.add("assistant", block)
            content.append(block)
        counts = figures(checked.counted, answer)
        usage = _usage(counts)
        id = ids.new("msg_")
        stop = {"length": "max_tokens", "filtered": "refusal"}.get(
            answer.finish, "tool_use" if answer.calls else "end_turn"
        )
        whole: Json = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }
        if kept.transformations:
            whole["input_transformations"] = list(kept.transformations)
        return Rendered(id, whole, tuple(_events(whole, answer.chunk_chars)), usage)


def check_context(checked: Checked, limit_tokens: int) -> None:
    """Refuse a prompt over the model's context."""
    if checked.counted.input_tokens > limit_tokens:
        raise Refusal(f"prompt is too long: {checked.counted.input_tokens} tokens > {limit_tokens} maximum")


def _usage(counts: Figures) -> Json:
    """``input_tokens`` leaves out what the cache read or wrote, as the API does."""
    return {
        "input_tokens": max(0, counts.input_tokens - counts.cached_tokens - counts.written_tokens),
        "cache_creation_input_tokens": counts.written_tokens,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens,
        "service_tier": "standard",
    }


def _transcript(system: list[Any], messages: list[Json]) -> list[Entry]:
    entries = [Entry("system", str(block.get("text", ""))) for block in system]
    names: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            kind = block.get("type")
            if kind == "tool_use":
                names[block["id"]] = block["name"]
                entries.append(Entry("call", json.dumps(block["input"]), block["id"], block["name"]))
            elif kind == "tool_result":
                id = block["tool_use_id"]
                entries.append(Entry("result", content_text(block.get("content")), id, names.get(id, "")))
            elif kind in ("thinking", "redacted_thinking"):
                entries.append(Entry("thinking", str(block.get("thinking", ""))))
            else:
                entries.append(Entry(message["role"], content_text([block])))
    return entries


def _events(whole: Json, chunk_chars: int) -> list[bytes]:
    opening = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    events = [sse({"type": "message_start", "message": opening}, "message_start"), sse({"type": "ping"}, "ping")]

    def event(kind: str, **fields: Any) -> None:
        events.append(sse({"type": kind, **fields}, kind))

    for index, block in enumerate(whole["content"]):
        match block["type"]:
            case "text":
                empty = block | {"text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"], chunk_chars)]
            case "thinking":
                empty = block | {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"], chunk_chars)]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use":
                empty = block | {"input": {}}
                text = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": p} for p in ("", *pieces(text, chunk_chars))]
            case "compaction":
                empty = block | {"content": None}
                deltas = [{"type": "compaction_delta", "content": block["content"]}]
            case _:
                empty, deltas = block, []
        event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            event("content_block_delta", index=index, delta=delta)
        event("content_block_stop", index=index)
    event(
        "message_delta",
        delta={"stop_reason": whole["stop_reason"], "stop_sequence": None},
        usage=whole["usage"],
    )
    event("message_stop")
    return events
