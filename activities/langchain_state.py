"""A graph's state apart from its messages, as it is stored: the checkpoints of its namespaces and their pending writes.

The lane's history is the only place where messages live. A value that holds a message of the history, be it a `Send`'s
argument, a subgraph's own list or a write that is pending, holds the message's place there. All else is cut and encoded
as `RedisSaver` does it, by LangGraph's serializer with its strict allow-list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol

from laneway.activities.langchain_codec import detached
from laneway.activities.retries import SerializationFailed
from laneway.errors import LanewayError, StoreError
from laneway.langgraph_codec import Codec
from laneway.langgraph_records import Node, packb, unpackb

__all__ = ["PendingWrites", "Saved", "Spaces", "StateCodec", "Stored", "metadata_of"]

_IN_HISTORY: Final = 32
"""The extension type of a message's place in the history; the codec's own types are below it."""
_METADATA: Final = ("source", "step", "parents", "run_id", "counters_since_delta_snapshot")
_FORMAT: Final = 1
_LARGE_BYTES: Final = 512
"""From here on a part is stored by itself, so that it is written once for as long as it stays the same."""

PendingWrites: TypeAlias = dict[tuple[str, int], tuple[str, Any, str]]
"""What tasks have written: channel, value and path, by task and by index in the task."""


@dataclass
class Saved:
    """A checkpoint of a namespace.

    Attributes:
        checkpoint: as LangGraph made it.
        metadata: its metadata.
        parent_id: the checkpoint before it; None for the first one.
        writes: what is pending on it.
    """

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_id: str | None = None
    writes: PendingWrites = field(default_factory=PendingWrites)


Spaces: TypeAlias = dict[str, list[Saved]]
"""The checkpoints of each namespace, the latest last."""


def metadata_of(saved: Saved) -> dict[str, object]:
    """Of a checkpoint's metadata what LangGraph goes by. The rest is what the run's configuration says anew."""
    return {name: value for name, value in saved.metadata.items() if name in _METADATA}


@dataclass(frozen=True)
class Stored:
    """State as it is stored.

    Attributes:
        blob: all of it but its large parts.
        new: those of its large parts that were not at hand, by name.
        names: the names of all of them.
    """

    blob: bytes
    new: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    names: Sequence[str] = ()


class StateCodec(Codec):
    """Encodes state against a history.

    Args:
        serde: a `strict_serializer`.
        history: the messages that values may hold.
        growing: whether what was encoded before is referred to, so that only all of it together can be decoded.
        held: what was encoded elsewhere and is at hand whenever this is decoded: its parts are not encoded again.
        parts: the large parts that are stored by themselves, by name. None where all parts go with the rest.
        copies: whether what is decoded holds copies of the history's messages, and not these.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        history: Sequence[BaseMessage] = (),
        *,
        growing: bool = False,
        held: bytes | None = None,
        parts: Mapping[str, bytes] | None = None,
        copies: bool = False,
    ) -> None:
        super().__init__(serde, owner="LangChainAdapter")
        self._apart = None if parts is None else {bytes.fromhex(name): part for name, part in parts.items()}
        self._growing = growing
        self._known: dict[bytes, bytes] = {} if held is None else dict(_parts_of(held))
        self._history = history
        self._copies = copies
        self._named = {message.id: index for index, message in enumerate(history) if message.id is not None}

    # Spaces -----------------------------------------------------------------------------------------------------------

    def dump_spaces(self, spaces: Spaces, *, without: str | None = None) -> Stored:
        """Namespaces as they are stored.

        Args:
            spaces: the namespaces.
            without: a channel of the graph itself that is kept elsewhere.

        Raises:
            SerializationFailed: the value of a channel cannot be stored; it names the channel.
        """
        values: list[tuple[str, object]] = []
        header = {
            namespace: [_header(one, values, without=None if namespace else without) for one in chain]
            for namespace, chain in spaces.items()
        }
        return self.store(header, values)

    def load_spaces(self, blob: bytes) -> Spaces:
        """The namespaces that `dump_spaces` was given, from their blob. Raises as `load` does."""
        header, values = self.load(blob)
        return {namespace: [_saved(one, values) for one in chain] for namespace, chain in header.items()}

    # Values -----------------------------------------------------------------------------------------------------------

    def dump(self, header: object, values: Iterable[tuple[str, object]]) -> bytes:
        """Plain data and values of channels as bytes, of a codec without parts of their own.

        Raises:
            SerializationFailed: a value cannot be stored; it names the channel.
        """
        return self.store(header, values).blob

    def store(self, header: object, values: Iterable[tuple[str, object]]) -> Stored:
        """Plain data and values of channels as they are stored.

        Raises:
            SerializationFailed: a value cannot be stored; it names the channel.
        """
        parts: dict[bytes, Node] = {}
        names: dict[str, None] = {}
        apart = self._apart or {}
        nodes: list[list[object]] = []
        for channel, value in values:
            try:
                mine: dict[bytes, Node] = {}
                node = self.encode(value, mine)
                self.check(node)
                for digest, part in mine.items():
                    if digest in apart:
                        names[digest.hex()] = None
                    elif digest not in parts and digest not in self._known:
                        self.check(part)
                        parts[digest] = part
            except (SerializationFailed, LanewayError) as error:
                raise SerializationFailed(f"channel {channel!r} of the graph cannot be stored: {error}") from error
            except Exception as error:  # whatever an object that cannot be stored raises
                raise SerializationFailed(
                    f"channel {channel!r} of the graph cannot be stored: {error}. Keep plain data, messages and types "
                    "named in LangChainAdapter(allowed_types=[...]) in the state; what a run needs besides goes into "
                    "`context`"
                ) from error
            nodes.append([node.body, list(node.references)])
        sealed = {digest: self.records.seal(part) for digest, part in parts.items()}
        new: dict[str, bytes] = {}
        if self._apart is not None:
            new = {digest.hex(): record for digest, record in sealed.items() if len(record) >= _LARGE_BYTES}
            self._apart.update((bytes.fromhex(name), record) for name, record in new.items())
            sealed = {digest: record for digest, record in sealed.items() if digest.hex() not in new}
        if self._growing:
            self._known.update(sealed)
        flat = [item for pair in sealed.items() for item in pair]
        return Stored(packb([_FORMAT, ormsgpack.packb(header), nodes, flat]), new, [*names, *new])

    def load(self, blob: bytes) -> tuple[Any, list[Any]]:
        """What `dump` was given.

        Raises:
            StoreError: it was altered, or holds a type that is not on the allow-list.
        """
        header, nodes, parts = _taken_apart(blob)
        if self._growing:
            self._known.update(parts)
        parts = {**(self._apart or {}), **self._known, **parts}
        values = [self.decode(Node(body, tuple(references)), parts) for body, references in nodes]
        return unpackb(header), values

    # Messages ---------------------------------------------------------------------------------------------------------

    def _message(self, message: Any, references: list[bytes], parts: dict[bytes, Node]) -> object:
        place = self._named.get(message.id)
        if place is None or self._history[place] != message:
            return super()._message(message, references, parts)
        return ormsgpack.Ext(_IN_HISTORY, packb(place))

    def _revive(
        self,
        code: int,
        data: bytes,
        references: Iterator[bytes],
        part: Callable[[bytes], Any],
        hook: Callable[[int, bytes], Any],
    ) -> Any:
        if code != _IN_HISTORY:
            return super()._revive(code, data, references, part, hook)
        place: int = unpackb(data)
        if place >= len(self._history):
            raise StoreError(
                f"a graph's state refers to message {place} of a history of {len(self._history)}: restore Redis from a "
                "backup that has both"
            )
        return detached(self._history[place]) if self._copies else self._history[place]


