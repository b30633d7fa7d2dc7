"""The lane's history as a graph holds it for one step, and what the graph makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from laneway.activities.langchain_codec import are_equal, detached
from laneway.activities.langchain_editing import describe
from laneway.activities.langchain_messages import response_id_of
from laneway.activities.langchain_request import request_form
from laneway.activities.retries import SerializationFailed
from laneway.history.garbage import collection_paused
from laneway.history.origins import EntryMetadata

__all__ = ["History", "Shown", "grown", "has_open_calls", "shown"]


@dataclass(frozen=True)
class History:
    """A history, as it is stored.

    Attributes:
        messages: the messages.
        entries: what is known of each.
    """

    messages: Sequence[BaseMessage]
    entries: Sequence[EntryMetadata]


@dataclass(frozen=True)
class Shown:
    """A history as a graph holds it.

    Attributes:
        messages: copies, which nodes may do with as they like.
        sources: for each, its place in the history; None for one that is sent and not stored.
        pristine: what each of them was.
    """

    messages: Sequence[BaseMessage]
    sources: Sequence[int | None]
    pristine: Sequence[BaseMessage]

    def copies_of(self, history: Sequence[BaseMessage]) -> Sequence[BaseMessage | None]:
        """Of each message of the history its copy, where that is shown in the form that is stored."""
        trios = zip(self.messages, self.pristine, history, strict=False)
        return [copy if pristine is stored else None for copy, pristine, stored in trios]


def has_open_calls(history: Sequence[BaseMessage]) -> bool:
    """Whether tool calls of the last answer have no result yet."""
    results: set[str] = set()
    for message in reversed(history):
        if isinstance(message, ToolMessage):
            results.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return any(call["id"] not in results for call in message.tool_calls)
    return False


def shown(history: Sequence[BaseMessage], *, live: int, asks: bool, copies: Sequence[BaseMessage | None] = ()) -> Shown:
    """A history for a graph to hold.

    Args:
        history: the messages as they are stored.
        live: index of the first message that came after the history was written anew: what a provider remembers from
            before it is not gone on from.
        asks: whether a model is asked with it next: then it is made what a provider takes.
        copies: copies of its first messages that nothing has changed, where there are any: they are not made again.
    """
    copies = _copied(history, copies)
    if not asks:
        for copy in copies[:live]:
            if response_id_of(copy) is not None:
                metadata = copy.response_metadata
                copy.response_metadata = {key: value for key, value in metadata.items() if key != "id"}
        changed = [response_id_of(message) is not None for message in history[:live]]
        pristine = [
            detached(copy) if place < live and changed[place] else message
            for place, (copy, message) in enumerate(zip(copies, history, strict=True))
        ]
        return Shown(copies, range(len(copies)), pristine)
    form = request_form(copies, live=live)
    if not form.repairs:
        return Shown(copies, range(len(copies)), history)
    sources: list[int | None] = []
    given: list[BaseMessage] = []
    place = 0
    for message in form.messages:
        # A copy that differs keeps its id; what is sent besides has one of its own.
        if place < len(copies) and message.id == copies[place].id:
            sources.append(place)
            given.append(history[place] if message is copies[place] else detached(message))
            place += 1
        else:
            sources.append(None)
            given.append(detached(message))
    return Shown(form.messages, sources, given)


def _copied(history: Sequence[BaseMessage], copies: Sequence[BaseMessage | None]) -> list[BaseMessage]:
    with collection_paused():
        made = [detached(message) if copy is None else copy for message, copy in zip(history, copies, strict=False)]
        made.extend(map(detached, history[len(made) :]))
    return made


def grown(
    before: History, given: Shown, value: object, *, channel: str, turn_id: str, name: str
) -> tuple[History, bool, Sequence[BaseMessage | None]]:
    """What the value of the channel of messages makes of a history.

    Args:
        before: the history.
        given: as the graph was given it.
        value: the channel's value now.
        channel: the channel, for the error.
        turn_id: the turn that new messages are of.
        name: what new messages without an id are named after.

    Returns:
        the history, whether it only grew, and of each of its messages the copy that the graph holds unchanged, if any.

    Raises:
        SerializationFailed: the value is no list of messages.
    """
    if not isinstance(value, list):
        raise SerializationFailed(
            f"channel {channel!r} holds a {type(value).__name__}, and not a list of messages: annotate it with "
            "add_messages"
        )
    found = _Places(given.messages)
    messages: list[BaseMessage] = []
    entries: list[EntryMetadata] = []
    sources: list[int | None] = []
    copies: list[BaseMessage | None] = []
    for index, message in enumerate(cast("list[object]", value)):
        if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
            raise SerializationFailed(
                f"channel {channel!r} holds a {type(message).__name__} at index {index}, and not a message: annotate "
                "it with add_messages, which turns what it is given into messages"
            )
        place = found.place(message, index)
        if place is not None and are_equal(message, given.pristine[place]):
            source = given.sources[place]
            if source is not None:
                stored = before.messages[source]
                messages.append(stored)
                entries.append(before.entries[source])
                sources.append(source)
                # What is shown in another form than it is stored in is made anew from what is stored.
                copies.append(message if given.pristine[place] is stored else None)
            continue
        own = detached(message)
        if own.id is None:
            own.id = str(uuid5(NAMESPACE_OID, f"{name}/{index}"))
        messages.append(own)
        entries.append(describe(own, turn_id))
        sources.append(None)
        copies.append(None)
    length = len(before.messages)
    kept = sources[:length] == list(range(length)) and all(source is None for source in sources[length:])
    return History(messages, entries), kept, copies


class _Places:
    """Where messages that a graph was given are among these: the same object, or one of the same id."""

    def __init__(self, given: Sequence[BaseMessage]) -> None:
        self._given = given

    def place(self, message: BaseMessage, index: int) -> int | None:
        """The place of a message that is at an index now, which most often is that."""
        if index < len(self._given) and message is self._given[index]:
            return index
        return self._objects.get(id(message), self._named.get(message.id or ""))

    @cached_property
    def _objects(self) -> dict[int, int]:
        return {id(message): place for place, message in enumerate(self._given)}

    @cached_property
    def _named(self) -> dict[str, int]:
        return {message.id: place for place, message in enumerate(self._given) if message.id is not None}
