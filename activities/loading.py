"""Loading: what an attempt at a step finds before it begins."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from temporalio import activity

from laneway.activities.adapter import Adapter, Windowed
from laneway.activities.agents import Agents
from laneway.activities.attempt import Attempt, size_of
from laneway.activities.references import UnknownReference
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.turn_fields import failed_attempts, latest_staged
from laneway.activities.turn_hooks import HookJournal, TurnHooks
from laneway.activities.turn_scope import TurnScope
from laneway.activities.wire import StepInput
from laneway.errors import CheckpointLost, ServiceUnavailable, UnknownAgent
from laneway.history.cache import HeldHistory, HistoryCache
from laneway.history.garbage import collection_paused
from laneway.history.heads import Fence, LoadedTurn
from laneway.history.lanes import LaneKey
from laneway.history.options import TurnOptions
from laneway.history.origins import EntryMetadata
from laneway.history.records import EventKind, LaneEvent
from laneway.history.requests import first_of_episode
from laneway.history.store import HistoryStore
from laneway.history.threads import opening_of

__all__ = ["Loading"]


class Loading:
    """Loads what attempts at steps need. Made by the steps.

    Args:
        store: where histories live.
        agents: the agents that this worker runs.
        cache: the decoded histories that it keeps.
        mismatch_grace: see `Steps`.
    """

    def __init__(self, store: HistoryStore, agents: Agents, *, cache: HistoryCache, mismatch_grace: timedelta) -> None:
        self._store = store
        self._agents = agents
        self._cache = cache
        self._mismatch_grace = mismatch_grace

    async def load(self, request: StepInput, fence: Fence, *, is_new: bool = False) -> Attempt:
        """Begin an attempt: what the turn and its lane have in Redis, and the agent that goes on with it.

        Args:
            request: the step.
            fence: who takes it.
            is_new: whether nobody has begun the step before, whatever the number of the attempt is.

        Raises:
            TurnEnded, StaleTurn: the turn has ended, or a later attempt has begun.
            CheckpointLost, CheckpointCorrupt: history or the prompt is missing, or altered.
            ServiceUnavailable: Redis does not answer, or another worker may have what this one has not.
        """
        held = self._cache.get(fence.lane.lane_id)
        step = fence.step
        turn = await self._store.turns.load(
            fence,
            held=held.checkpoint,
            started=LaneEvent(EventKind.TURN_STARTED, fence.turn_id),
            retried=None if is_new else LaneEvent(EventKind.STEP_RETRIED, fence.turn_id, step, fence.attempt),
            now=time.time(),
        )
        head = turn.head
        if request.v is not None and head.version < request.v:
            raise CheckpointLost(
                f"the lane's head in Redis is at version {head.version}, and version {request.v} was committed: "
                "history is missing. Nothing was sent; restore Redis from a backup that has this lane, or start a new "
                "conversation"
            )
        if "in" not in turn.fields:
            raise CheckpointLost(
                f"the prompt of turn {fence.turn_id!r} is missing from Redis. Nothing was sent; submit the turn again "
                "under a new id"
            )
        options = TurnOptions.from_json(turn.fields.get("op"))
        said = TurnScope.from_data(options.scope)
        with self._grace():
            scope = said.resolved(self._agents.registry)
            adapter = self._agents.for_lane(fence.lane, said.profile)
        committed = self._decoded(fence.lane, adapter, held, turn)
        messages, entries, size = list(committed.messages), list(committed.entries), committed.size_bytes
        if turn.stage_checkpoint.epoch != head.checkpoint.epoch:
            messages, entries, size = [], [], 0
        messages.extend(adapter.decode(entry.payload) for entry in turn.staged)
        entries.extend(EntryMetadata.from_stored(entry.metadata) for entry in turn.staged)
        tally, state = latest_staged(turn.fields, step)
        fence = replace(fence, version=head.version)
        return Attempt(
            fence=fence,
            turn=replace(turn, entries=(), staged=()),
            adapter=adapter,
            history=messages,
            entries=entries,
            size_bytes=size + size_of(turn.staged),
            checkpoint=turn.stage_checkpoint,
            failed=failed_attempts(turn.fields),
            state=state,
            tally=tally,
            scope=scope,
            options=options,
            window=getattr(adapter, "text_window", None),
            profile=said.profile,
            hooks=self._hooks(fence, turn.fields, scope),
        )

    async def open_window(self, request: StepInput, attempt: Attempt) -> None:
        """Where the adapter has a text window, begin a turn with what the thread holds, its own request included."""
        window, state = attempt.window, attempt.state
        if window is None or request.n or state is not None:
            return
        fence, prompt = attempt.fence, attempt.turn.fields["in"]
        is_root = attempt.options.is_root
        if is_root:
            await self._store.threads.open_turn(fence, cast("Windowed", attempt.adapter).text_of_prompt(prompt))
        shown = await self._store.list_messages(fence.lane, window.messages)
        attempt.opening = opening_of(shown, is_brief=not is_root)

    async def read_steered(self, request: StepInput, attempt: Attempt) -> None:
        """Read what steers the turn, as far as it may take it in.

        What it may not becomes a turn of its own: what a hook is to be asked about, what goes by other options than
        this turn, and in a text thread each request, which the thread has by its turn.
        """
        if not request.u or attempt.window is not None or attempt.hooks.has("user_prompt_submit"):
            return
        known, found = set(attempt.tally.taken), list[tuple[str, str, bytes]]()
        mine = replace(attempt.options, trace={})
        for turn_id in request.u:
            fields = {} if turn_id in known else await self._store.turns.unfinished(attempt.fence.lane, turn_id)
            if "in" in fields and replace(TurnOptions.from_json(fields.get("op")), trace={}) == mine:
                found.append((turn_id, fields["p"].decode(), fields["in"]))
        attempt.steered = found

    @contextmanager
    def _grace(self) -> Generator[None]:
        """While workers of two versions run, another one may have what this one has not."""
        try:
            yield
        except (UnknownAgent, UnknownReference) as error:
            waited = datetime.now(UTC) - activity.info().scheduled_time
            if waited < self._mismatch_grace:
                raise ServiceUnavailable(str(error)) from error
            raise

    def _hooks(self, fence: Fence, fields: Mapping[str, bytes], scope: ScopeInForce) -> TurnHooks:
        async def keep(name: str, value: bytes, prompt: bytes | None) -> bytes | None:
            return await self._store.turns.decide(fence, f"h:{name}", value, prompt=prompt)

        recorded = {name.removeprefix("h:"): value for name, value in fields.items() if name.startswith("h:")}
        return TurnHooks(
            () if scope.is_quiet else (*self._agents.hooks(fence.lane.agent), *scope.hooks),
            fence.lane.conversation,
            fence.lane.agent,
            fence.turn_id,
            first_of_episode(fields, fence.step),
            HookJournal(recorded, keep),
        )

    def _decoded(self, lane: LaneKey, adapter: Adapter[Any], held: HeldHistory, turn: LoadedTurn) -> HeldHistory:
        before, known = (held.messages, held.entries) if turn.first else ((), ())
        size = held.size_bytes if turn.first else 0
        if turn.first and not turn.entries:
            return held
        with collection_paused():
            messages = (*before, *(adapter.decode(entry.payload) for entry in turn.entries))
            entries = (*known, *(EntryMetadata.from_stored(entry.metadata) for entry in turn.entries))
        history = HeldHistory(turn.head.checkpoint, messages, entries, size + size_of(turn.entries))
        self._cache.put(lane.lane_id, history)
        return history
