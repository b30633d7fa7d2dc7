"""What the parts of `RedisSaver` share: the names of keys, how questions are put, and what was seen lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway.errors import InvalidInput
from laneway.langgraph_codec import Codec
from laneway.langgraph_layout import ThreadKeys, references_of
from laneway.langgraph_link import Ask
from laneway.langgraph_lua import Script
from laneway.langgraph_recent import Recent
from laneway.langgraph_records import Node
from laneway.langgraph_rows import Row, read_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.runnables import RunnableConfig

__all__ = ["Desk", "Options", "Place", "StoredVersions", "children_in"]

_FAMILIAR_DEPTH = 4
"""How deep below a value its parts are remembered: the next version of a list refers to its upper chunks."""


Version = int | float | str
StoredVersions = Mapping[str, tuple[Version, Node | None]]
"""Each channel's version, and its value where it has one."""


@dataclass(frozen=True)
class Place:
    """What a config points at: a checkpoint of a thread's namespace, or the latest one."""

    thread_id: str
    namespace: str = ""
    checkpoint_id: str | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> Place:
        """Read a config.

        Raises:
            InvalidInput: it names no thread.
        """
        configurable: Mapping[str, Any] = config.get("configurable") or {}
        if "thread_id" not in configurable:
            raise InvalidInput('the config names no thread; pass {"configurable": {"thread_id": ...}}')
        checkpoint_id = configurable.get("checkpoint_id")
        return cls(
            str(configurable["thread_id"]),
            str(configurable.get("checkpoint_ns") or ""),
            str(checkpoint_id) if checkpoint_id else None,
        )

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """The config of a checkpoint of the same namespace."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": checkpoint_id,
            }
        }


@dataclass(frozen=True)
class Options:
    """How a saver was set up.

    Attributes:
        prefix: what every key begins with.
        ttl: how long a thread lives after its last write; None for ever.
        refresh_on_read: whether reading a thread counts too.
    """

    prefix: str
    ttl: timedelta | None = None
    refresh_on_read: bool = False


class Desk:
    """Puts questions about threads.

    Attributes:
        codec: how values are stored.
        options: how the saver was set up.
        registered: the threads and runs that are known to be in the lists of these.
    """

    def __init__(self, codec: Codec, options: Options) -> None:
        self.codec = codec
        self.options = options
        self.registered: Recent[tuple[str, str], bool] = Recent(10_000)
        # Hints, which save bandwidth and questions. The scripts check what is built on them.
        self._familiar: Recent[tuple[str, bytes], bool] = Recent(50_000)
        self._versions: Recent[tuple[str, bytes], StoredVersions] = Recent(500)

    def thread(self, thread_id: str) -> ThreadKeys:
        """The keys of a thread."""
        return ThreadKeys.of(self.options.prefix, thread_id)

    def index(self, name: str) -> str:
        """The key of a list that spans threads."""
        return f"{self.options.prefix}:graph:{name}"

    def ask(self, script: Script, thread: ThreadKeys, *args: Any, ttl: timedelta | None = None) -> Ask:
        """A question about a thread, which gives it a new time to live where one is given."""
        return Ask(script, thread.all, (0 if ttl is None else max(1, int(ttl.total_seconds() * 1000)), *args))

    def write(self, script: Script, thread: ThreadKeys, *args: Any) -> Ask:
        """A question that writes."""
        return self.ask(script, thread, *args, ttl=self.options.ttl)

    # What was seen ----------------------------------------------------------------------------------------------------

    def note_versions(self, thread: ThreadKeys, row: Row) -> None:
        """Keep a checkpoint's stored values by channel and version: its children have most of them."""
        versions: Mapping[str, Version] = row.checkpoint["channel_versions"]
        stored = {channel: (version, row.channels.get(channel)) for channel, version in versions.items()}
        self._versions.put((thread.base, row.prefix), stored)

    def noted_versions(self, thread: ThreadKeys, prefix: bytes) -> StoredVersions | None:
        """What was kept of a checkpoint."""
        return self._versions.get((thread.base, prefix))

    def read_row(self, thread: ThreadKeys, member: bytes) -> Row:
        """The checkpoint of a member that was read."""
        row = read_row(self.codec, member)
        self.note_versions(thread, row)
        return row

    def note_parts(
        self, thread: ThreadKeys, references: Iterable[bytes], children: Callable[[bytes], tuple[bytes, ...]]
    ) -> None:
        """Keep that the upper parts of values are stored."""
        level = set(references)
        for _ in range(_FAMILIAR_DEPTH):
            for digest in level:
                self._familiar.put((thread.base, digest), True)
            level = {child for digest in level for child in children(digest)}

    def is_familiar(self, thread: ThreadKeys, digest: bytes) -> bool:
        """Whether a part was seen to be stored, lately."""
        return self._familiar.get((thread.base, digest)) is not None


def children_in(parts: Mapping[bytes, bytes]) -> Callable[[bytes], tuple[bytes, ...]]:
    """What parts that were read refer to."""
    return lambda digest: references_of(parts[digest]) if digest in parts else ()
