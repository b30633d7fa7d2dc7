"""Values as `RedisSaver` stores them: cut into parts that are named by their content, so that each is stored once.

A value is a tree. Every list, dict, message, `Send`, `Overwrite` or snapshot of some size in it becomes a part, and
what holds it only a reference, the digest of the part. What two checkpoints, a checkpoint and a pending write, or two
sends have in common is therefore one part, whatever else differs.

A long list is cut into chunks, and a list of many chunks into chunks of chunks, where the digests of its elements say
so, not at fixed places. So a list that has grown, or has lost its beginning, or an element in its middle, shares all
chunks but a few with what it was before.

Leaves (messages, models, dates) are encoded by LangGraph's own `JsonPlusSerializer` with its allow-list: what is not on
it is refused by name, where it is written and where it is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]
from langgraph.types import Overwrite, Send

from laneway.errors import InvalidInput
from laneway.langgraph_layout import DIGEST_BYTES
from laneway.langgraph_recent import Recent
from laneway.langgraph_records import Node, Records, packb
from laneway.langgraph_serde import Leaves

__all__ = ["CACHE_BYTES", "Encoder", "Kind", "Snapshot"]

Snapshot = _DeltaSnapshot
"""What a `DeltaChannel` stores now and then. LangGraph has no public name for it."""

CACHE_BYTES = 16_000_000
"""How much of what was read and written is remembered, each."""

_PART_BYTES = 128
"""What is shorter is stored where it is used: a part costs Redis some 100 bytes of its own."""
_CHUNK_MIN, _CHUNK_MAX = 3.0, 64.0
"""How much a chunk holds: references count 1, bytes in place 1/128."""
_MESSAGES = "langchain_core.messages."


class Kind(IntEnum):
    """Extension types of a body. They never meet those of JsonPlusSerializer, whose bytes are opaque here."""

    LEAF = 1
    REFERENCE = 2
    CHUNK = 3
    LIST = 4
    SEND = 5
    OVERWRITE = 6
    SNAPSHOT = 7
    MESSAGE = 8


_REFERENCE_MARK = ormsgpack.Ext(Kind.REFERENCE, b"\0")
_CHUNK_MARK = ormsgpack.Ext(Kind.CHUNK, b"\0")


class _Item(NamedTuple):
    """An element of a list, or a chunk of elements, as it is packed."""

    packed: object
    references: list[bytes]
    weight: float
    ends_chunk: bool


class Encoder:
    """Cuts values into parts.

    Args:
        leaves: what encodes messages, models, dates and the like.
        records: what names parts.
    """

    def __init__(self, leaves: Leaves, records: Records) -> None:
        self._leaves = leaves
        self._records = records
        # Every checkpoint of a conversation brings all its messages again.
        self._messages: Recent[bytes, tuple[bytes, dict[bytes, Node]]] = Recent(CACHE_BYTES)

    def encode(self, value: object, parts: dict[bytes, Node]) -> Node:
        """A value as a node. Every part that it is made of is added to `parts`, new or not."""
        references: list[bytes] = []
        body = packb(self._element(value, references, parts))
        return Node(body, tuple(references))

    def leaf(self, value: object) -> bytes:
        """A value that is small and never shared, such as a checkpoint's metadata."""
        kind, data = self._leaves.dump(value)
        if kind != "msgpack":
            raise InvalidInput(f"{value!r} is not a mapping; pass what LangGraph passes")
        return data

    def _element(self, value: object, references: list[bytes], parts: dict[bytes, Node]) -> object:
        """A value as a part of what holds it: in place when it is short, else a reference."""
        if value is None or type(value) in (bool, int, float) or (type(value) is str and len(value) < _PART_BYTES):
            return value
        if type(value).__module__.startswith(_MESSAGES) and hasattr(value, "content"):
            return self._message(value, references, parts)
        own: list[bytes] = []
        packed = self._packed(value, own, parts)
        body = packb(packed)
        if len(body) + DIGEST_BYTES * len(own) < _PART_BYTES:
            references.extend(own)
            return packed
        references.append(self._part(Node(body, tuple(own)), parts))
        return _REFERENCE_MARK

    def _part(self, node: Node, parts: dict[bytes, Node]) -> bytes:
        digest = self._records.digest(node)
        parts[digest] = node
        return digest

    def _packed(self, value: object, references: list[bytes], parts: dict[bytes, Node]) -> object:
        """A value for a packer that knows no types. Only exact types are taken apart: a subclass may hold more."""
        kind = type(value)
        if kind in (str, bytes):
            return value
        if kind in (list, tuple):  # as LangGraph's serializer does it, a tuple comes back as a list
            return self._list(cast("Sequence[object]", value), references, parts)
        if kind is dict:
            mapping = cast("dict[object, object]", value)
            if all(type(key) is str for key in mapping):
                return {key: self._element(item, references, parts) for key, item in mapping.items()}
        elif kind is Send:
            send = cast("Send", value)
            timeout = None if send.timeout is None else self._leaf(send.timeout)
            return _ext(Kind.SEND, [send.node, self._element(send.arg, references, parts), timeout])
        elif kind is Overwrite:
            return _ext(Kind.OVERWRITE, [self._element(cast("Overwrite", value).value, references, parts)])
        elif kind is Snapshot:
            return _ext(Kind.SNAPSHOT, [self._element(cast("Snapshot", value).value, references, parts)])
        return self._leaf(value)

    def _leaf(self, value: object) -> ormsgpack.Ext:
        kind, data = self._leaves.dump(value)
        return _ext(Kind.LEAF, [kind, data])

    def _message(self, message: Any, references: list[bytes], parts: dict[bytes, Node]) -> object:
        """A message as a part, with its content apart when that is long.

        LangGraph gives a message its id after the write that brought it was stored; its content stays the same.
        """
        kind, data = self._leaves.dump(message)
        whole = blake2b(data, digest_size=DIGEST_BYTES).digest()
        known = self._messages.get(whole)
        if known is None:
            made: dict[bytes, Node] = {}
            own: list[bytes] = []
            content = self._element(message.content, own, made)
            if own:
                kind, data = self._leaves.dump(message.model_copy(update={"content": ""}))
                packed = _ext(Kind.MESSAGE, [kind, data, content])
            else:
                packed = _ext(Kind.LEAF, [kind, data])
            known = self._part(Node(packb(packed), tuple(own)), made), made
            self._messages.put(whole, known, sum(len(node.body) + 200 for node in made.values()))
        parts.update(known[1])
        references.append(known[0])
        return _REFERENCE_MARK

    def _list(self, values: Sequence[object], references: list[bytes], parts: dict[bytes, Node]) -> object:
        items: list[_Item] = []
        for value in values:
            own: list[bytes] = []
            packed = self._element(value, own, parts)
            if packed is _REFERENCE_MARK:
                items.append(_Item(packed, own, 1.0, _ends_chunk(own[0][0])))
            else:
                body = packb(packed)
                items.append(_Item(packed, own, len(body) / 128, _ends_chunk(zlib.crc32(body))))
        items = self._chunked(items, parts)
        for item in items:
            references.extend(item.references)
        packed_items = [item.packed for item in items]
        return _ext(Kind.LIST, packed_items) if items and items[0].packed is _CHUNK_MARK else packed_items

    def _chunked(self, items: list[_Item], parts: dict[bytes, Node]) -> list[_Item]:
        """The items with all but the last few in chunks, and these in chunks again."""
        chunks: list[_Item] = []
        begin, weight = 0, 0.0
        for end, item in enumerate(items, start=1):
            weight += item.weight
            if (item.ends_chunk and weight >= _CHUNK_MIN) or weight >= _CHUNK_MAX:
                chunks.append(self._chunk(items[begin:end], parts))
                begin, weight = end, 0.0
        return [*self._chunked(chunks, parts), *items[begin:]] if chunks else items

    def _chunk(self, items: list[_Item], parts: dict[bytes, Node]) -> _Item:
        references = tuple(reference for item in items for reference in item.references)
        digest = self._part(Node(packb([item.packed for item in items]), references), parts)
        return _Item(_CHUNK_MARK, [digest], 1.0, _ends_chunk(digest[0]))


def _ends_chunk(hash_: int) -> bool:
    return hash_ & 1 == 0


def _ext(code: int, fields: list[Any]) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, packb(fields))
