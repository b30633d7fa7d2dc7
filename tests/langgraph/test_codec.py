"""Values survive being cut into parts, share what they have in common, and construct nothing that is not allowed."""

from __future__ import annotations

import dataclasses
import enum
import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send

from laneway.errors import CheckpointLost, ConfigurationError, InvalidInput, StoreError
from laneway.langgraph_codec import Codec
from laneway.langgraph_records import Node
from laneway.langgraph_serde import strict_serializer

LONG = "a long content, stored apart from its message. " * 20


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Stranger:
    def __init__(self, **_: Any) -> None:
        raise AssertionError("was constructed")


def codec(serde: SerializerProtocol | None = None, *allowed: type, key: bytes = b"") -> Codec:
    return Codec(strict_serializer(serde, allowed), key)


def stored(one: Codec, value: object) -> tuple[Node, dict[bytes, bytes]]:
    parts: dict[bytes, Node] = {}
    node = one.encode(value, parts)
    return node, {digest: one.records.seal(part) for digest, part in parts.items()}


def round_trip(one: Codec, value: object) -> Any:
    return one.decode(*stored(one, value))


MESSAGES = [
    HumanMessage("hello"),
    HumanMessage(LONG, id="1", name="me"),
    HumanMessage([{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "data:," + LONG}}]),
    AIMessage(LONG, id="2", tool_calls=[{"name": "f", "args": {"x": [1, {"y": LONG}]}, "id": "c1"}]),
    AIMessage(
        [{"type": "thinking", "thinking": LONG, "signature": "s" * 300}, {"type": "text", "text": "so"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m", "logprobs": None},
        invalid_tool_calls=[{"name": "g", "args": "{", "id": "c2", "error": "bad", "type": "invalid_tool_call"}],
    ),
    AIMessageChunk(content=LONG, id="3"),
    SystemMessage(LONG),
    ToolMessage(LONG, tool_call_id="c1", artifact={"rows": [LONG, 1]}, status="error"),
    FunctionMessage(name="f", content=LONG),
    ChatMessage(role="user", content=LONG),
    RemoveMessage(id="2"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_messages_come_back_equal_and_encode_alike_again(message: Any) -> None:
    one = codec()
    node, parts = stored(one, message)
    back = one.decode(node, parts)
    assert back == message
    assert type(back) is type(message)
    assert stored(one, back)[0] == node  # so that loading and storing a history stores nothing anew


VALUES = [
    *[None, True, 0, -1, 2**62, 1.5, "", "x" * 5000, b"", b"x" * 5000, bytearray(b"x"), [], {}, {"": []}],
    [[[[]]], {"a": {"b": {"c": [LONG] * 3}}}],
    {1: "int key", "two": 2},
    [datetime(2026, 1, 1, tzinfo=UTC), uuid.UUID(int=7), Decimal("1.50"), {1, 2}, frozenset({"a"})],
    Send("node", {"messages": MESSAGES, "n": 1}),
    [Send("node", [LONG]), Send("node", None)],
    Overwrite(MESSAGES),
    {"messages": Overwrite(value=[LONG])},
    _DeltaSnapshot(MESSAGES),
    Interrupt(value={"question": LONG}, id="i"),
    "lone \ud800 surrogate is replaced".replace("\ud800", ""),
    "\U0001f600 * ? [ ] : { }",
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_equal(value: Any) -> None:
    back = round_trip(codec(), value)
    assert back == value
    assert type(back) is type(value)


def test_tuples_come_back_as_lists_as_with_langgraphs_serializer() -> None:
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    value = {"a": (1, (2, "x" * 300))}
    assert round_trip(codec(), value) == serializer.loads_typed(serializer.dumps_typed(value))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner, max_size=8),
    max_leaves=60,
)


@given(PLAIN)
@settings(deadline=None)
def test_plain_values_come_back_as_from_langgraphs_serializer(value: Any) -> None:
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    assert round_trip(codec(), value) == serializer.loads_typed(serializer.dumps_typed(value))


@given(st.lists(st.integers(0, 400) | st.text(min_size=140, max_size=160), max_size=400), st.data())
@settings(deadline=None, max_examples=40)
def test_an_edited_list_shares_its_parts(values: list[Any], data: st.DataObject) -> None:
    """Whatever is added, taken away or replaced, few parts are new, however long the list."""
    one = codec()
    before: dict[bytes, Node] = {}
    one.encode(values, before)
    at = data.draw(st.integers(0, len(values)))
    gone = data.draw(st.integers(0, 3))
    changed = [
        *values[:at],
        *data.draw(st.lists(st.text(min_size=140, max_size=150), max_size=2)),
        *values[at + gone :],
    ]
    after = dict(before)
    node = one.encode(changed, after)
    assert one.decode(node, {digest: one.records.seal(part) for digest, part in after.items()}) == changed
    assert sum(len(part.body) + 16 * len(part.references) for part in list(after.values())[len(before) :]) < 25_000
    assert len(after) - len(before) < 45


def test_a_list_that_grows_stores_only_what_is_new() -> None:
    one = codec()
    parts: dict[bytes, Node] = {}
    messages = [AIMessage(f"{at} {LONG}", id=str(at)) for at in range(600)]
    sizes: list[int] = []
    for length in range(1, 601):
        before = len(parts)
        one.encode(messages[:length], parts)
        sizes.append(sum(len(one.records.seal(part)) + 16 for part in list(parts.values())[before:]))
    assert sum(sizes[500:]) / 100 < 900  # a message is 600 deflated bytes at most, its text half of that
    assert max(sizes) < 3000


def test_a_message_and_the_same_without_its_id_share_their_content() -> None:
    one = codec()
    parts: dict[bytes, Node] = {}
    one.encode(ToolMessage(LONG, tool_call_id="c"), parts)
    before = set(parts)
    one.encode(ToolMessage(LONG, tool_call_id="c", id="given later"), parts)
    assert sum(len(parts[digest].body) for digest in set(parts) - before) < len(LONG) / 2


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [Colour.RED, Point(1, 2), [Point(1, 2)], {"deep": [{"er": Point(1, 2)}]}], ids=range(4)
)
def test_a_type_that_is_not_allowed_is_refused_by_name_when_it_is_written(value: Any) -> None:
    one = codec()
    parts: dict[bytes, Node] = {}
    node = one.encode(value, parts)
    refused: list[str] = []
    for checked in (node, *parts.values()):
        try:
            one.check(checked)
        except InvalidInput as error:
            refused.append(str(error))
    assert len(refused) == 1
    assert re.search(r"test_codec\.(Colour|Point) is not on the allow-list", refused[0])


@pytest.mark.parametrize(
    "value",
    [Colour.RED, Point(1, 2), [Point(1, 2)], ToolMessage("x", tool_call_id="1", artifact=Colour.RED)],
    ids=range(4),
)
def test_a_type_that_is_not_allowed_is_refused_by_name_when_it_is_read(value: Any) -> None:
    written = stored(codec(None, Colour, Point), value)
    with pytest.raises(StoreError, match=r"test_codec\.(Colour|Point) is not on the allow-list"):
        codec().decode(*written)


def test_allowed_types_come_back() -> None:
    value = [Colour.RED, Point(1, 2)]
    assert round_trip(codec(None, Colour, Point), value) == value


@pytest.mark.parametrize("code", range(6))
def test_no_constructor_of_stored_data_runs(code: int) -> None:
    """Every way in which LangGraph's format can ask for one."""
    name = (Stranger.__module__, "Stranger", {} if code in (2, 4, 5) else [], "fromisoformat")
    evil = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(name)))
    leaf = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(["msgpack", evil])))
    with pytest.raises(StoreError, match="Stranger is not on the allow-list"):
        codec().decode(Node(leaf), {})