def _taken_apart(blob: bytes) -> tuple[bytes, list[Any], dict[bytes, bytes]]:
    """The header of a blob, the nodes of its values, and the parts that it holds itself."""
    form, header, nodes, flat = unpackb(blob)
    if form != _FORMAT:
        raise StoreError(f"a graph's state is stored in form {form}, which this version cannot read: upgrade laneway")
    return header, nodes, dict(zip(flat[::2], flat[1::2], strict=True))


def _parts_of(blob: bytes) -> Mapping[bytes, bytes]:
    return _taken_apart(blob)[2]


def _header(saved: Saved, values: list[tuple[str, object]], *, without: str | None) -> dict[str, object]:
    def place(channel: str, value: object) -> int:
        values.append((channel, value))
        return len(values) - 1

    checkpoint = saved.checkpoint
    return {
        "c": {name: value for name, value in checkpoint.items() if name != "channel_values"},
        "m": metadata_of(saved),
        "p": saved.parent_id,
        "v": {
            channel: place(channel, value)
            for channel, value in checkpoint["channel_values"].items()
            if channel != without
        },
        "w": [
            [task, index, channel, path, place(channel, value)]
            for (task, index), (channel, value, path) in saved.writes.items()
        ],
    }


def _saved(header: Mapping[str, Any], values: Sequence[Any]) -> Saved:
    held = {channel: values[place] for channel, place in header["v"].items()}
    return Saved(
        checkpoint=cast("Checkpoint", {**header["c"], "channel_values": held}),
        metadata=cast("CheckpointMetadata", header["m"]),
        parent_id=header["p"],
        writes={(task, index): (channel, values[place], path) for task, index, channel, path, place in header["w"]},
    )
