"""`Recent`: a bounded memory of what was seen lately."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """What was seen lately, for threads of any number.

    Args:
        capacity: how much is kept: the sum of the weights.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._weight = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """What was kept under a key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep a value, in place of those that were not asked for longest."""
        with self._lock:
            former = self._entries.pop(key, None)
            self._weight += weight - (former[1] if former else 0)
            self._entries[key] = value, weight
            while self._weight > self._capacity:
                _, (_, freed) = self._entries.popitem(last=False)
                self._weight -= freed

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._weight = 0
