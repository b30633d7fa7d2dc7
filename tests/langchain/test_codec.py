"""Messages come back from their stored form as they were, and nothing else is ever made of stored data."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from laneway.activities.langchain_codec import MessageCodec, are_equal, detached
from laneway.activities.retries import SerializationFailed
from laneway.errors import StoreError
from laneway.langgraph_serde import Leaves, strict_serializer

CODEC = MessageCodec()

texts = st.text(max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=5)
    | st.datetimes()
    | st.uuids()
    | st.just(Decimal("1.50"))
    | st.frozensets(st.integers(0, 5), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
contents = texts | st.lists(texts | objects, max_size=3)
common = {"content": contents, "additional_kwargs": objects, "response_metadata": objects, "id": st.none() | texts}
calls = st.lists(
    st.fixed_dictionaries({"name": texts, "args": objects, "id": texts, "type": st.just("tool_call")}), max_size=2
)
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, **common, name=st.none() | texts),
    st.builds(SystemMessage, **common),
    st.builds(ChatMessage, **common, role=texts),
    st.builds(FunctionMessage, **common, name=texts),
    st.builds(AIMessage, **common, tool_calls=calls),
    st.builds(ToolMessage, **common, tool_call_id=texts, artifact=values, status=st.sampled_from(["success", "error"])),
)


@given(messages)
def test_a_message_comes_back_as_it_was(message: BaseMessage):
    """Every field of every kind, and plain data of every kind in it; the form is JSON that a reader can show."""
    payload = CODEC.encode(message)
    back = CODEC.decode(payload)
    assert type(back) is type(message)
    assert back == message
    assert CODEC.encode(back) == payload
    assert json.loads(payload)["type"] == message.type


@given(messages)
def test_nothing_done_to_a_detached_copy_is_seen_in_the_original(message: BaseMessage):
    before = CODEC.encode(message)
    copy = detached(message)
    assert copy == message
    assert (type(copy), copy.model_fields_set) == (type(message), message.model_fields_set)
    assert are_equal(copy, message)
    for value in vars(copy).values():
        spoil(value)
    spoil(copy.model_extra)
    copy.model_fields_set.clear()
    assert CODEC.encode(message) == before
    assert message.model_fields_set
    assert not are_equal(copy, message)


def test_messages_are_told_apart_by_class_and_by_what_they_have_besides_their_fields():
    assert not are_equal(HumanMessage("a"), SystemMessage("a"))
    assert not are_equal(HumanMessage("a"), AIMessage("a"))
    assert not are_equal(AIMessage("a", id="1"), AIMessage("a", id="2"))
    one: Any = HumanMessage("a", seen=[1])
    other: Any = HumanMessage("a", seen=[2])
    assert not are_equal(one, other)
    assert are_equal(one, HumanMessage("a", seen=[1]))  # type: ignore[call-arg]
    detached(one).seen.append(3)  # type: ignore[attr-defined]
    assert one.seen == [1]


def spoil(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoiled"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoiled")


def test_what_providers_and_tools_put_into_messages_has_a_form():
    message = AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "\ud83d cut"}],
        response_metadata={"created": datetime(2026, 1, 1, tzinfo=UTC), "id": uuid.uuid4()},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        invalid_tool_calls=[{"name": "a", "args": "{", "id": "1", "error": "cut", "type": "invalid_tool_call"}],
    )
    found = ToolMessage("two", tool_call_id="1", artifact=[Document("one"), Document("two", metadata={"n": 1})])
    for one in (message, found, AIMessageChunk("part"), RemoveMessage(id="1")):
        assert CODEC.decode(CODEC.encode(one)) == one


class Secretive(HumanMessage):
    """A message of an application's own."""


class Handle:
    """Nothing that can be stored."""


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Secretive("hi"), "Secretive cannot be stored"),
        (ToolMessage("x", tool_call_id="1", artifact=Handle()), "a ToolMessage cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_named(message: BaseMessage, named: str):
    with pytest.raises(SerializationFailed, match=named):
        CODEC.encode(message)


def test_a_type_that_is_not_allowed_is_neither_written_nor_read():
    """It is named, with where to allow it; allowed, it comes back as itself."""
    with pytest.raises(SerializationFailed, match=r"Place is not on the allow-list.*LangChainAdapter\(allowed_types"):
        CODEC.encode(ToolMessage("x", tool_call_id="1", artifact=Place("here")))
    trusting = MessageCodec(Leaves(strict_serializer(None, [Place]), owner="LangChainAdapter"))
    payload = trusting.encode(ToolMessage("x", tool_call_id="1", artifact=Place("here")))
    assert trusting.decode(payload).artifact == Place("here")  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="Place is not on the allow-list"):
        CODEC.decode(payload)


class Place:
    """What an application has in its state."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _asdict(self) -> dict[str, str]:
        return {"name": self.name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "payload", [b"[]", b"{}", b'{"type":"ai"}', b'{"type":"robot","data":{}}', b'{"type":"tool","data":{}}']
)
def test_what_is_no_message_is_refused(payload: bytes):
    with pytest.raises(ValueError, match="not a"):
        CODEC.decode(payload)
