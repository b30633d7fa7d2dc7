"""How `RedisSaver` writes checkpoints and pending writes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_metadata

from laneway import langgraph_scripts as scripts
from laneway.errors import CheckpointLost, InvalidInput, LanewayError
from laneway.langgraph_desk import Desk, Place, StoredVersions
from laneway.langgraph_layout import ThreadKeys, checkpoint_prefix, task_name, write_index
from laneway.langgraph_link import Ask, Steps
from laneway.langgraph_reads import Reads
from laneway.langgraph_records import Node
from laneway.langgraph_rows import Row, row_record, write_record

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

__all__ = ["Writes"]

_NO_VERSIONS: StoredVersions = {}


class Writes:
    """Writes checkpoints."""

    def __init__(self, desk: Desk, reads: Reads) -> None:
        self._desk = desk
        self._reads = reads

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Steps[RunnableConfig]:
        """Store a checkpoint, in one question where its parent was seen lately."""
        place = Place.of(config)
        thread = self._desk.thread(place.thread_id)
        kept: dict[str, Any] = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        metadata = get_checkpoint_metadata(config, metadata)
        yield from self._register(place.thread_id, cast("Mapping[str, Any]", metadata).get("run_id"))
        # At first what was seen to be stored is only referred to; when it is gone, everything is sent.
        for trusting in (True, False):
            draft = _Draft(self._desk, thread, trusting)
            stored = (yield from self._parent(place, checkpoint, new_versions)) if trusting else _NO_VERSIONS
            row = Row(
                place.namespace,
                checkpoint["id"],
                place.checkpoint_id,
                kept,
                cast("Mapping[str, Any]", metadata),
                _channels(draft, checkpoint, new_versions, stored),
            )
            with _naming("the checkpoint's metadata"):
                record = row_record(self._desk.codec, row)
            values = row.channels.items()
            answer: list[Any] = yield self._desk.write(
                scripts.PUT, thread, row.prefix, record, *draft.arguments(values)
            )
            if answer[0] == b"ok":
                draft.note(values)
                self._desk.note_versions(thread, row)
                if answer[1]:
                    # Someone else may have deleted the thread, and its name from the list, since it was registered.
                    yield Ask(None, (), ("ZADD", self._desk.index("threads"), 0, place.thread_id))
                return place.config(checkpoint["id"])
        raise CheckpointLost(
            f"channels of the checkpoint before {checkpoint['id']!r} of thread {place.thread_id!r} are missing from "
            "Redis; restore Redis from a backup, or go back to an earlier checkpoint of the thread"
        )

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Steps[None]:
        """Store what a task has written. What it has written before is kept, but for LangGraph's special writes."""
        place = Place.of(config)
        thread = self._desk.thread(place.thread_id)
        if place.checkpoint_id is None:
            raise InvalidInput("pending writes belong to a checkpoint; the config names none")
        if not writes:
            return
        prefix = checkpoint_prefix(place.namespace, place.checkpoint_id) + task_name(task_id)
        for trusting in (True, False):
            draft = _Draft(self._desk, thread, trusting)
            nodes = [(channel, draft.encode(channel, value)) for channel, value in writes]
            required, new = draft.arguments_apart(nodes)
            triples: list[bytes | int] = []
            for at, (channel, node) in enumerate(nodes):
                index = WRITES_IDX_MAP.get(channel, at)
                triples += [
                    write_index(index),
                    int(index < 0),
                    write_record(self._desk.codec, task_path, channel, node),
                ]
            answer: list[Any] = yield self._desk.write(
                scripts.PUT_WRITES, thread, prefix, *required, len(nodes), *triples, *new
            )
            if answer[0] == b"ok":
                draft.note(nodes)
                return
        raise AssertionError("a write refers to nothing but what it brings")

    def _register(self, thread_id: str, run_id: object) -> Steps[None]:
        """Put a thread, and a run of it, on the lists: before the write, so that none is ever missing there."""
        wanted = [("threads", thread_id)]
        if isinstance(run_id, str):
            wanted.append(("runs", f"{run_id}\0{thread_id}"))
        for name, member in wanted:
            if not self._desk.registered.get((name, member)):
                yield Ask(None, (), ("ZADD", self._desk.index(name), 0, member))
                self._desk.registered.put((name, member), True)

    def _parent(self, place: Place, checkpoint: Checkpoint, new_versions: ChannelVersions) -> Steps[StoredVersions]:
        """What the parent has stored, where the checkpoint has channels that did not change."""
        if place.checkpoint_id is None or checkpoint["channel_versions"].keys() <= new_versions.keys():
            return _NO_VERSIONS
        thread, prefix = self._desk.thread(place.thread_id), checkpoint_prefix(place.namespace, place.checkpoint_id)
        noted = self._desk.noted_versions(thread, prefix)
        if noted is None:
            yield from self._reads.row(place)
            noted = self._desk.noted_versions(thread, prefix)
        return noted or _NO_VERSIONS


