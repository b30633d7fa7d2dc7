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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, cast

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import (
    _DeltaSnapshot as DeltaSnapshot,  # pyright: ignore[reportPrivateUsage]  # what DeltaChannel stores; has no public name
)
from langgraph.types import Overwrite, Send

from laneway.errors import CheckpointLost, InvalidInput, LanewayError, StoreError
from laneway.langgraph_layout import DIGEST_BYTES
from laneway.langgraph_records import Node, Records, packb
from laneway.langgraph_serde import Leaves

__all__ = ["Codec"]

_PART_BYTES = 128
"""What is shorter is stored where it is used: a part costs Redis some 100 bytes of its own."""
_CHUNK_MIN, _CHUNK_MAX = 3.0, 64.0
"""How much a chunk holds: references count 1, bytes in place 1/128."""
_MESSAGES = "langchain_core.messages."


class _Kind(IntEnum):
    """Extension types of a body. They never meet those of JsonPlusSerializer, whose bytes are opaque here."""

    LEAF = 1
    REFERENCE = 2
    CHUNK = 3
    LIST = 4
    SEND = 5
    OVERWRITE = 6
    SNAPSHOT = 7
    MESSAGE = 8


_REFERENCE_MARK = ormsgpack.Ext(_Kind.REFERENCE, b"\0")
_CHUNK_MARK = ormsgpack.Ext(_Kind.CHUNK, b"\0")


class _Chunk(NamedTuple):
    items: list[Any]


class _Item(NamedTuple):
    """An element of a list, or a chunk of elements, as it is packed."""

    packed: object
    references: list[bytes]
    weight: float
    ends_chunk: bool


class Codec:
    """Cuts values into parts and puts them together again.

    Args:
        serde: a `strict_serializer`.
        digest_key: what digests are keyed with, up to 64 bytes.
    """

    def __init__(self, serde: SerializerProtocol, digest_key: bytes = b"") -> None:
        self._leaves = Leaves(serde)
        self.records = Records(self._leaves.cipher, digest_key)

    # Encoding ---------------------------------------------------------------------------------------------------------

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
        own: list[bytes] = []
        packed = self._packed(value, own, parts)
        body = packb(packed)
        if len(body) + DIGEST_BYTES * len(own) < _PART_BYTES:
            references.extend(own)
            return packed
        references.append(self._part(Node(body, tuple(own)), parts))
        return _REFERENCE_MARK

    def _part(self, node: Node, parts: dict[bytes, Node]) -> bytes:
        digest = self.records.digest(node)
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
            return _ext(_Kind.SEND, [send.node, self._element(send.arg, references, parts), timeout])
        elif kind is Overwrite:
            return _ext(_Kind.OVERWRITE, [self._element(cast("Overwrite", value).value, references, parts)])
        elif kind is DeltaSnapshot:
            return _ext(_Kind.SNAPSHOT, [self._element(cast("DeltaSnapshot", value).value, references, parts)])
        elif kind.__module__.startswith(_MESSAGES) and hasattr(value, "model_copy"):
            return self._message(value, references, parts)
        return self._leaf(value)

    def _leaf(self, value: object) -> ormsgpack.Ext:
        kind, data = self._leaves.dump(value)
        return _ext(_Kind.LEAF, [kind, data])

    def _message(self, message: Any, references: list[bytes], parts: dict[bytes, Node]) -> object:
        """A message, with its content apart when that is long.

        LangGraph gives a message its id after the write that brought it was stored; its content stays the same.
        """
        own: list[bytes] = []
        content = self._element(message.content, own, parts)
        if not own:
            return self._leaf(message)
        references.extend(own)
        return _ext(_Kind.MESSAGE, [*self._leaves.dump(message.model_copy(update={"content": ""})), content])

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
        return _ext(_Kind.LIST, packed_items) if items and items[0].packed is _CHUNK_MARK else packed_items

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

    # Decoding ---------------------------------------------------------------------------------------------------------

    def decode(self, node: Node, parts: Mapping[bytes, bytes]) -> Any:
        """The value of a node.

        Args:
            node: the node.
            parts: the record of every part that can be reached from it, by digest.

        Raises:
            CheckpointLost: a part is missing.
            StoreError: a part was altered, or holds a type that is not on the allow-list.
        """

        def part(digest: bytes) -> Any:
            record = parts.get(digest)
            if record is None:
                raise CheckpointLost(
                    f"a part of a LangGraph checkpoint is missing from Redis (digest {digest.hex()}); restore Redis "
                    "from a backup that has it, or go back to an earlier checkpoint of the thread"
                )
            found = self.records.open(record)
            if self.records.digest(found) != digest:
                raise StoreError(
                    f"a part of a LangGraph checkpoint in Redis was altered, or its digest_key is another one (digest "
                    f"{digest.hex()}); restore Redis from a backup, or go back to an earlier checkpoint of the thread"
                )
            return self._unpack(found, part)

        return self._unpack(node, part)

    def read_leaf(self, body: bytes) -> Any:
        """The value that `leaf` encoded.

        Raises:
            StoreError: it holds a type that is not on the allow-list.
        """
        return self._leaves.load("msgpack", body)

    def check(self, node: Node) -> None:
        """Make sure that what a node holds itself, its parts aside, can be loaded again.

        Raises:
            InvalidInput: it holds a type that is not on the allow-list.
        """
        try:
            self._unpack(node, lambda _: None)
        except StoreError as error:
            raise InvalidInput(str(error)) from None

    def _unpack(self, node: Node, part: Callable[[bytes], Any]) -> Any:
        references = iter(node.references)
        failures: list[Exception] = []  # the unpacker forgets what its hook raised

        def hook(code: int, data: bytes) -> Any:
            try:
                return self._revive(code, data, references, part, hook)
            except Exception as error:
                failures.append(error)
                raise

        try:
            return ormsgpack.unpackb(node.body, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            cause = failures[0] if failures else error
            if isinstance(cause, LanewayError):
                raise cause from None
            raise StoreError(f"a part of a LangGraph checkpoint in Redis cannot be read: {cause}") from cause

    def _revive(
        self,
        code: int,
        data: bytes,
        references: Iterator[bytes],
        part: Callable[[bytes], Any],
        hook: Callable[[int, bytes], Any],
    ) -> Any:
        # In the order in which the references were written, which is that of their marks.
        if code == _Kind.REFERENCE:
            return part(next(references))
        if code == _Kind.CHUNK:
            return _Chunk(list(_flattened(part(next(references)) or [])))
        fields: list[Any] = ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        match code:
            case _Kind.LEAF:
                return self._leaves.load(*fields)
            case _Kind.LIST:
                return list(_flattened(fields))
            case _Kind.SEND:
                return (
                    Send(fields[0], fields[1]) if fields[2] is None else Send(fields[0], fields[1], timeout=fields[2])
                )
            case _Kind.OVERWRITE:
                return Overwrite(fields[0])
            case _Kind.SNAPSHOT:
                return DeltaSnapshot(fields[0])
            case _Kind.MESSAGE:
                message = self._leaves.load(fields[0], fields[1])
                message.content = fields[2]
                return message
            case _:
                raise StoreError(
                    f"a LangGraph checkpoint in Redis has data of an unknown kind ({code}); upgrade laneway"
                )


def _ends_chunk(hash_: int) -> bool:
    return hash_ & 1 == 0


def _flattened(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if type(item) is _Chunk:
            yield from item.items
        else:
            yield item


def _ext(code: int, fields: list[Any]) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, packb(fields))
