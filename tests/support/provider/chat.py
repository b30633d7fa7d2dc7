"""OpenAI Chat Completions: the rules of a request, its transcript, the form of an answer."""

from __future__ import annotations

import time
from typing import Any

from tests.support.provider.answers import Answer, Text, ToolCall
from tests.support.provider.errors import Refusal
from tests.support.provider.rendering import Checked, Figures, Ids, Rendered, figures, pieces, sse, with_ids
from tests.support.provider.tokens import PrefixCache, prompt_segments
from tests.support.provider.transcript import Entry, Json, content_text

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def check(body: Json, cache: PrefixCache) -> Checked:
    """Hold a request to the API's rules.

    Raises ``Refusal`` with the API's own wording. Stricter than the API in one thing: a tool call id
    may not be used twice in a request, not even in different messages.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Refusal("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not messages:
        raise Refusal(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    _check_messages(messages)
    segments = prompt_segments(body.get("tools"), messages)
    return Checked(
        transcript=tuple(_transcript(messages)),
        tools=tuple(str(tool.get("function", {}).get("name", "")) for tool in body.get("tools") or []),
        counted=cache.count(("chat", str(body.get("model")), str(body.get("prompt_cache_key", ""))), segments),
    )


def _check_messages(messages: list[Any]) -> None:
    seen: set[str] = set()
    open_ids: list[str] = []
    open_at = 0
    answered: set[str] = set()

    def close() -> None:
        missing = [id for id in open_ids if id not in answered]
        if missing:
            raise Refusal(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}",
                param=f"messages.[{open_at}].role",
            )

    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise Refusal(
                f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', "
                "'tool', and 'developer'.",
                param=f"messages[{at}].role",
                code="invalid_value",
            )
        calls = message.get("tool_calls") if role == "assistant" else None
        if role == "tool":
            id = message.get("tool_call_id")
            if not open_ids:
                raise Refusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                    "with 'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            if id not in open_ids:
                raise Refusal(
                    f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
                    param=f"messages.[{at}].tool_call_id",
                )
            if id in answered:
                raise Refusal(
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of '{id}' in message[{at}].",
                    param=f"messages.[{at}].tool_call_id",
                )
            answered.add(id)
        else:
            close()
            open_ids, open_at, answered = [], at, set()
        if message.get("content") is None and not calls and not message.get("refusal"):
            raise Refusal("Invalid value for 'content': expected a string, got null.", param=f"messages.[{at}].content")
        if calls is not None and not calls:
            raise Refusal(
                f"Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, "
                "but got an empty array instead.",
                param=f"messages[{at}].tool_calls",
                code="empty_array",
            )
        for call in calls or []:
            id = str(call.get("id"))
            if id in seen:
                raise Refusal(
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of '{id}' in message[{at}].",
                    param=f"messages.[{at}].tool_calls",
                )
            seen.add(id)
            open_ids.append(id)
    close()


def _transcript(messages: list[Any]) -> list[Entry]:
    entries: list[Entry] = []
    names: dict[str, str] = {}
    for message in messages:
        role, text = message["role"], content_text(message.get("content"))
        if role == "tool":
            id = message["tool_call_id"]
            entries.append(Entry("result", text, id, names.get(id, "")))
        elif role == "assistant":
            if text:
                entries.append(Entry("assistant", text))
            for call in message.get("tool_calls") or []:
                names[call["id"]] = call["function"]["name"]
                entries.append(Entry("call", call["function"]["arguments"], call["id"], call["function"]["name"]))
        elif role in ("system", "developer"):
            entries.append(Entry("system", text))
        else:
            entries.append(Entry("user", text))
    return entries


def check_context(checked: Checked, limit_tokens: int) -> None:
    """Refuse a prompt over the model's context."""
    if checked.counted.input_tokens > limit_tokens:
        raise Refusal(
            f"This model's maximum context length is {limit_tokens} tokens. However, your messages resulted in "
            f"{checked.counted.input_tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


def render(body: Json, checked: Checked, answer: Answer, ids: Ids) -> Rendered:
    """The answer as a ``chat.completion`` and as its chunks."""
    answer = with_ids(answer, ids, "call_")
    counts = figures(checked.counted, answer)
    usage = _usage(counts)
    id = ids.new("chatcmpl-")
    head: Json = {"id": id, "created": int(time.time()), "model": body["model"], "service_tier": "default"}
    text = "".join(part.text for part in answer.parts if isinstance(part, Text))
    calls = [_call(part) for part in answer.calls]
    finish = {"length": "length", "filtered": "content_filter"}.get(answer.finish, "tool_calls" if calls else "stop")
    message: Json = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    whole = head | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": usage,
    }
    return Rendered(id, whole, tuple(_events(body, head, answer, finish, usage)), usage)


def _call(part: ToolCall) -> Json:
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}


def _usage(counts: Figures) -> Json:
    return {
        "prompt_tokens": counts.input_tokens,
        "completion_tokens": counts.output_tokens,
        "total_tokens": counts.input_tokens + counts.output_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _events(body: Json, head: Json, answer: Answer, finish: str, usage: Json) -> list[bytes]:
    include_usage = bool((body.get("stream_options") or {}).get("include_usage"))

    def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        more: Json = {"usage": None} if include_usage else {}
        return sse(head | {"object": "chat.completion.chunk", "choices": [choice]} | more)

    events = [chunk({"role": "assistant", "content": "" if answer.text else None, "refusal": None})]
    number = 0
    for part in answer.parts:
        if isinstance(part, Text):
            events += [chunk({"content": piece}) for piece in pieces(part.text, answer.chunk_chars)]
        elif isinstance(part, ToolCall):
            call = _call(part)
            call["function"]["arguments"] = ""
            events.append(chunk({"tool_calls": [{"index": number, **call}]}))
            events += [
                chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
                for piece in pieces(part.arguments, answer.chunk_chars)
            ]
            number += 1
    events.append(chunk({}, finish))
    if include_usage:
        events.append(sse(head | {"object": "chat.completion.chunk", "choices": [], "usage": usage}))
    events.append(sse("[DONE]"))
    return events