class _Draft:
    """The parts of one write, and which of them Redis has."""

    def __init__(self, desk: Desk, thread: ThreadKeys, trusting: bool) -> None:
        self._desk = desk
        self._thread = thread
        self._trusting = trusting
        self._parts: dict[bytes, Node] = {}

    def encode(self, channel: str, value: object) -> Node:
        with _naming(f"channel {channel!r}"):
            return self._desk.codec.encode(value, self._parts)

    def arguments(self, values: Iterable[tuple[str, Node]]) -> list[bytes | int]:
        required, new = self.arguments_apart(values)
        return [*required, *new]

    def arguments_apart(self, values: Iterable[tuple[str, Node]]) -> tuple[list[bytes | int], list[bytes]]:
        """The digests that must be there, after their number; and the new parts, each after its digest.

        Raises:
            InvalidInput: a new part holds a type that could not be loaded again.
        """
        required: dict[bytes, None] = {}
        new: dict[bytes, bytes] = {}
        codec = self._desk.codec
        for channel, node in values:
            with _naming(f"channel {channel!r}"):
                codec.check(node)
            waiting = list(node.references)
            while waiting:
                digest = waiting.pop()
                if digest in new or digest in required:
                    continue
                part = self._parts.get(digest)
                if part is None or (self._trusting and self._desk.is_familiar(self._thread, digest)):
                    required[digest] = None
                    continue
                with _naming(f"channel {channel!r}"):
                    codec.check(part)
                new[digest] = codec.records.seal(part)
                waiting.extend(part.references)
        return [len(required), *required], [item for pair in new.items() for item in pair]

    def note(self, values: Iterable[tuple[str, Node]]) -> None:
        """Keep that the values are stored."""
        references = [digest for _, node in values for digest in node.references]
        self._desk.note_parts(
            self._thread,
            references,
            lambda digest: self._parts[digest].references if digest in self._parts else (),
        )


def _channels(
    draft: _Draft, checkpoint: Checkpoint, new_versions: ChannelVersions, stored: StoredVersions
) -> dict[str, Node]:
    """The values of a checkpoint's channels.

    Those whose version its parent has are taken from there. LangGraph gives the values of all channels, also where the
    parent is not the checkpoint that they come from, as in a fork.
    """
    channels: dict[str, Node] = {}
    values = checkpoint["channel_values"]
    for channel, version in checkpoint["channel_versions"].items():
        known = None if channel in new_versions else stored.get(channel)
        if known is not None and known[0] == version:
            if known[1] is not None:
                channels[channel] = known[1]
        elif channel in values:
            channels[channel] = draft.encode(channel, values[channel])
    return channels


@contextmanager
def _naming(what: str) -> Generator[None]:
    """Say what it is that cannot be stored."""
    try:
        yield
    except LanewayError as error:
        raise InvalidInput(f"{what} cannot be stored: {error}") from error
    except Exception as error:
        raise InvalidInput(
            f"{what} cannot be stored: {error}; keep it out of the state, or turn it into plain data, messages or a "
            "type named in RedisSaver(allowed_types=[...])"
        ) from error
