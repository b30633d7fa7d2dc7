"""How a lane's history grows in one step of a graph: by what follows it, or by being written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage

from laneway.activities.langchain_codec import detached
from laneway.activities.retries import SerializationFailed

__all__ = ["Grown", "grown", "without_response_ids"]

_RESPONSE = "resp_"


@dataclass(frozen=True)
class Grown:
    """A history after a step.

    Attributes:
        messages: the messages: stored ones as they are stored.
        sources: for each, its index in the history before the step; None for a new one.
        kept: whether it only grew: then what is new is all after what was there.
    """

    messages: Sequence[BaseMessage]
    sources: Sequence[int | None]
    kept: bool


def grown(
    stored: Sequence[BaseMessage], given: Sequence[BaseMessage], value: object, *, channel: str, name: str
) -> Grown:
    """What the value of the channel of messages makes of a history.

    Args:
        stored: the history.
        given: its messages as the graph was given them.
        value: the channel's value now.
        channel: the channel, for the error.
        name: what new messages without an id are named after.

    Raises:
        SerializationFailed: the value is no list of messages.
    """
    if not isinstance(value, list):
        raise SerializationFailed(
            f"channel {channel!r} holds a {type(value).__name__}, and not a list of messages: annotate it with "
            "add_messages"
        )
    places = {id(message): place for place, message in enumerate(given)}
    named = {message.id: place for place, message in enumerate(given) if message.id is not None}
    messages: list[BaseMessage] = []
    sources: list[int | None] = []
    for index, message in enumerate(cast("list[object]", value)):
        if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
            raise SerializationFailed(
                f"channel {channel!r} holds a {type(message).__name__} at index {index}, and not a message: annotate "
                "it with add_messages, which turns what it is given into messages"
            )
        place = places.get(id(message), named.get(message.id or ""))
        if place is not None and message == given[place]:
            messages.append(stored[place])
            sources.append(place)
            continue
        own = detached(message)
        if own.id is None:
            own.id = str(uuid5(NAMESPACE_OID, f"{name}/{index}"))
        messages.append(own)
        sources.append(None)
    kept = sources[: len(stored)] == list(range(len(stored))) and not any(
        source is not None for source in sources[len(stored) :]
    )
    return Grown(messages, sources, kept)


def without_response_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Copies of messages that a provider's own memory does not go on from: what it remembers is no longer so."""
    copies: list[BaseMessage] = []
    for message in messages:
        copy = detached(message)
        metadata: Mapping[str, object] = copy.response_metadata
        if isinstance(copy, AIMessage) and str(metadata.get("id", "")).startswith(_RESPONSE):
            copy.response_metadata = {key: value for key, value in metadata.items() if key != "id"}
        copies.append(copy)
    return copies
