"""LangChain's messages as they are stored: `{"type": …, "data": {…}}`, the form of its own `message_to_dict`.

What a field holds as it is by default is left out. What has no JSON form (a date in metadata, a document that a tool
kept as its artifact) is written by LangGraph's serializer with its strict allow-list, so that nothing but what is on it
is ever constructed from stored data.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

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
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from pydantic import ValidationError

from laneway.activities.retries import SerializationFailed
from laneway.errors import StoreError
from laneway.history.stored_json import compact_json
from laneway.langgraph_serde import Leaves, strict_serializer

__all__ = ["MessageCodec", "are_equal", "detached"]

_KINDS: Final[Mapping[str, type[BaseMessage]]] = {
    "ai": AIMessage,
    "AIMessageChunk": AIMessageChunk,
    "chat": ChatMessage,
    "ChatMessageChunk": ChatMessageChunk,
    "function": FunctionMessage,
    "FunctionMessageChunk": FunctionMessageChunk,
    "human": HumanMessage,
    "HumanMessageChunk": HumanMessageChunk,
    "remove": RemoveMessage,
    "system": SystemMessage,
    "SystemMessageChunk": SystemMessageChunk,
    "tool": ToolMessage,
    "ToolMessageChunk": ToolMessageChunk,
}
_NAMES: Final[Mapping[type[BaseMessage], str]] = {kind: name for name, kind in _KINDS.items()}
_DEFAULTS: Final[Mapping[type[BaseMessage], Mapping[str, object]]] = {
    kind: {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
    for kind in _NAMES
}
_DERIVED: Final = frozenset({"tool_calls", "invalid_tool_calls"})
"""What an answer makes out of `additional_kwargs` where it is not given."""
_LEAF: Final = "laneway:msgpack"
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})
_set: Final = object.__setattr__


class MessageCodec:
    """Writes and reads messages.

    Args:
        leaves: what writes and reads values that have no JSON form; LangGraph's safe types alone where not given.
    """

    def __init__(self, leaves: Leaves | None = None) -> None:
        self._leaves = leaves or Leaves(strict_serializer(None, ()), owner="LangChainAdapter")

    def encode(self, message: BaseMessage) -> bytes:
        """A message as JSON.

        Raises:
            SerializationFailed: it is of a class of the application's own, or something in it cannot be stored.
        """
        return compact_json(self.to_json(message))

    def decode(self, payload: bytes) -> BaseMessage:
        """The message that `encode` was given.

        Raises:
            StoreError: it holds a type that is not on the allow-list.
            ValueError: it is no message.
        """
        return self.from_json(json.loads(payload))

    def to_json(self, message: BaseMessage) -> dict[str, object]:
        """A message as a JSON value. Raises as `encode` does."""
        kind = type(message)
        name = _NAMES.get(kind)
        if name is None:
            raise SerializationFailed(
                f"a {kind.__module__}.{kind.__qualname__} cannot be stored: lanes take LangChain's own classes of "
                "messages. Put what it adds into additional_kwargs or response_metadata"
            )
        try:
            return {"type": name, "data": {key: self._plain(value) for key, value in _said(message)}}
        except SerializationFailed:
            raise
        except Exception as error:  # whatever an object that cannot be stored raises
            raise SerializationFailed(
                f"a {kind.__name__} cannot be stored: {error}. Keep what is not plain data out of its content, "
                "additional_kwargs, response_metadata and artifact"
            ) from error

    def from_json(self, value: object) -> BaseMessage:
        """The message that `to_json` was given. Raises as `decode` does."""
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else dict[str, object]()
        kind, data = _KINDS.get(str(fields.get("type"))), fields.get("data")
        if kind is None or not isinstance(data, dict):
            raise ValueError(f"not a LangChain message: {json.dumps(value)[:200]}")
        try:
            make: Callable[..., BaseMessage] = kind
            return make(**cast("dict[str, Any]", self._native(cast("object", data))))
        except (ValidationError, TypeError, KeyError) as error:
            raise ValueError(f"not a {kind.__name__}: {error}") from error

    def _plain(self, value: object) -> object:
        # Exact types only: a subclass may hold more than its base has a form for.
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(cast("float", value))):
            return value
        if kind is list:
            return [self._plain(item) for item in cast("list[object]", value)]
        if kind is dict:
            mapping = cast("dict[object, object]", value)
            if _LEAF not in mapping and all(type(key) is str for key in mapping):
                return {cast("str", key): self._plain(item) for key, item in mapping.items()}
        return self._leaf(value)

    def _leaf(self, value: object) -> object:
        kind, data = self._leaves.dump(value)
        try:
            self._leaves.load(kind, data)
        except StoreError as error:
            raise SerializationFailed(f"a message holds what cannot be stored: {error}") from None
        return {_LEAF: [kind, b64encode(data).decode()]}

    def _native(self, value: object) -> object:
        if isinstance(value, list):
            return [self._native(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            mapping = cast("dict[str, object]", value)
            if _LEAF in mapping:
                kind, data = cast("list[str]", mapping[_LEAF])
                return self._leaves.load(kind, b64decode(data))
            return {key: self._native(item) for key, item in mapping.items()}
        return value


def detached(message: BaseMessage) -> BaseMessage:
    """A copy that shares no list and no dict with a message; quicker than a deep one, since nothing else is copied."""
    kind = type(message)
    copy = kind.__new__(kind)
    # What `model_copy` does, without its way of copying each of them: a graph's step copies the whole history.
    _set(copy, "__dict__", _unshared(vars(message)))
    _set(copy, "__pydantic_extra__", _unshared(message.__pydantic_extra__))
    _set(copy, "__pydantic_fields_set__", set(message.__pydantic_fields_set__))
    _set(copy, "__pydantic_private__", _unshared(message.__pydantic_private__))
    return copy


def are_equal(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages are equal; quick where they are."""
    return (
        type(one) is type(other)
        and vars(one) == vars(other)
        and one.__pydantic_extra__ == other.__pydantic_extra__
        and one.__pydantic_private__ == other.__pydantic_private__
    ) or one == other


def _unshared(value: object) -> object:
    # Exact types only: another one may be more than its items. Most items are atoms, which cost no call.
    kind = type(value)
    if kind is dict:
        mapping = cast("dict[object, object]", value)
        return {key: item if type(item) in _ATOMS else _unshared(item) for key, item in mapping.items()}
    if kind is list:
        return [item if type(item) in _ATOMS else _unshared(item) for item in cast("list[object]", value)]
    return value


def _said(message: BaseMessage) -> list[tuple[str, object]]:
    """The fields of a message that are not what they are by default."""
    defaults = _DEFAULTS[type(message)]
    keep = _DERIVED if message.additional_kwargs else frozenset[str]()
    said: list[tuple[str, object]] = []
    for key, value in vars(message).items():
        if key == "type" or (key not in keep and value == defaults[key]):
            continue
        said.append((key, cast("object", value)))
    said.extend((message.model_extra or {}).items())
    return said
