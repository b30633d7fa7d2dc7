"""What LangChain's messages say, in canonical form; deep copies of them; and which classes are messages at all."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

from laneway.activities.retries import SerializationFailed
from laneway.history.detachment import detached

__all__ = ["SENT_KWARGS", "STORED_CLASSES", "canonical", "deep_copy", "is_native_message", "kind_of", "sent_kwargs"]

STORED_CLASSES: Final[Mapping[str, type[BaseMessage]]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "chat": ChatMessage,
    "function": FunctionMessage,
}
"""The classes of messages that a history holds, by their type. `RemoveMessage` is an instruction, and is none."""

_CHUNKS: Final = (
    HumanMessageChunk,
    AIMessageChunk,
    SystemMessageChunk,
    ToolMessageChunk,
    ChatMessageChunk,
    FunctionMessageChunk,
)
_NATIVE: Final = frozenset({*STORED_CLASSES.values(), *_CHUNKS})

SENT_KWARGS: Final = frozenset(
    {
        "function_call",
        "tool_calls",
        "audio",
        "refusal",
        "name",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "tool_outputs",
        "signature",
        "thought_signature",
        "__openai_role__",
        "__openai_function_call_ids__",
        "__gemini_function_call_thought_signatures__",
    }
)
"""The keys of `additional_kwargs` that LangChain's integrations send. The others are the application's own."""


def is_native_message(value: object) -> TypeGuard[BaseMessage]:
    """Whether a value is a message of one of LangChain's own classes: no subclass, and no `RemoveMessage`."""
    return type(value) in _NATIVE


def kind_of(message: BaseMessage) -> str:
    """The type of the message, that of the whole one for a chunk.

    Raises:
        SerializationFailed: the message is none that a history can hold.
    """
    for kind, cls in STORED_CLASSES.items():
        if isinstance(message, cls):
            return kind
    raise SerializationFailed(
        f"a {type(message).__name__} ({message.type!r}) cannot be part of a history: it takes "
        f"{', '.join(cls.__name__ for cls in STORED_CLASSES.values())}"
    )


def sent_kwargs(message: BaseMessage) -> dict[str, Any]:
    """What of `additional_kwargs` is sent."""
    kwargs = cast("Mapping[str, Any]", message.additional_kwargs)
    return {key: value for key, value in kwargs.items() if key in SENT_KWARGS and value}


def canonical(message: BaseMessage) -> bytes:
    """What a message says, as JSON with sorted keys, without bookkeeping: ids, usage, metadata, artifacts.

    Raises:
        SerializationFailed: something in it has no JSON form, so that it cannot be compared.
    """
    said: dict[str, object] = {"type": kind_of(message), "content": message.content}
    if message.name:
        said["name"] = message.name
    kwargs = sent_kwargs(message)
    match message:
        case AIMessage():
            if message.tool_calls:
                kwargs.pop("tool_calls", None)  # the same calls, as they were before they were parsed
                said["calls"] = [[call["id"], call["name"], call["args"]] for call in message.tool_calls]
            if message.invalid_tool_calls:
                kwargs.pop("tool_calls", None)
                said["invalid"] = [[call["id"], call["name"], call["args"]] for call in message.invalid_tool_calls]
        case ToolMessage():
            said["answers"] = message.tool_call_id
            if message.status != "success":
                said["status"] = message.status
        case ChatMessage():
            said["role"] = message.role
        case _:
            pass
    if kwargs:
        said["kwargs"] = kwargs
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_binary)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationFailed(
            f"a {type(message).__name__} (id {message.id!r}) cannot be compared: {error}. Messages hold JSON values"
        ) from error
    return text.encode("utf-8", "surrogatepass")


def _binary(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} is no JSON value")


def deep_copy(message: BaseMessage) -> BaseMessage:
    """A copy that shares nothing mutable with the message."""
    fields: dict[str, object] = {**vars(message), **(message.__pydantic_extra__ or {})}
    return message.model_copy(update={name: detached(value) for name, value in fields.items()})
