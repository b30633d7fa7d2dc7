"""Where `RedisSaver` keeps things in Redis.

    <prefix>:graph:threads             sorted set  thread ids, for listing without one
    <prefix>:graph:runs                sorted set  "run id NUL thread id", for deleting by run
    <prefix>:graph:{<digest>}:rows     sorted set  checkpoints: "namespace NUL checkpoint id NUL record"
    <prefix>:graph:{<digest>}:writes   sorted set  pending writes: "namespace NUL checkpoint id NUL task index record"
    <prefix>:graph:{<digest>}:parts    hash        parts of values, each stored once: digest → record

`<digest>` is that of the thread id: the hash tag of all its keys. Every score is 0, so Redis keeps members in the order
of their bytes: a checkpoint is found by its prefix, a namespace's latest is the last of its range, and no id is ever a
pattern. A record lies in its member because a hash beside an index would hold every id twice.

A record is one byte of flags, three bytes with the number of its references, the references (digests of parts, 16 bytes
each) and its body. The scripts follow references; they never look into a body.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from laneway.errors import InvalidInput

__all__ = [
    "DIGEST_BYTES",
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
class ThreadKeys:
    """The names of one thread's keys."""

    base: str

    @classmethod
    def of(cls, prefix: str, thread_id: str) -> ThreadKeys:
        """The names that the saver gives them.

        Raises:
            InvalidInput: the id has a NUL character or is not valid Unicode.
        """
        return cls(f"{prefix}:graph:{{{blake2b(_text(thread_id), digest_size=16).hexdigest()}}}:")

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
