"""Decoded histories that a worker keeps, so that a warm step reads only the tail."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from laneway.history.checkpoints import EMPTY, CheckpointRef
from laneway.history.origins import EntryMetadata

__all__ = ["HeldHistory", "HistoryCache"]


@dataclass(frozen=True)
class HeldHistory:
    """A decoded history.

    Attributes:
        checkpoint: the checkpoint that it is.
        messages: its native messages.
        entries: what is known of each beside its content.
        size_bytes: what its entries take as they are stored.
    """

    checkpoint: CheckpointRef = EMPTY
    messages: Sequence[object] = ()
    entries: Sequence[EntryMetadata] = ()
    size_bytes: int = 0


class HistoryCache:
    """Holds the histories used last, up to a total size of their stored entries.

    Decoded messages take more: replies of 2 KB 1.3 times as much, short prompts twice. A history is served only
    for the very lane and digest, so a stale one is never used; one that is larger than the whole cache is not held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[str, HeldHistory] = OrderedDict()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What the held histories take together."""
        return self._size_bytes

    def get(self, lane_id: str) -> HeldHistory:
        """The history held for a lane; an empty one where none is."""
        held = self._held.get(lane_id)
        if held is None:
            return HeldHistory()
        self._held.move_to_end(lane_id)
        return held

    def put(self, lane_id: str, history: HeldHistory) -> None:
        """Hold a lane's history in place of what was held for it, and forget what was used longest ago."""
        self.drop(lane_id)
        if history.size_bytes > self._max_bytes:
            return
        self._held[lane_id] = history
        self._size_bytes += history.size_bytes
        while self._size_bytes > self._max_bytes:
            _, oldest = self._held.popitem(last=False)
            self._size_bytes -= oldest.size_bytes

    def drop(self, lane_id: str) -> None:
        """Forget what is held for a lane."""
        held = self._held.pop(lane_id, None)
        if held is not None:
            self._size_bytes -= held.size_bytes
