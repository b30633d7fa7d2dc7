"""Checkpoints and pending writes as members of Redis's sorted sets, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from laneway.langgraph_codec import Codec
from laneway.langgraph_layout import checkpoint_prefix, split_checkpoint, split_task
from laneway.langgraph_records import Node, packb, unpackb

__all__ = ["Row", "Write", "read_row", "read_write", "row_record", "write_record"]


@dataclass(frozen=True)
class Row:
    """A checkpoint as stored.

    Attributes:
        namespace: its namespace.
        checkpoint_id: its id.
        parent_id: its parent's id, None for a first one.
        checkpoint: LangGraph's checkpoint without its id and its channels' values.
        metadata: its metadata.
        channels: the values of the channels that have one.
        references: the digests of the parts that the values are made of, or begin with.
    """

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    channels: Mapping[str, Node]
    references: tuple[bytes, ...] = ()

    @property
    def prefix(self) -> bytes:
        """What its member and those of its pending writes begin with."""
        return checkpoint_prefix(self.namespace, self.checkpoint_id)


@dataclass(frozen=True)
class Write:
    """One pending write as stored: LangGraph's `(task_id, channel, value)` with what orders it."""

    task_id: str
    index: int
    task_path: str
    channel: str
    value: Node


def row_record(codec: Codec, row: Row) -> bytes:
    """What follows a checkpoint's prefix in its member."""
    channels = [[channel, len(node.references), node.body] for channel, node in row.channels.items()]
    checkpoint = dict(row.checkpoint)
    made = _packed_time(checkpoint.pop("ts", None))
    body = packb([_packed_id(row.parent_id), made, codec.leaf(checkpoint), codec.leaf(row.metadata), channels])
    return codec.records.seal(Node(body, tuple(digest for node in row.channels.values() for digest in node.references)))


def read_row(codec: Codec, member: bytes) -> Row:
    """The checkpoint of a member.

    Raises:
        StoreError: it was altered, or its metadata holds a type that is not on the allow-list.
    """
    namespace, checkpoint_id, record = split_checkpoint(member)
    node = codec.records.open(record)
    parent_id, made, checkpoint, metadata, packed = unpackb(node.body)
    channels: dict[str, Node] = {}
    at = 0
    for channel, count, body in packed:
        channels[channel] = Node(body, node.references[at : at + count])
        at += count
    return Row(
        namespace,
        checkpoint_id,
        str(UUID(bytes=parent_id)) if isinstance(parent_id, bytes) else parent_id,
        {**codec.read_leaf(checkpoint), "ts": _time(made)},
        codec.read_leaf(metadata),
        channels,
        node.references,
    )


def write_record(codec: Codec, task_path: str, channel: str, value: Node) -> bytes:
    """What follows a write's index in its member."""
    return codec.records.seal(Node(packb([channel, task_path, value.body]), value.references))


def read_write(codec: Codec, member: bytes) -> Write:
    """The pending write of a member.

    Raises:
        StoreError: it was altered.
    """
    task_id, index, record = split_task(split_checkpoint(member)[2])
    node = codec.records.open(record)
    channel, task_path, body = unpackb(node.body)
    return Write(task_id, index, task_path, channel, Node(body, node.references))


def _packed_id(checkpoint_id: str | None) -> str | bytes | None:
    """An id in 16 bytes where it is a UUID as LangGraph makes them."""
    if checkpoint_id is None or len(checkpoint_id) != 36:
        return checkpoint_id
    try:
        packed = UUID(checkpoint_id)
    except ValueError:
        return checkpoint_id
    return packed.bytes if str(packed) == checkpoint_id else checkpoint_id


def _packed_time(made: str | None) -> str | int | None:
    """A time in microseconds since 1970 where it is written as LangGraph writes it."""
    if made is None:
        return None
    try:
        micros = (datetime.fromisoformat(made) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError):
        return made
    return micros if _time(micros) == made else made


def _time(packed: str | int | None) -> str | None:
    return (_EPOCH + timedelta(microseconds=packed)).isoformat() if isinstance(packed, int) else packed


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
