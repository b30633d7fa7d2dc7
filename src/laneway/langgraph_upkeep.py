"""How `RedisSaver` deletes, prunes and copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from laneway import langgraph_scripts as scripts
from laneway.errors import InvalidInput
from laneway.langgraph_desk import Desk
from laneway.langgraph_link import Ask, Steps
from laneway.langgraph_reads import Reads
from laneway.langgraph_rows import Row

__all__ = ["Upkeep"]


class Upkeep:
    """Deletes, prunes and copies threads."""

    def __init__(self, desk: Desk, reads: Reads) -> None:
        self._desk = desk
        self._reads = reads

    def delete_thread(self, thread_id: str) -> Steps[None]:
        """Delete everything of a thread at once."""
        thread = self._desk.thread(thread_id)
        rows = yield from self._reads.rows(thread)
        yield Ask(None, thread.all, ("UNLINK", *thread.all))
        yield from self._unregister(thread_id, rows, gone=True)

    def delete_for_runs(self, run_ids: Sequence[str]) -> Steps[None]:
        """Delete the checkpoints of runs, with their pending writes. Atomic for each thread."""
        runs = set(run_ids)
        threads: dict[str, None] = {}
        for run_id in run_ids:
            bounds = (f"[{run_id}\0", f"({run_id}\1")
            members: list[bytes] = yield Ask(None, (), ("ZRANGEBYLEX", self._desk.index("runs"), *bounds))
            threads |= {member.decode().split("\0", 1)[1]: None for member in members}
        for thread_id in threads:
            rows = yield from self._reads.rows(self._desk.thread(thread_id))
            yield from self._delete(thread_id, [row for row in rows if row.metadata.get("run_id") in runs])

    def prune(self, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
        """Keep the latest checkpoint of each namespace, with the ancestors that its delta channels are rebuilt from."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"the strategy {strategy!r} is not known; pass 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                yield from self.delete_thread(thread_id)
                continue
            rows = yield from self._reads.rows(self._desk.thread(thread_id))
            kept = set(_needed(rows))
            # Named one by one: a checkpoint that is written meanwhile stays.
            yield from self._delete(thread_id, [row for row in rows if row.prefix not in kept])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> Steps[None]:
        """Copy a thread whole, as it is at one moment, to a thread that does not exist."""
        target = self._desk.thread(target_thread_id)
        dump: list[Any] = yield self._desk.ask(scripts.DUMP, self._desk.thread(source_thread_id))
        if not dump:
            return
        if not (yield self._desk.ask(scripts.RESTORE, target, *dump)):
            raise InvalidInput(f"the thread {target_thread_id!r} exists; delete it first, or copy to another one")
        yield Ask(None, (), ("ZADD", self._desk.index("threads"), 0, target_thread_id))
        rows = yield from self._reads.rows(target)
        for run_id in _run_ids(rows):
            yield Ask(None, (), ("ZADD", self._desk.index("runs"), 0, f"{run_id}\0{target_thread_id}"))

    def _delete(self, thread_id: str, rows: Sequence[Row]) -> Steps[None]:
        if not rows:
            return
        prefixes = [row.prefix for row in rows]
        left: int = yield self._desk.ask(scripts.DELETE, self._desk.thread(thread_id), *prefixes)
        yield from self._unregister(thread_id, rows, gone=left == 0)

    def _unregister(self, thread_id: str, rows: Iterable[Row], *, gone: bool) -> Steps[None]:
        """Take a thread and its runs from the lists. Too much on a list does no harm, too little would."""
        if not gone:
            return
        self._desk.registered.clear()
        yield Ask(None, (), ("ZREM", self._desk.index("threads"), thread_id))
        for run_id in _run_ids(rows):
            yield Ask(None, (), ("ZREM", self._desk.index("runs"), f"{run_id}\0{thread_id}"))


def _run_ids(rows: Iterable[Row]) -> list[str]:
    return sorted({run_id for row in rows if isinstance(run_id := row.metadata.get("run_id"), str)})


def _needed(rows: Iterable[Row]) -> Iterable[bytes]:
    by_place = {(row.namespace, row.checkpoint_id): row for row in rows}
    latest = {row.namespace: row for row in sorted(rows, key=lambda row: row.checkpoint_id)}
    for last in latest.values():
        row = last
        yield row.prefix
        # A delta channel that changed since its last snapshot is rebuilt from the writes of the ancestors since then.
        counters: dict[str, Any] = row.metadata.get("counters_since_delta_snapshot") or {}
        open_channels = counters.keys() - row.channels.keys()
        while open_channels and row.parent_id is not None:
            parent = by_place.get((row.namespace, row.parent_id))
            if parent is None:
                break
            yield parent.prefix
            open_channels -= parent.channels.keys()
            row = parent
