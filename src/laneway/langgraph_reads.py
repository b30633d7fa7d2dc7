"""How `RedisSaver` reads: one checkpoint, lists of them, and what delta channels are rebuilt from."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, writes_sort_key

from laneway import langgraph_scripts as scripts
from laneway.errors import StoreError
from laneway.langgraph_desk import Desk, Place, children_in
from laneway.langgraph_layout import ThreadKeys, checkpoint_prefix
from laneway.langgraph_link import Ask, Page, Steps
from laneway.langgraph_records import Node
from laneway.langgraph_rows import Row, Write, read_write

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

__all__ = ["Reads"]

_PAGE = 32
_EVERYTHING = (b"+", b"-")


class Reads:
    """Reads checkpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def get_tuple(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        """A checkpoint, or its namespace's latest, in one question."""
        place = Place.of(config)
        thread = self._desk.thread(place.thread_id)
        answer: list[Any] = yield self._get(thread, place)
        if not answer:
            return None
        member, writes, flat = answer
        row, parts = self._desk.read_row(thread, member), _pairs(flat)
        self._desk.note_parts(thread, row.references, children_in(parts))
        found = self._tuple(place.thread_id, row, writes, parts)
        return found._replace(config=config) if place.checkpoint_id else found

    def row(self, place: Place) -> Steps[Row | None]:
        """A checkpoint without its values, in one question."""
        thread = self._desk.thread(place.thread_id)
        answer: list[Any] = yield self._get(thread, place, alone=True)
        return self._desk.read_row(thread, answer[0]) if answer else None

    def rows(
        self, thread: ThreadKeys, bounds: tuple[bytes, bytes] = _EVERYTHING, count: int = -1
    ) -> Steps[Sequence[Row]]:
        """Checkpoints without their values, the later ids of a namespace first."""
        members: list[bytes] = yield self._desk.ask(scripts.ROWS, thread, *bounds, count)
        return [self._desk.read_row(thread, member) for member in members]

    def listing(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None,  # as LangGraph names it
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Generator[Ask | Page, Any, None]:
        """Checkpoints, the latest first: of a namespace, of a thread, or of one thread after the other."""
        wanted = Place.of(config) if config is not None else None
        wanted_id = wanted.checkpoint_id if wanted else None
        one_namespace = config is not None and "checkpoint_ns" in (config.get("configurable") or {})
        before_id: str | None = (before.get("configurable") or {}).get("checkpoint_id") if before else None

        def matches(row: Row) -> bool:
            if wanted_id is not None and row.checkpoint_id != wanted_id:
                return False
            if before_id is not None and row.checkpoint_id >= before_id:
                return False
            return not filter or all(row.metadata.get(key) == value for key, value in filter.items())

        thread_ids = [wanted.thread_id] if wanted else (yield from self.thread_ids())
        left = limit
        for thread_id in thread_ids:
            thread = self._desk.thread(thread_id)
            bounds: tuple[bytes, bytes] | None = None
            if wanted and one_namespace:
                bounds = _bounds(wanted.namespace, before_id)
            while left is None or left > 0:
                if bounds is None:
                    rows = yield from self.rows(thread)
                    rows = sorted(rows, key=lambda row: row.checkpoint_id, reverse=True)
                    last = True
                else:
                    count = _PAGE if left is None or filter or wanted_id else min(_PAGE, left)
                    rows = yield from self.rows(thread, bounds, count)
                    last = len(rows) < count
                    bounds = (b"(" + rows[-1].prefix, bounds[1]) if rows else bounds
                chosen = [row for row in rows if matches(row)][:left]
                left = None if left is None else left - len(chosen)
                for at in range(0, len(chosen), _PAGE):
                    yield Page((yield from self._tuples(thread_id, chosen[at : at + _PAGE])))
                if last:
                    break

    def thread_ids(self) -> Steps[Sequence[str]]:
        """Every thread that this saver has written."""
        members: list[bytes] = yield Ask(None, (), ("ZRANGE", self._desk.index("threads"), 0, -1))
        return [member.decode() for member in members]

    def delta_history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Steps[Mapping[str, DeltaChannelHistory]]:
        """What rebuilds delta channels: for each the nearest ancestor's stored value, and the writes since.

        Takes a question for 64 ancestors, and one for all that was found.
        """
        place = Place.of(config)
        thread = self._desk.thread(place.thread_id)
        chain, seeds = yield from self._ancestors(place, set(channels))
        references = [digest for node in seeds.values() for digest in node.references]
        prefixes = [row.prefix for row in chain]
        writes: list[list[bytes]] = []
        parts: dict[bytes, bytes] = {}
        if chain:
            answer = yield self._desk.ask(scripts.FETCH, thread, len(prefixes), *prefixes, *references)
            writes, parts = answer[0], _pairs(answer[1])
        histories: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        open_channels = set(channels)
        for row, members in zip(chain, writes, strict=True):
            pending = [write for write in _ordered(self._desk.codec, members) if write.channel in open_channels]
            for write in reversed(pending):
                histories[write.channel]["writes"].append(self._pending(write, parts))
            open_channels -= row.channels.keys()
        for channel, history in histories.items():
            history["writes"].reverse()
            if channel in seeds:
                history["seed"] = self._value(channel, seeds[channel], parts)
        return histories

    def _ancestors(self, place: Place, channels: set[str]) -> Steps[tuple[Sequence[Row], Mapping[str, Node]]]:
        """The ancestors of a checkpoint, the nearest first, up to where every channel has a stored value."""
        thread = self._desk.thread(place.thread_id)
        row = yield from self.row(place)
        chain: list[Row] = []
        seeds: dict[str, Node] = {}
        near: dict[str, Row] = {}
        while row is not None and row.parent_id is not None and channels - seeds.keys():
            parent = near.get(row.parent_id)
            if parent is None:
                # Parents come shortly before their children, nearly always.
                page = yield from self.rows(thread, _bounds(place.namespace, row.checkpoint_id), 2 * _PAGE)
                near = {found.checkpoint_id: found for found in page}
                parent = near.get(row.parent_id)
                if parent is None:
                    parent = yield from self.row(Place(place.thread_id, place.namespace, row.parent_id))
            if parent is not None:
                chain.append(parent)
                for channel in (channels - seeds.keys()) & parent.channels.keys():
                    seeds[channel] = parent.channels[channel]
            row = parent
        return chain, seeds

    # Values -----------------------------------------------------------------------------------------------------------

    def _get(self, thread: ThreadKeys, place: Place, *, alone: bool = False) -> Ask:
        options = self._desk.options
        namespace, checkpoint_id, _ = checkpoint_prefix(place.namespace, place.checkpoint_id or "").split(b"\0")
        refresh = options.ttl if options.refresh_on_read else None
        return self._desk.ask(scripts.GET, thread, namespace, checkpoint_id, int(alone), ttl=refresh)

    def _tuples(self, thread_id: str, rows: Sequence[Row]) -> Steps[Sequence[CheckpointTuple]]:
        thread = self._desk.thread(thread_id)
        references = {digest: None for row in rows for digest in row.references}
        prefixes = [row.prefix for row in rows]
        answer: list[Any] = yield self._desk.ask(scripts.FETCH, thread, len(prefixes), *prefixes, *references)
        parts = _pairs(answer[1])
        return [self._tuple(thread_id, row, writes, parts) for row, writes in zip(rows, answer[0], strict=True)]

    def _tuple(
        self, thread_id: str, row: Row, writes: Iterable[bytes], parts: Mapping[bytes, bytes]
    ) -> CheckpointTuple:
        place = Place(thread_id, row.namespace)
        checkpoint = {
            **row.checkpoint,
            "id": row.checkpoint_id,
            "channel_values": {channel: self._value(channel, node, parts) for channel, node in row.channels.items()},
        }
        return CheckpointTuple(
            config=place.config(row.checkpoint_id),
            checkpoint=cast("Checkpoint", checkpoint),
            metadata=cast("CheckpointMetadata", dict(row.metadata)),
            parent_config=place.config(row.parent_id) if row.parent_id else None,
            pending_writes=[self._pending(write, parts) for write in _ordered(self._desk.codec, writes)],
        )

    def _pending(self, write: Write, parts: Mapping[bytes, bytes]) -> PendingWrite:
        return write.task_id, write.channel, self._value(write.channel, write.value, parts)

    def _value(self, channel: str, node: Node, parts: Mapping[bytes, bytes]) -> Any:
        try:
            return self._desk.codec.decode(node, parts)
        except StoreError as error:
            raise type(error)(f"channel {channel!r}: {error}") from error


def _ordered(codec: Any, members: Iterable[bytes]) -> list[Write]:
    """Pending writes in the order in which a superstep applies them."""
    return sorted(
        (read_write(codec, member) for member in members),
        key=lambda write: writes_sort_key(write.task_path, write.task_id, write.index),
    )


def _bounds(namespace: str, before_id: str | None) -> tuple[bytes, bytes]:
    """The range of a namespace's checkpoints, or of those before one of them."""
    name = checkpoint_prefix(namespace, "").split(b"\0")[0]
    end = checkpoint_prefix(namespace, before_id) if before_id else name + b"\1"
    return b"(" + end, b"[" + name + b"\0"


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
