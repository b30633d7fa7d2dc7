"""What a turn of a graph begins with: a prompt, messages, or an update of its state; and its stored form."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages

from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_state import StateCodec
from laneway.activities.retries import SerializationFailed
from laneway.errors import InvalidInput

__all__ = ["GraphInput", "GraphPrompt"]

_TAKES: Final = (
    "a lane of a graph takes text, a list of content blocks, a message or several, or a dict that updates the graph's "
    "state"
)


@dataclass(frozen=True)
class GraphInput:
    """What a graph is given.

    Attributes:
        messages: new messages.
        state: the values of other channels.
    """

    messages: Sequence[BaseMessage] = ()
    state: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class GraphPrompt:
    """Reads prompts, and stores them.

    Args:
        messages_key: the channel of messages.
        channels: those that an input may write.
        messages: stores messages.
        values: stores values of other channels.
    """

    messages_key: str
    channels: frozenset[str]
    messages: MessageCodec
    values: StateCodec

    def encode(self, prompt: object) -> bytes:
        """The stored form of a prompt: equal for equal ones.

        Raises:
            InvalidInput: a graph does not take it.
        """
        given = self._read(prompt)
        try:
            form: dict[str, object] = {"messages": [self.messages.to_json(one) for one in given.messages]}
            if given.state:
                names = sorted(given.state)
                blob = self.values.dump(names, [(name, given.state[name]) for name in names])
                form["state"] = b64encode(blob).decode()
            return json.dumps(form, separators=(",", ":")).encode()
        except SerializationFailed as error:
            raise InvalidInput(f"the prompt cannot be stored: {error}") from error

    def decode(self, blob: bytes, *, turn_id: str) -> GraphInput:
        """What `encode` was given. Messages without an id get one, the same with each call."""
        form: dict[str, Any] = json.loads(blob)
        messages = [self.messages.from_json(one) for one in form["messages"]]
        for place, message in enumerate(messages):
            if message.id is None:
                message.id = str(uuid5(NAMESPACE_OID, f"{turn_id}/{place}"))
        if "state" not in form:
            return GraphInput(messages)
        names, values = self.values.load(b64decode(form["state"]))
        return GraphInput(messages, dict(zip(names, values, strict=True)))

    def shown(self, blob: bytes) -> object:
        """What `encode` was given, in a form that it takes: text where it is nothing but that."""
        form: dict[str, Any] = json.loads(blob)
        messages = [self.messages.from_json(one) for one in form["messages"]]
        if "state" in form:
            names, values = self.values.load(b64decode(form["state"]))
            update = dict(zip(names, values, strict=True))
            return {self.messages_key: messages, **update} if messages else update
        if len(messages) == 1 and isinstance(content := messages[0].content, str) and self.encode(content) == blob:
            return content
        return messages

    def _read(self, prompt: object) -> GraphInput:
        if isinstance(prompt, Mapping):
            return self._update(cast("Mapping[object, object]", prompt))
        messages = self._messages(prompt)
        if all(isinstance(one, HumanMessage) and not _says(one) for one in messages):
            raise InvalidInput("the prompt is empty: give it some text")
        return GraphInput(messages)

    def _update(self, update: Mapping[object, object]) -> GraphInput:
        unknown = [name for name in update if name not in self.channels]
        if unknown:
            raise InvalidInput(
                f"the graph's input has no channel {unknown[0]!r}; it has {', '.join(map(repr, sorted(self.channels)))}"
            )
        state = {cast("str", name): value for name, value in update.items() if name != self.messages_key}
        messages = self._messages(update[self.messages_key]) if self.messages_key in update else []
        if not messages and not state:
            raise InvalidInput(f"the prompt is empty: {_TAKES}")
        return GraphInput(messages, state)

    def _messages(self, given: object) -> list[BaseMessage]:
        match given:
            case str():
                return [HumanMessage(given)]
            case BaseMessage():
                return [given]
            case list() | tuple():
                items = cast("Sequence[Any]", given)
                if not items:
                    raise InvalidInput(f"the prompt is empty: {_TAKES}")
                if all(_is_block(item) for item in items):
                    return [HumanMessage(cast("Any", list(items)))]
                try:
                    return convert_to_messages(items)
                except (ValueError, NotImplementedError, KeyError, TypeError) as error:
                    raise InvalidInput(f"the prompt is no list of messages: {error}; {_TAKES}") from error
            case _:
                raise InvalidInput(f"the prompt is a {type(given).__name__}: {_TAKES}")


def _is_block(item: object) -> bool:
    """Whether an item is a part of one message's content, and not a message itself."""
    return isinstance(item, str) or (isinstance(item, Mapping) and "type" in item and "role" not in item)


def _says(message: BaseMessage) -> bool:
    if isinstance(message.content, str):
        return bool(message.content.strip())
    return any(not isinstance(block, str) or block.strip() for block in message.content)
