"""What the parts of `RedisSaver` share: the names of keys, how questions are put, and what was seen lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway.errors import ConfigurationError, InvalidInput, StaleTurn
from laneway.langgraph_codec import Codec
from laneway.langgraph_layout import StageScope, ThreadKeys, references_of
from laneway.langgraph_link import Ask, Steps
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
        key_base: gives what the keys of a thread begin with, a hash tag in it; None where the saver names them itself
            and keeps a list of its threads.
    """

    prefix: str
    ttl: timedelta | None = None
    refresh_on_read: bool = False
    key_base: Callable[[str], str] | None = None


class Desk:
    """Puts questions about threads, in a stage or not.

    Attributes:
        codec: how values are stored.
        options: how the saver was set up.
        scope: the stage that writes go to; None where they go to the thread.
        registered: the threads and runs that are known to be in the lists of these.
    """

    def __init__(self, codec: Codec, options: Options, scope: StageScope | None = None) -> None:
        self.codec = codec
        self.options = options
        self.scope = scope
        self.registered: Recent[tuple[str, str], bool] = Recent(10_000)
        # Hints, which save bandwidth and questions. The scripts check what is built on them.
        self._familiar: Recent[tuple[str, bytes], bool] = Recent(50_000)
        self._versions: Recent[tuple[str, bytes], StoredVersions] = Recent(500)

    def thread(self, thread_id: str) -> ThreadKeys:
        """The keys of a thread."""
        base = self.options.key_base
        return ThreadKeys(base(thread_id)) if base else ThreadKeys.of(self.options.prefix, thread_id)

    def index(self, name: str) -> str:
        """The key of a list that spans threads.

        Raises:
            ConfigurationError: this saver keeps none.
        """
        if self.options.key_base is not None:
            raise ConfigurationError(
                "a saver with key_base keeps no list of its threads; name the thread in the config"
            )
        return f"{self.options.prefix}:graph:{name}"

    def ask(self, script: Script, thread: ThreadKeys, *args: Any, ttl: timedelta | None = None) -> Ask:
        """A question about a thread, as the stage sees it."""
        target = thread.stage(self.scope.stage) if self.scope else thread
        fence = self.scope.fence() if script.fenced and self.scope and self.scope.fence else None
        head: list[Any] = [0 if ttl is None else max(1, int(ttl.total_seconds() * 1000))]
        head += [0] if fence is None else [len(fence.args), *fence.args]
        keys = (*thread.all, *target.all, *(fence.keys if fence else ()))
        return Ask(script, keys, (*head, *args), fence.source if fence else "")

    def write(self, script: Script, thread: ThreadKeys, *args: Any, ttl: timedelta | None = None) -> Steps[list[Any]]:
        """Put a question that writes, and have its fence obeyed.

        Raises:
            StaleTurn: the fence refused it; nothing was written.
        """
        if ttl is None:
            ttl = self.scope.ttl if self.scope else self.options.ttl
        answer: list[Any] = yield self.ask(script, thread, *args, ttl=ttl)
        if answer[0] == b"refused":
            stage = self.scope.stage if self.scope else ""
            raise StaleTurn(
                f"the stage {stage!r} takes no more writes (its fence answered {answer[1]!r}): nothing was written"
            )
        return answer

    def settled(self, what: str) -> None:
        """Make sure that this is not a stage.

        Raises:
            ConfigurationError: it is.
        """
        if self.scope is not None:
            raise ConfigurationError(f"{what} is not possible in a stage; use the saver that the stage was made from")

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
