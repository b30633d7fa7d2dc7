"""Where `RedisSaver` keeps things in Redis.

    <prefix>:graph:threads             sorted set  thread ids, for listing without one
    <prefix>:graph:runs                sorted set  "run id NUL thread id", for deleting by run
    <prefix>:graph:{<digest>}:rows     sorted set  checkpoints: "namespace NUL checkpoint id NUL record"
    <prefix>:graph:{<digest>}:writes   sorted set  pending writes: "namespace NUL checkpoint id NUL task index record"
    <prefix>:graph:{<digest>}:parts    hash        parts of values, each stored once: digest → record
    …:stage:<stage>:rows, :writes, :parts          the same three, for what a stage has written

`<digest>` is that of the thread id: the hash tag of all its keys. Every score is 0, so Redis keeps members in the order
of their bytes: a checkpoint is found by its prefix, a namespace's latest is the last of its range, and no id is ever a
pattern. A record lies in its member because a hash beside an index would hold every id twice.

A record is one byte of flags, three bytes with the number of its references, the references (digests of parts, 16 bytes
each) and its body. The scripts follow references; they never look into a body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from uuid import UUID

from laneway.errors import InvalidInput

__all__ = [
    "DIGEST_BYTES",
    "Fence",
    "StageScope",
    "ThreadKeys",
    "checkpoint_prefix",
    "references_of",
    "split_checkpoint",
    "split_task",
    "task_name",
    "write_index",
]

DIGEST_BYTES = 16
INDEX_OFFSET = 256


@dataclass(frozen=True)
class Fence:
    """A condition that every write of a stage must meet, checked in the same script as the write.

    Attributes:
        source: Lua, the body of a function of KEYS and ARGV. What it returns other than nil refuses the write.
        keys: what the body sees as KEYS: keys with the same hash tag as the thread's.
        args: what it sees as ARGV.
    """

    source: str
    keys: Sequence[str] = ()
    args: Sequence[str | bytes] = ()


@dataclass(frozen=True)
class StageScope:
    """Where a saver's writes go until they are committed or dropped.

    Attributes:
        stage: names the stage within its thread: the turn, say.
        fence: called before each write; gives the condition that the script checks, or raises to stop the write.
        ttl: how long the stage lives after its last write, as a backstop.
    """

    stage: str
    fence: Callable[[], Fence] | None = None
    ttl: timedelta = timedelta(days=30)


@dataclass(frozen=True)
class ThreadKeys:
    """The names of one thread's keys, or of one of its stages'."""

    base: str

    @classmethod
    def of(cls, prefix: str, thread_id: str) -> ThreadKeys:
        """The names that the saver gives them.

        Raises:
            InvalidInput: the id has a NUL character or is not valid Unicode.
        """
        return cls(f"{prefix}:graph:{{{blake2b(_text(thread_id), digest_size=16).hexdigest()}}}:")

    def stage(self, stage: str) -> ThreadKeys:
        """The names of a stage's keys."""
        return ThreadKeys(f"{self.base}stage:{stage}:")

    @property
    def all(self) -> tuple[str, str, str]:
        """Rows, parts, writes: the order in which every script has them."""
        return self.base + "rows", self.base + "parts", self.base + "writes"


def checkpoint_prefix(namespace: str, checkpoint_id: str) -> bytes:
    """What the member of a checkpoint begins with, and those of its pending writes.

    Raises:
        InvalidInput: one of the two has a NUL character.
    """
    return b"%s\0%s\0" % (_text(namespace), _text(checkpoint_id))


def task_name(task_id: str) -> bytes:
    """A task's id, after a checkpoint's prefix: in 17 bytes where it is a UUID, as LangGraph makes them."""
    if len(task_id) == 36:
        try:
            uuid = UUID(task_id)
        except ValueError:
            pass
        else:
            if str(uuid) == task_id:
                return b"u" + uuid.bytes
    return b"t" + _text(task_id) + b"\0"


def split_checkpoint(member: bytes) -> tuple[str, str, bytes]:
    """The namespace, the checkpoint's id, and what follows them in a member."""
    namespace, checkpoint_id, rest = member.split(b"\0", 2)
    return namespace.decode(), checkpoint_id.decode(), rest


def split_task(rest: bytes) -> tuple[str, int, bytes]:
    """A task's id, the index of its write, and the record, of what follows the checkpoint in a member."""
    if rest[:1] == b"u":
        task_id, at = str(UUID(bytes=rest[1:17])), 17
    else:
        at = rest.index(b"\0") + 1
        task_id = rest[1 : at - 1].decode()
    return task_id, int.from_bytes(rest[at : at + 4]) - INDEX_OFFSET, rest[at + 4 :]


def write_index(index: int) -> bytes:
    """The index of a write in four bytes. LangGraph's special writes have negative ones."""
    return (index + INDEX_OFFSET).to_bytes(4)


def _text(value: str) -> bytes:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{value!r} is not valid Unicode; give ids that can be written as UTF-8") from None
    if b"\0" in encoded:
        raise InvalidInput(f"{value!r} has a NUL character; thread, namespace, checkpoint and task ids must have none")
    return encoded


def references_of(record: bytes) -> tuple[bytes, ...]:
    """The digests that a record refers to, from its head alone."""
    count = int.from_bytes(record[1:4])
    return tuple(record[at : at + DIGEST_BYTES] for at in range(4, 4 + count * DIGEST_BYTES, DIGEST_BYTES))
