"""A lane's head, and a turn on top of it: what the store is asked with, and what it answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, cast

from laneway.errors import CheckpointLost, StaleTurn
from laneway.history.checkpoints import DIGEST_BYTES, EMPTY, CheckpointRef, StoredEntry, decode_entries
from laneway.history.lanes import LaneKey
from laneway.history.records import TurnRecord

__all__ = [
    "LATEST",
    "Fence",
    "Head",
    "LoadedTurn",
    "TurnEnded",
    "checked_entries",
    "lost",
    "pairs_of",
    "part_names",
    "read_head",
]


class TurnEnded(StaleTurn):
    """The turn has ended already; nothing was written.

    Attributes:
        record: how it ended.
    """

    def __init__(self, record: TurnRecord) -> None:
        super().__init__(f"turn {record.turn_id!r} has ended already ({record.outcome}): nothing was written")
        self.record = record


LATEST: Final = 2**31
"""Later than any attempt at a step: who writes as this one is no attempt, and no attempt replaces it."""


@dataclass(frozen=True)
class Fence:
    """Who writes: an attempt at a step of a turn, on top of a version of the head."""

    lane: LaneKey
    turn_id: str
    step: int = 0
    attempt: int = 1
    version: int | None = None


@dataclass(frozen=True)
class Head:
    """A lane's committed state.

    Attributes:
        version: how many commits there were.
        checkpoint: where its history ends.
        turn_id: the turn that moved it here; None for a lane that has committed nothing.
        extras: what adapters keep beside the history, committed with it: usage checkpoint, response-id continuation.
        parts: large parts of it, by the names that `extras["parts"]` lists. Only where they were asked for.
    """

    version: int = 0
    checkpoint: CheckpointRef = EMPTY
    turn_id: str | None = None
    extras: Mapping[str, object] = field(default_factory=dict[str, object])
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    @property
    def part_names(self) -> list[str]:
        """The names of its large parts."""
        return part_names(self.extras)


@dataclass(frozen=True)
class LoadedTurn:
    """What a step begins from.

    Attributes:
        head: the lane's head.
        entries: the committed entries from index `first` on.
        first: 0, or the length of the checkpoint that the caller holds decoded already.
        staged: the entries that the turn has staged, decoded, in order.
        stage_checkpoint: the checkpoint that the staged entries lead to.
        fields: the turn's other fields by name, as `layout` describes them.
        open: the lane's turns that were submitted and have not ended, this one among them.
    """

    head: Head
    entries: Sequence[StoredEntry]
    first: int
    staged: Sequence[StoredEntry]
    stage_checkpoint: CheckpointRef
    fields: Mapping[str, bytes]
    open: frozenset[str] = frozenset()


def lost(checkpoint: CheckpointRef, why: str) -> CheckpointLost:
    """The error for committed history that is missing."""
    return CheckpointLost(
        f"committed history is missing from Redis ({why}; checkpoint {checkpoint}). Nothing was sent; restore Redis "
        "from a backup that has this lane, or start a new conversation"
    )


def checked_entries(encoded: Sequence[bytes], base: CheckpointRef, *, first: int, after: str) -> Sequence[StoredEntry]:
    """Decode what a head says is committed, from index `first` on, and check that it is all there and unaltered.

    Raises:
        CheckpointLost, CheckpointCorrupt: it is not.
    """
    if len(encoded) != base.length - first:
        raise lost(base, f"epoch {base.epoch} has {first + len(encoded)} entries of {base.length}")
    entries = decode_entries(encoded, after=after, epoch=base.epoch, first_index=first)
    if encoded and encoded[-1][:DIGEST_BYTES].hex() != base.digest:
        raise lost(base, "the head names another last entry")
    return entries


def part_names(extras: Mapping[str, object]) -> list[str]:
    """The names of the large parts that extras list."""
    return list(cast("list[str]", extras.get("parts") or ()))


def read_head(fields: Mapping[str, bytes], parts: Mapping[str, bytes] = MappingProxyType({})) -> Head:
    """A head from its fields; version 0 where there are none."""
    if not fields:
        return Head()
    return Head(
        version=int(fields["v"]),
        checkpoint=CheckpointRef(int(fields["e"]), int(fields["n"]), fields["d"].decode()),
        turn_id=fields["t"].decode() or None,
        extras=json.loads(fields["x"]),
        parts=parts,
    )


def pairs_of(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A hash as a script answers it: names and values in turn."""
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
