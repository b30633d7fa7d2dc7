"""OpenAI Responses: the form of an answer, whole and as events."""

from __future__ import annotations

import time
from typing import Any

from tests.support.provider.answers import Answer, Text, Thinking
from tests.support.provider.rendering import Figures, Ids, pieces, sse
from tests.support.provider.responses_rules import ENCRYPTED_PREFIX
from tests.support.provider.signatures import Signer, digest
from tests.support.provider.transcript import Json


def output_items(answer: Answer, ids: Ids, signer: Signer) -> list[Json]:
    """The items of an answer, in its order."""
    items: list[Json] = []
    for part in answer.parts:
        if isinstance(part, Thinking):
            id = ids.new("rs_")
            items.append(
                {
                    "id": id,
                    "type": "reasoning",
                    "summary": [] if part.redacted else [{"type": "summary_text", "text": part.text}],
                    "encrypted_content": signer.issue({"id": id, "text": digest(part.text)}, prefix=ENCRYPTED_PREFIX),
                }
            )
        elif isinstance(part, Text):
            text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
            items.append(
                {
                    "id": ids.new("msg_"),
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": [text],
                }
            )
        else:
            items.append(
                {
                    "id": ids.new("fc_"),
                    "type": "function_call",
                    "status": "completed",
                    "arguments": part.arguments,
                    "call_id": part.id,
                    "name": part.name,
                }
            )
    return items


def compaction_item(ids: Ids, signer: Signer) -> Json:
    """What stands for everything before it from now on."""
    id = ids.new("cmp_")
    return {"id": id, "type": "compaction", "encrypted_content": signer.issue({"id": id}, prefix=ENCRYPTED_PREFIX)}


def whole(id: str, body: Json, answer: Answer, items: list[Json], counts: Figures) -> Json:
    """The response object."""
    reason = {"length": "max_output_tokens", "filtered": "content_filter"}.get(answer.finish)
    conversation = body.get("conversation")
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "conversation": {"id": conversation} if isinstance(conversation, str) else conversation,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "store": body.get("store") is not False,
        "temperature": 1.0,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": counts.input_tokens,
            "input_tokens_details": {
                "cached_tokens": counts.cached_tokens,
                "cache_write_tokens": counts.written_tokens,
            },
            "output_tokens": counts.output_tokens,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
            "total_tokens": counts.input_tokens + counts.output_tokens,
        },
    }


class _Events:
    """Events in sequence."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def add(self, kind: str, **fields: Any) -> None:
        self.sent.append(sse({"type": kind, "sequence_number": len(self.sent), **fields}, kind))


def events(response: Json, answer: Answer) -> list[bytes]:
    """The response as a stream."""
    out = _Events()
    begun = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    out.add("response.created", response=begun)
    out.add("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        match item["type"]:
            case "message":
                _message(out, index, item, answer.chunk_chars)
            case "reasoning":
                _reasoning(out, index, item, answer.chunk_chars)
            case "compaction":
                out.add("response.output_item.added", output_index=index, item=item)
                out.add("response.output_item.done", output_index=index, item=item)
            case _:
                _call(out, index, item, answer.chunk_chars)
    final = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
    out.add(final, response=response)
    return out.sent


def _message(out: _Events, index: int, item: Json, size: int) -> None:
    part = item["content"][0]
    at: Json = {"item_id": item["id"], "output_index": index, "content_index": 0}
    out.add("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "content": []})
    out.add("response.content_part.added", **at, part=part | {"text": ""})
    for piece in pieces(part["text"], size):
        out.add("response.output_text.delta", **at, delta=piece, logprobs=[])
    out.add("response.output_text.done", **at, text=part["text"], logprobs=[])
    out.add("response.content_part.done", **at, part=part)
    out.add("response.output_item.done", output_index=index, item=item)


def _reasoning(out: _Events, index: int, item: Json, size: int) -> None:
    out.add("response.output_item.added", output_index=index, item=item | {"summary": []})
    for number, summary in enumerate(item["summary"]):
        at: Json = {"item_id": item["id"], "output_index": index, "summary_index": number}
        out.add("response.reasoning_summary_part.added", **at, part=summary | {"text": ""})
        for piece in pieces(summary["text"], size):
            out.add("response.reasoning_summary_text.delta", **at, delta=piece)
        out.add("response.reasoning_summary_text.done", **at, text=summary["text"])
        out.add("response.reasoning_summary_part.done", **at, part=summary)
    out.add("response.output_item.done", output_index=index, item=item)


def _call(out: _Events, index: int, item: Json, size: int) -> None:
    at: Json = {"item_id": item["id"], "output_index": index}
    out.add("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "arguments": ""})
    for piece in pieces(item["arguments"], size):
        out.add("response.function_call_arguments.delta", **at, delta=piece)
    out.add("response.function_call_arguments.done", **at, arguments=item["arguments"], name=item["name"])
    out.add("response.output_item.done", output_index=index, item=item)
