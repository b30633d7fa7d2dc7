"""How values that `langgraph_encoder` has cut into parts are put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Overwrite, Send

from laneway.errors import CheckpointLost, InvalidInput, LanewayError, StoreError
from laneway.langgraph_encoder import CACHE_BYTES, Encoder, Kind, Snapshot
from laneway.langgraph_recent import Recent
from laneway.langgraph_records import Node, Records
from laneway.langgraph_serde import Leaves

__all__ = ["Codec"]


class _Chunk(NamedTuple):
    items: list[Any]


class Codec(Encoder):
    """Cuts values into parts and puts them together again.

    Args:
        serde: a `strict_serializer`.
        digest_key: what digests are keyed with, up to 64 bytes.
        owner: whose argument `allowed_types` is, for errors.

    Attributes:
        records: how nodes are kept.
    """

    def __init__(self, serde: SerializerProtocol, digest_key: bytes = b"", *, owner: str = "RedisSaver") -> None:
        leaves = Leaves(serde, owner=owner)
        self.records = Records(leaves.cipher, digest_key)
        super().__init__(leaves, self.records)
        # A conversation is read over and over, and is nearly the same each time.
        self._opened: Recent[bytes, Node] = Recent(CACHE_BYTES)

    def decode(self, node: Node, parts: Mapping[bytes, bytes]) -> Any:
        """The value of a node.

        Args:
            node: the node.
            parts: the record of every part that can be reached from it, by digest.

        Raises:
            CheckpointLost: a part is missing.
            StoreError: a part was altered, or holds a type that is not on the allow-list.
        """
        return self._unpack(node, _Parts(self._read_part, parts).read)

    def _read_part(self, digest: bytes, parts: Mapping[bytes, bytes], part: Callable[[bytes], Any]) -> Any:
        record = parts.get(digest)
        if record is None:
            raise CheckpointLost(
                f"a part of a LangGraph checkpoint is missing from Redis (digest {digest.hex()}); restore Redis "
                "from a backup that has it, or go back to an earlier checkpoint of the thread"
            )
        found = self._opened.get(digest)
        if found is None:
            found = self.records.open(record)
            if self.records.digest(found) != digest:
                raise StoreError(
                    "a part of a LangGraph checkpoint in Redis was altered, or its digest_key is another one "
                    f"(digest {digest.hex()}); restore Redis from a backup, or go back to an earlier checkpoint of "
                    "the thread"
                )
            self._opened.put(digest, found, len(found.body) + 16 * len(found.references) + 200)
        return self._unpack(found, part)

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
        reading = _Reading(self._revive, iter(node.references), part)
        try:
            return ormsgpack.unpackb(node.body, ext_hook=reading.hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            cause = reading.failures[0] if reading.failures else error
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
        if code == Kind.REFERENCE:
            return part(next(references))
        if code == Kind.CHUNK:
            return _Chunk(list(_flattened(part(next(references)) or [])))
        fields: list[Any] = ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        match code:
            case Kind.LEAF:
                return self._leaves.load(*fields)
            case Kind.LIST:
                return list(_flattened(fields))
            case Kind.SEND:
                return (
                    Send(fields[0], fields[1]) if fields[2] is None else Send(fields[0], fields[1], timeout=fields[2])
                )
            case Kind.OVERWRITE:
                return Overwrite(fields[0])
            case Kind.SNAPSHOT:
                return Snapshot(fields[0])
            case Kind.MESSAGE:
                message = self._leaves.load(fields[0], fields[1])
                message.content = fields[2]
                return message
            case _:
                raise StoreError(
                    f"a LangGraph checkpoint in Redis has data of an unknown kind ({code}); upgrade laneway"
                )


# Objects, and no functions that call themselves: such a function refers to itself, and with it to all that is read,
# until Python's collector finds it.


class _Parts(NamedTuple):
    get: Callable[[bytes, Mapping[bytes, bytes], Callable[[bytes], Any]], Any]
    records: Mapping[bytes, bytes]

    def read(self, digest: bytes) -> Any:
        return self.get(digest, self.records, self.read)


class _Reading:
    """The unpacking of one node.

    Attributes:
        failures: what its hook raised; the unpacker forgets it.
    """

    def __init__(self, revive: Callable[..., Any], references: Iterator[bytes], part: Callable[[bytes], Any]) -> None:
        self._revive, self._references, self._part = revive, references, part
        self.failures: list[Exception] = []

    def hook(self, code: int, data: bytes) -> Any:
        try:
            return self._revive(code, data, self._references, self._part, self.hook)
        except Exception as error:
            self.failures.append(error)
            raise


def _flattened(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if type(item) is _Chunk:
            yield from item.items
        else:
            yield item