@pytest.mark.parametrize("kind", ["pickle", "json", "msgpack+aes", "sh"])
def test_other_kinds_of_data_are_never_loaded(kind: str) -> None:
    leaf = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb([kind, b"cos\nsystem\n(S'true'\ntR."])))
    with pytest.raises(StoreError, match="which RedisSaver never loads"):
        codec().decode(Node(leaf), {})


@pytest.mark.parametrize(
    "serde",
    [
        JsonPlusSerializer(allowed_msgpack_modules=True),
        JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=None),
        EncryptedSerializer(cast("Any", None), JsonPlusSerializer(allowed_msgpack_modules=True)),
        object(),
    ],
    ids=range(4),
)
def test_a_serializer_that_constructs_anything_is_refused(serde: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"RedisSaver (takes no|cannot use)"):
        strict_serializer(serde, ())


# Damage ---------------------------------------------------------------------------------------------------------------


def test_a_missing_part_is_lost_not_skipped() -> None:
    one = codec()
    node, parts = stored(one, [LONG, LONG + "!"])
    parts.popitem()
    with pytest.raises(CheckpointLost, match="is missing from Redis"):
        one.decode(node, parts)


def test_an_altered_part_is_refused() -> None:
    one = codec()
    node, parts = stored(one, LONG)
    parts[node.references[0]] = one.records.seal(Node(ormsgpack.packb("something else")))
    with pytest.raises(StoreError, match="was altered"):
        one.decode(node, parts)


@given(st.binary(min_size=4, max_size=60))
def test_noise_is_refused_or_read_and_never_more(noise: bytes) -> None:
    one = codec()
    try:
        node = one.records.open(bytes([noise[0] & 1, 0, 0, 0]) + noise)
        one.decode(node, {})
    except StoreError:
        pass


class Rot13Cipher:
    """Not a cipher to use."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", uuid.uuid4().bytes + bytes((byte + 13) % 256 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "rot"
        return bytes((byte - 13) % 256 for byte in ciphertext[16:])


def test_encrypted_parts_are_shared_and_unreadable() -> None:
    serde = EncryptedSerializer(Rot13Cipher(), JsonPlusSerializer(allowed_msgpack_modules=None))
    one = codec(serde, key=b"secret")
    value = {"messages": MESSAGES, "note": "in the open?"}
    node, parts = stored(one, value)
    assert one.decode(node, parts) == value
    assert stored(one, value)[0] == node
    records = b"".join([*parts.values(), one.records.seal(node)])
    assert b"long content" not in records
    assert b"in the open?" not in records
    with pytest.raises(StoreError, match="is encrypted"):
        codec(key=b"secret").decode(node, parts)
    with pytest.raises(StoreError, match="digest_key"):
        codec(serde, key=b"another").decode(node, parts)
