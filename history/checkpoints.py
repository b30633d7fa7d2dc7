"""Checkpoints: immutable points in a lane's history, bound to its entries by a chain of digests.

An entry is stored as `digest | metadata length | metadata | payload`: 16 bytes, 2 bytes, JSON, and the native message
in its framework's own serialised form. Each digest covers the one before it, so an entry can be checked on its own, the
first damaged one is found by its index, and a checkpoint is named by its last entry's digest alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from laneway.errors import CheckpointCorrupt
from laneway.history.garbage import collection_paused

__all__ = [
    "DIGEST_BYTES",
    "EMPTY",
    "CheckpointRef",
    "StoredEntry",
    "chain",
    "decode_entries",
    "encode_entries",
    "told_entry",
]

DIGEST_BYTES = 16
_LENGTH_BYTES = 2
_MAX_METADATA_BYTES = 2 ** (8 * _LENGTH_BYTES) - 1

Metadata = Mapping[str, object]


@dataclass(frozen=True)
class CheckpointRef:
    """A point in a lane's history: the first `length` entries of cache epoch `epoch`.

    Attributes:
        epoch: the cache epoch, from 0.
        length: how many entries.
        digest: the chained digest of the last entry, 32 hexadecimal characters; empty for no entries at all.
    """

    epoch: int
    length: int
    digest: str

    def __str__(self) -> str:
        return f"{self.epoch}:{self.length}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` of a checkpoint gives.

        Raises:
            ValueError: it is not that.
        """
        epoch, length, digest = text.split(":")
        return cls(int(epoch), int(length), digest)


EMPTY = CheckpointRef(0, 0, "")
"""The checkpoint of a lane that has committed nothing."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A native message as it is stored.

    Attributes:
        payload: the message in its framework's own serialised form.
        metadata: what Laneway knows of it besides, out of band: JSON, small, never part of the prompt.
    """

    payload: bytes
    metadata: Metadata


def chain(previous: bytes, body: bytes | memoryview) -> bytes:
    """The digest of an entry whose encoded metadata and payload are `body`, after the entry with digest `previous`."""
    return blake2b(body, digest_size=DIGEST_BYTES, key=previous).digest()


def encode_entries(entries: Iterable[StoredEntry], *, after: str) -> tuple[list[bytes], str]:
    """Encode entries that follow one another.

    Args:
        entries: in order.
        after: the digest of the entry before the first, in hexadecimal; empty where there is none.

    Returns:
        the encoded entries, and the digest of the last one (`after` itself where there are none).

    Raises:
        ValueError: an entry's metadata is over 64 KiB.
    """
    digest = bytes.fromhex(after)
    encoded: list[bytes] = []
    for entry in entries:
        metadata = json.dumps(entry.metadata, separators=(",", ":")).encode() if entry.metadata else b""
        if len(metadata) > _MAX_METADATA_BYTES:
            raise ValueError(f"an entry's metadata has {len(metadata)} bytes: at most {_MAX_METADATA_BYTES}")
        body = len(metadata).to_bytes(_LENGTH_BYTES) + metadata + entry.payload
        digest = chain(digest, body)
        encoded.append(digest + body)
    return encoded, digest.hex()


def decode_entries(encoded: Sequence[bytes], *, after: str, epoch: int, first_index: int = 0) -> list[StoredEntry]:
    """Decode entries that follow one another, checking each against the chain.

    Args:
        encoded: as `encode_entries` gave them.
        after: the digest of the entry before the first, in hexadecimal; empty where there is none.
        epoch: their cache epoch, for the error.
        first_index: the index of the first one in its epoch, for the error.

    Raises:
        CheckpointCorrupt: an entry does not fit the chain; it says which.
    """
    digest = bytes.fromhex(after)
    entries: list[StoredEntry] = []
    with collection_paused():
        for offset, blob in enumerate(encoded):
            body = memoryview(blob)[DIGEST_BYTES:]
            expected = chain(digest, body)
            split = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
            if blob[:DIGEST_BYTES] != expected or len(body) < split:
                raise corrupt(epoch, first_index + offset)
            digest = expected
            metadata: Metadata = json.loads(bytes(body[_LENGTH_BYTES:split])) if split > _LENGTH_BYTES else {}
            entries.append(StoredEntry(bytes(body[split:]), metadata))
    return entries


def told_entry(encoded: bytes, checkpoint: CheckpointRef) -> StoredEntry | None:
    """The last entry of a checkpoint, as the commit told it; None where this is another one."""
    if encoded[:DIGEST_BYTES].hex() != checkpoint.digest:
        return None
    body = encoded[DIGEST_BYTES:]
    split = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
    return StoredEntry(body[split:], json.loads(body[_LENGTH_BYTES:split]) if split > _LENGTH_BYTES else {})


def corrupt(epoch: int, index: int) -> CheckpointCorrupt:
    """The error for an entry that is not what was committed."""
    return CheckpointCorrupt(
        f"entry {index} of epoch {epoch} is not what was committed: its digest does not fit the chain. "
        "Nothing was sent; restore Redis from a backup that has this lane, or start a new conversation",
        epoch=epoch,
        index=index,
    )
