"""The checkpoint saver that a lane gives its graph for one step.

It holds checkpoints in memory, seeded with the lane's messages and the state that was staged last. What a task writes
is kept durably as soon as the task is done, in the step's journal, and so is what subgraphs save: an attempt that is
repeated finds both and runs only what is missing. The graph's own checkpoint, which a finished superstep ends with, is
not written here: it is the step's result, and is staged with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)

from laneway.activities.langchain_state import Saved, Spaces, metadata_of
from laneway.errors import InvalidInput

__all__ = ["ERROR", "ROOT", "StepSaver", "checkpoint_name"]

ROOT: Final = ""
"""The namespace of the graph itself."""
ERROR: Final = "__error__"

Keep = Callable[[object, Sequence[tuple[str, Any]]], Awaitable[None]]
"""Keeps what was saved: plain data, and the values of channels."""


def checkpoint_name(*words: str | int) -> str:
    """An id for a checkpoint: the same for the same words, since the ids of tasks are made of it."""
    return str(UUID(bytes=blake2b("\0".join(map(str, words)).encode(), digest_size=16).digest()))


class StepSaver(BaseCheckpointSaver[int]):
    """Holds the checkpoints of one step.

    Args:
        thread_id: what the graph's configuration calls the thread.
        spaces: the checkpoints that are there already, by namespace. It is added to.
    """

    def __init__(self, thread_id: str, spaces: Spaces) -> None:
        super().__init__()
        self.spaces = spaces
        self._thread_id = thread_id
        self._keep: Keep | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._order = asyncio.Lock()
        self._late: set[asyncio.Task[None]] = set()

    @property
    def root(self) -> Saved:
        """The graph's latest checkpoint."""
        return self.spaces[ROOT][-1]

    def keep_with(self, keep: Keep | None) -> None:
        """Have what tasks write and what subgraphs save kept, from now on."""
        self._keep, self._loop = keep, asyncio.get_running_loop()

    async def kept(self) -> None:
        """Wait until everything is kept that came from other threads."""
        await asyncio.sleep(0)
        while self._late:
            await asyncio.gather(*self._late)

    async def given_up(self) -> None:
        """Leave unfinished what came from other threads: the step has failed."""
        self._keep = None
        await asyncio.sleep(0)
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    # What a journal holds ---------------------------------------------------------------------------------------------

    def replay(self, header: dict[str, Any], values: Sequence[Any]) -> None:
        """Take up what an earlier attempt kept."""
        if header["k"] == "w":
            pairs = list(zip(header["c"], values, strict=True))
            self._put_writes(header["n"], header["i"], pairs, header["t"], header["p"])
        else:
            held = dict(zip(header["v"], values, strict=True))
            checkpoint = cast("Checkpoint", {**header["c"], "channel_values": held})
            self._put(header["n"], Saved(checkpoint, header["m"], header["p"]))

    # Reading ----------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        namespace, checkpoint_id = _place(config)
        chain = self.spaces.get(namespace, [])
        if checkpoint_id is not None:
            chain = [saved for saved in chain if saved.checkpoint["id"] == checkpoint_id]
        if not chain:
            return None
        saved = chain[-1]
        writes = sorted(saved.writes.items(), key=lambda one: writes_sort_key(one[1][2], *one[0]))
        return CheckpointTuple(
            config=self._config(namespace, saved.checkpoint["id"]),
            checkpoint=_copied(saved.checkpoint),
            metadata=cast("CheckpointMetadata", dict(saved.metadata)),
            parent_config=None if saved.parent_id is None else self._config(namespace, saved.parent_id),
            pending_writes=[(task, channel, value) for (task, _), (channel, value, _) in writes],
        )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        raise InvalidInput(
            "a graph on a lane cannot look at its earlier checkpoints, as get_state_history does: the lane keeps its "
            "history of messages, and the state after its latest turn. Keep what a node needs of earlier states in a "
            "channel, or run the graph by itself with laneway.langgraph.RedisSaver"
        )

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for one in self.list(config, filter=filter, before=before, limit=limit):
            yield one

    # Writing ----------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace, parent_id = _place(config)
        saved = Saved(_copied(checkpoint), metadata, parent_id)
        self._put(namespace, saved)
        if namespace != ROOT:
            self._keep_late(*_checkpoint_record(namespace, saved))
        return self._config(namespace, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace, parent_id = _place(config)
        saved = Saved(_copied(checkpoint), metadata, parent_id)
        self._put(namespace, saved)
        if namespace != ROOT:
            await self._keep_now(*_checkpoint_record(namespace, saved))
        return self._config(namespace, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        namespace, checkpoint_id = _place(config)
        self._put_writes(namespace, checkpoint_id, writes, task_id, task_path)
        if not _is_failure(writes):
            self._keep_late(*_writes_record(namespace, checkpoint_id, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        namespace, checkpoint_id = _place(config)
        self._put_writes(namespace, checkpoint_id, writes, task_id, task_path)
        if not _is_failure(writes):
            await self._keep_now(*_writes_record(namespace, checkpoint_id, writes, task_id, task_path))

    def _put(self, namespace: str, saved: Saved) -> None:
        self.spaces.setdefault(namespace, []).append(saved)

    def _put_writes(
        self,
        namespace: str,
        checkpoint_id: str | None,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        for saved in reversed(self.spaces.get(namespace, [])):
            if saved.checkpoint["id"] == checkpoint_id:
                for at, (channel, value) in enumerate(writes):
                    index = WRITES_IDX_MAP.get(channel, at)
                    if index < 0 or (task_id, index) not in saved.writes:
                        saved.writes[task_id, index] = (channel, value, task_path)
                return

    async def _keep_now(self, header: object, values: Sequence[tuple[str, Any]]) -> None:
        if self._keep is not None:
            # One after the other: what is kept may refer to what was kept before it.
            async with self._order:
                await self._keep(header, values)

    def _keep_late(self, header: object, values: Sequence[tuple[str, Any]]) -> None:
        """Keep what comes from a synchronous graph. It may hold up the event loop's thread, so nothing waits here."""
        if self._keep is None or self._loop is None:
            return
        loop = self._loop

        def begin() -> None:
            task = loop.create_task(self._keep_now(header, values))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

        loop.call_soon_threadsafe(begin)

    def _config(self, namespace: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self._thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
            }
        }


def _place(config: RunnableConfig) -> tuple[str, str | None]:
    configurable = config.get("configurable") or {}
    return str(configurable.get("checkpoint_ns") or ROOT), configurable.get("checkpoint_id") or None


def _copied(checkpoint: Checkpoint) -> Checkpoint:
    copy = dict(checkpoint)
    copy["channel_values"] = dict(checkpoint["channel_values"])
    copy["channel_versions"] = dict(checkpoint["channel_versions"])
    copy["versions_seen"] = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}
    return cast("Checkpoint", copy)


def _checkpoint_record(namespace: str, saved: Saved) -> tuple[object, Sequence[tuple[str, Any]]]:
    values = list(saved.checkpoint["channel_values"].items())
    plain = {name: value for name, value in saved.checkpoint.items() if name != "channel_values"}
    header = {
        "k": "c",
        "n": namespace,
        "c": plain,
        "m": metadata_of(saved),
        "p": saved.parent_id,
        "v": [channel for channel, _ in values],
    }
    return header, values


def _writes_record(
    namespace: str, checkpoint_id: str | None, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> tuple[object, Sequence[tuple[str, Any]]]:
    channels = [channel for channel, _ in writes]
    return {"k": "w", "n": namespace, "i": checkpoint_id, "t": task_id, "p": task_path, "c": channels}, list(writes)


def _is_failure(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether a task wrote nothing but that it failed: it is tried again, or fails its turn."""
    return all(channel == ERROR for channel, _ in writes)
