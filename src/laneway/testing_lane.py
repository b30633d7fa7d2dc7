"""A lane in memory: what the store and the steps do for an adapter, with a stop after any write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from laneway.activities.adapter import Adapter, StepResult, StepWork, read_output
from laneway.activities.journal import ToolJournal
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.turn_hooks import TurnHooks
from laneway.history.checkpoints import CheckpointRef, StoredEntry
from laneway.history.heads import part_names
from laneway.history.origins import EntryMetadata
from laneway.history.records import EventKind, TurnUsage

__all__ = ["MemoryLane", "MemoryTurn"]

M = TypeVar("M")

_MAX_STEPS = 50


@dataclass(frozen=True)
class MemoryTurn:
    """How a turn came out."""

    output: object
    usage: TurnUsage
    steps: int
    events: Sequence[EventKind]


@dataclass
class _Staged:
    """A turn that has not ended, as it would be in Redis."""

    turn_id: str
    prompt: bytes
    entries: list[StoredEntry] = field(default_factory=list[StoredEntry])
    epoch: int = 0
    step: int = 0
    state: bytes | None = None
    journal: dict[str, bytes] = field(default_factory=dict[str, bytes])
    parts: dict[str, bytes] = field(default_factory=dict[str, bytes])


class MemoryLane(Generic[M]):
    """A lane.

    Args:
        make: makes the adapter; each attempt at a step gets one of its own.

    Attributes:
        entries: the committed history, as it is stored.
        epoch: its cache epoch.
        writes: how many writes there were.
        kept_prefix: whether every turn kept what was committed before it.
        changed_in_place: whether a step changed what it was given.
    """

    def __init__(self, make: Callable[[], Adapter[M]]) -> None:
        self._make = make
        self.entries: list[StoredEntry] = []
        self.epoch = 0
        self.extras: Mapping[str, object] = {}
        self.parts: dict[str, bytes] = {}
        self.writes = 0
        self.kept_prefix = True
        self.changed_in_place = False
        self._stop_at: int | None = None
        self._scope, self._hooks = ScopeInForce(), TurnHooks()
        self._stopped = asyncio.Event()

    def open(self, messages: Sequence[M], known: Sequence[EntryMetadata]) -> None:
        """Begin with a history from elsewhere."""
        adapter = self._make()
        self.entries = [StoredEntry(adapter.encode(m), k.to_stored()) for m, k in zip(messages, known, strict=True)]
        self.extras = {"live": len(messages)}

    async def turn(
        self,
        prompt: object,
        turn_id: str,
        *,
        stop_at: int | None = None,
        scope: ScopeInForce | None = None,
        hooks: TurnHooks | None = None,
    ) -> MemoryTurn:
        """Take a turn, and commit it.

        Args:
            prompt, turn_id: of the turn.
            scope, hooks: what is in force for it.
            stop_at: the number of the write after which the attempt at its step ends, as if its worker had died.
        """
        self._stop_at, self._scope, self._hooks = stop_at, scope or ScopeInForce(), hooks or TurnHooks()
        staged = _Staged(turn_id, self._make().encode_prompt(prompt), epoch=self.epoch)
        events: list[EventKind] = []
        while staged.step < _MAX_STEPS:
            result = await self._attempt(staged, events)
            if result is not None and result.done:
                return self._commit(staged, result, events)
        raise AssertionError(f"the turn has not ended after {_MAX_STEPS} steps")

    async def _attempt(self, staged: _Staged, events: list[EventKind]) -> StepResult[M] | None:
        """One attempt at the step that is next. None where it was stopped."""
        task = asyncio.create_task(self._step(staged, events))
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self._stopped.clear()
                return None
            return await task
        finally:
            for one in (task, stopped):
                one.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _step(self, staged: _Staged, events: list[EventKind]) -> StepResult[M]:
        adapter = self._make()
        rewritten = staged.epoch != self.epoch
        before = [*([] if rewritten else self.entries), *staged.entries]
        history = tuple(adapter.decode(entry.payload) for entry in before)

        async def stage(result: StepResult[M]) -> None:
            self._keep(adapter, staged, result)
            await self._written()

        async def journal(key: str, value: bytes) -> bytes | None:
            held = staged.journal.get(key)
            staged.journal.setdefault(key, value)
            await self._written()
            return held

        async def keep(parts: Mapping[str, bytes]) -> None:
            staged.parts.update(parts)
            await self._written()

        def emit(kind: EventKind, data: Mapping[str, object]) -> None:
            events.append(kind)

        work: StepWork[Any] = StepWork(
            conversation="conformance",
            turn_id=staged.turn_id,
            step=staged.step,
            attempt=1,
            prompt=staged.prompt,
            history=history,
            entries=tuple(EntryMetadata.from_stored(entry.metadata) for entry in before),
            base_length=len(self.entries),
            checkpoint=CheckpointRef(staged.epoch, len(before), ""),
            extras=self.extras,
            parts={**self.parts, **staged.parts},
            keep=keep,
            lane_id="lane",
            state=staged.state,
            journal=ToolJournal(staged.journal, journal),
            stage=stage,
            emit=emit,
            scope=self._scope,
            hooks=self._hooks,
        )
        async with adapter.running():
            result = await adapter.step(work)
        if [adapter.encode(message) for message in history] != [entry.payload for entry in before]:
            self.changed_in_place = True
        if not result.done:
            self._keep(adapter, staged, result)
            staged.step, staged.journal = staged.step + 1, {}
            await self._written()
        return result

    def _keep(self, adapter: Adapter[M], staged: _Staged, result: StepResult[M]) -> None:
        messages = result.appended if result.rewritten is None else result.rewritten
        known = result.entries
        if known is None:
            known = [adapter.describe(message, staged.turn_id) for message in messages]
        entries = [StoredEntry(adapter.encode(m), k.to_stored()) for m, k in zip(messages, known, strict=True)]
        if result.rewritten is None:
            staged.entries.extend(entries)
        else:
            staged.entries, staged.epoch = entries, staged.epoch + 1
        staged.state = result.state

    def _commit(self, staged: _Staged, result: StepResult[M], events: Sequence[EventKind]) -> MemoryTurn:
        adapter = self._make()
        self._keep(adapter, staged, result)
        if staged.epoch == self.epoch:
            self.entries.extend(staged.entries)
        else:
            self.kept_prefix = False
            self.entries, self.epoch = staged.entries, staged.epoch
        if result.extras is not None:
            self.extras, known = result.extras, {**self.parts, **staged.parts}
            self.parts = {name: known[name] for name in part_names(result.extras)}
        output = (
            adapter.output_of(adapter.decode(self.entries[-1].payload))
            if result.output_in_history
            else read_output(adapter, result.output, result.output_type)
        )
        return MemoryTurn(output, result.usage, staged.step + 1, tuple(events))

    async def _written(self) -> None:
        self.writes += 1
        if self.writes == self._stop_at:
            self._stopped.set()
            await asyncio.Event().wait()
