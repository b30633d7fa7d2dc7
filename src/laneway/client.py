"""The client: submits turns, waits for them, and reads what lanes hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any, TypeAlias, cast
from uuid import uuid4

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from laneway.activities.adapter import IMPORT_MARK
from laneway.activities.agents import Agents
from laneway.activities.capabilities import Capability
from laneway.activities.hooks import Hooks
from laneway.activities.profiles import AgentProfile
from laneway.activities.turn_fields import steps_staged
from laneway.activities.wire import CANCEL_TURN, LANE_STATUS, CancelRequest, LaneView, QueuedTurn, WhenBusy
from laneway.answers import Pending, pending_anywhere, pending_on
from laneway.arguments import check_call
from laneway.connect import connect_redis, connect_temporal, interceptors_of, temporal_unavailable
from laneway.conversations import Conversation, NoHistory
from laneway.errors import InvalidInput, ServiceUnavailable
from laneway.history.budget import Headroom, RequestBudget
from laneway.history.checkpoints import CheckpointRef
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey, check_conversation, check_name
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.history.scopes import INHERIT, CompactionMode, CompactionSettings, HistoryProcessingSettings, Inherit
from laneway.history.store import HistoryStore
from laneway.scopes import Scope, ScopeSettings, where
from laneway.settings import Settings
from laneway.submissions import Submissions
from laneway.turns import CancelOutcome, Turn, TurnResult
from laneway.watch import LaneWatch

__all__ = ["Conversation", "LaneStatus", "LanewayClient", "NoHistory"]

Processors: TypeAlias = HistoryProcessor[Any] | str | Sequence[HistoryProcessor[Any] | str]
"""A history processor or its registered name, or several that run in order."""

# A Redis string holds no more than 512 MB.
_MAX_IMPORT_BYTES = 256 * 1024 * 1024
_QUERY_TIMEOUT = timedelta(seconds=5)
# How long a cancellation may go unanswered before the lane is asked whether it knows the turn at all.
_UNHEARD_AFTER_SECONDS = 2.0


@dataclass(frozen=True)
class LaneStatus:
    """What a lane is doing.

    Attributes:
        lane: which.
        head: its committed checkpoint.
        version: how many turns it has committed.
        epoch: its cache epoch.
        running: whether its workflow is open; an idle lane's is not, and the next submit starts it again.
        turn: the turn that runs; None where none does. For a moment after its end it is still told: those who wait for
            a turn hear of its end before the lane's workflow does.
        step: the step that it is at, from 0.
        queue: the turns that wait, in order.
        leaving: turns that waited, and are ending without having run.
        cancelling: whether the turn that runs is being cancelled.
        headroom: what is left of each limit: of the turn that runs, where it has a budget, and of the conversation, by
            the budget that it was given last.
        waiting: the requests without an answer that the turn that runs waits for.
        steering: the messages that steer the turn that runs, as their turns, in order.
    """

    lane: LaneKey
    head: CheckpointRef
    version: int
    running: bool
    turn: str | None = None
    step: int = 0
    queue: Sequence[str] = ()
    leaving: Sequence[str] = ()
    cancelling: bool = False
    headroom: Sequence[Headroom] = ()
    waiting: Sequence[str] = ()
    steering: Sequence[str] = ()

    @property
    def epoch(self) -> int:
        """The cache epoch that the head is in."""
        return self.head.epoch


class LanewayClient:
    """Made by `Laneway.client`, or by `LanewayClient.connect` for readers who have no application."""

    def __init__(
        self, agents: Agents, settings: Settings, temporal: Client, store: HistoryStore, watch: LaneWatch
    ) -> None:
        self.agents = agents
        self.settings = settings
        self.temporal = temporal
        self.store = store
        self.watch = watch
        self.submissions = Submissions(self)

    @classmethod
    @asynccontextmanager
    async def connect(cls, agents: Agents, settings: Settings) -> AsyncGenerator[LanewayClient]:
        """Connect to both servers.

        Raises:
            ServiceUnavailable, ConfigurationError: a server cannot be reached, or a setting cannot work.
        """
        redis = await connect_redis(settings)
        watch = LaneWatch(redis)
        try:
            temporal = await connect_temporal(settings, interceptors=interceptors_of(agents.instruments))
            store = HistoryStore(
                redis,
                prefix=settings.redis_prefix,
                stage_ttl=settings.stage_ttl,
                events_max_length=settings.events_max_length,
                events_turns=settings.events_turns,
                durability=settings.redis_durability,
            )
            yield cls(agents, settings, temporal, store, watch)
        finally:
            await watch.close()
            await redis.aclose()

    def conversation(self, conversation_id: str, *, budget: RequestBudget | None = None) -> Conversation:
        """A conversation, new or old.

        Args:
            conversation_id: which.
            budget: what all turns of the conversation with one agent may spend together, those of earlier callers
                included; it goes with each turn that is submitted here. `max_request_tokens` is of each request.

        Raises:
            InvalidInput: the id cannot be one.
        """
        return Conversation(self, check_conversation(conversation_id), budget=budget)

    @property
    def current(self) -> Conversation:
        """The conversation that calls use here which name none: the innermost scope's.

        Outside of any scope, and where a scope says `enabled=False`, one that keeps nothing: each turn is by itself.
        """
        conversation_id = where(self)
        return NoHistory(self) if conversation_id is None else Conversation(self, conversation_id)

    async def ask(
        self,
        agent: str,
        prompt: Any,
        *,
        turn_id: str | None = None,
        timeout: timedelta | float | None = None,
        budget: RequestBudget | None = None,
        profile: AgentProfile | None = None,
    ) -> TurnResult[Any]:
        """Submit a turn to the current conversation, and wait for its result.

        Outside of any history scope nothing is kept: the turn is as durable as any other while it runs, and gone when
        it has ended. See `history`, and `Conversation.submit` for arguments and errors.
        """
        return await self.current.ask(agent, prompt, turn_id=turn_id, timeout=timeout, budget=budget, profile=profile)

    def history(
        self,
        conversation_id: str | Inherit = INHERIT,
        *,
        enabled: bool | Inherit = INHERIT,
        processor: Processors | Inherit | None = INHERIT,
        processor_condition: HistoryProcessorCondition | str | Inherit | None = INHERIT,
        compaction_mode: CompactionMode | Inherit | None = INHERIT,
        compaction_threshold: int | Inherit | None = INHERIT,
        profile: AgentProfile | None = None,
        hooks: Hooks | None = None,
    ) -> Scope:
        """A scope in which calls that name no conversation use one: `async with client.history() as conversation:`.

        It holds for the code inside and the tasks that begin there; it can decorate an async function. What is left out
        is as it is outside; None clears. See docs/scopes.md.

        Args:
            conversation_id: which conversation; else that of the scope around, else a new one.
            enabled: False for none: calls neither read nor change the history of the scope around.
            processor: edits what is sent, in place of the adapter's. Registered with the app, or importable.
            processor_condition: says when it does; a processor that is given without one always runs.
            compaction_mode: `native`: the model's provider compacts the history by itself.
            compaction_threshold: from how many input tokens on it does.
            profile: what is different about the agents that are called; what this scope says itself goes before it.
            hooks: called around the turns, after those of the scopes around.

        Raises:
            InvalidInput: the conversation id cannot be one.
        """
        check_call(profile=profile, hooks=hooks)
        if not isinstance(cast("object", enabled), bool | Inherit):
            raise InvalidInput(f"enabled is {enabled!r}: give True or False, or leave it out")
        if not isinstance(conversation_id, Inherit):
            check_conversation(conversation_id)
        settings = ScopeSettings(
            conversation_id,
            enabled,
            HistoryProcessingSettings(cast("Any", processor), cast("Any", processor_condition)),
            CompactionSettings(compaction_mode, compaction_threshold),
            profile,
            hooks,
        )
        return Scope(self, settings)

    def scope(self, *, profile: AgentProfile | None = None, hooks: Hooks | None = None) -> Scope:
        """A scope that leaves history as it is outside, and changes how agents run. See `history`."""
        check_call(profile=profile, hooks=hooks)
        return Scope(self, ScopeSettings(profile=profile, hooks=hooks), opens_history=False)

    def capabilities(self, agent: str) -> frozenset[Capability]:
        """What an agent can do here besides taking turns; the rest is refused before a model is asked.

        Raises:
            UnknownAgent: no agent of that name is registered.
        """
        return self.agents[agent].capabilities

    async def lanes(self, conversation_id: str | None = None) -> list[LaneKey]:
        """All lanes, or those of one conversation."""
        return await self.store.index.lanes(conversation_id)

    def workflow_id(self, lane: LaneKey) -> str:
        """The id of a lane's workflow, for whoever looks into Temporal."""
        return self.store.workflow_id(lane)

    def turn(self, lane: LaneKey, turn_id: str) -> Turn:
        """A turn that was submitted before, by this client or another."""
        return Turn(self, lane, check_name(turn_id, what="the turn id"))

    async def turns(self, lane: LaneKey) -> list[TurnRecord]:
        """How each ended turn of a lane ended, in order."""
        return await self.store.records(lane)

    async def messages(self, lane: LaneKey) -> list[Any]:
        """A lane's committed native messages.

        Raises:
            UnknownAgent: the agent is not registered here.
            CheckpointLost, CheckpointCorrupt: they are missing or altered.
        """
        adapter = self.agents[lane.agent]
        head = await self.store.head(lane)
        return [adapter.decode(entry.payload) for entry in await self.store.history(lane, head.checkpoint)]

    async def state(self, lane: LaneKey) -> Mapping[str, Any]:
        """A lane's committed graph state, by channel.

        Raises:
            InvalidInput: the agent is no graph.
            UnknownAgent: the agent is not registered here.
            CheckpointLost, CheckpointCorrupt, StoreError: it is missing or altered.
        """
        adapter = self.agents[lane.agent]
        head = await self.store.whole_head(lane)
        messages = [adapter.decode(entry.payload) for entry in await self.store.history(lane, head.checkpoint)]
        return adapter.state_of(messages, head.extras, head.parts)

    async def status(self, lane: LaneKey) -> LaneStatus:
        """What a lane is doing.

        Raises:
            ServiceUnavailable: Temporal or Redis does not answer, or the lane is open and no worker is there to tell.
        """
        head = await self.store.head(lane)
        view: LaneView | None = None
        try:
            view = await self.temporal.get_workflow_handle(self.workflow_id(lane)).query(
                LANE_STATUS, result_type=LaneView, rpc_timeout=_QUERY_TIMEOUT
            )
            description = await self.temporal.get_workflow_handle(self.workflow_id(lane)).describe(
                rpc_timeout=_QUERY_TIMEOUT
            )
            running = description.close_time is None
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                is_away = error.status is RPCStatusCode.UNAVAILABLE
                what = "Temporal does not answer" if is_away else "no worker answers for the lane"
                raise temporal_unavailable(error, what) from error
            running = False
        except WorkflowQueryFailedError as error:
            raise ServiceUnavailable(f"the lane does not tell what it is doing: {error}") from error
        turn = view.turn if view is not None and running else None
        headroom = tuple((await self.store.accounts.spending(lane, turn)).headroom)
        if view is None or not running:
            return LaneStatus(lane, head.checkpoint, head.version, running=False, headroom=headroom)
        step = view.step
        if view.turn is not None and not view.waiting:
            # The workflow knows the step that the activity began with.
            step = max(step, steps_staged(await self.store.turns.field_names(lane, view.turn)))
        return LaneStatus(
            lane,
            head.checkpoint,
            head.version,
            running=True,
            turn=view.turn,
            step=step,
            queue=tuple(view.queue),
            leaving=tuple(view.leaving),
            cancelling=view.cancelling,
            headroom=headroom,
            waiting=tuple(view.waiting),
            steering=tuple(view.steering),
        )

    # Turns ------------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        lane: LaneKey,
        prompt: bytes,
        *,
        turn_id: str | None = None,
        timeout: timedelta | None = None,
        when_busy: WhenBusy = "enqueue",
        cancel_waiting: bool = False,
        options: TurnOptions | None = None,
    ) -> Turn:
        """Have a lane accept a turn; calls on one lane are accepted in the order in which they were made."""
        turn_id = uuid4().hex if turn_id is None else check_name(turn_id, what="the turn id")
        limit, what = self.settings.max_prompt_bytes, "prompt"
        if prompt.startswith(IMPORT_MARK):
            limit, what = _MAX_IMPORT_BYTES, "history"
        if len(prompt) > limit:
            raise InvalidInput(
                f"the {what} has {len(prompt)} bytes, and at most {limit} are allowed: shorten it"
                + (", or raise LANEWAY_MAX_PROMPT_BYTES" if what == "prompt" else "")
            )
        digest = blake2b(prompt, digest_size=12).hexdigest()
        queued = QueuedTurn(
            turn_id, digest, t=None if timeout is None else timeout.total_seconds(), b=when_busy, w=cancel_waiting
        )
        instruments = self.agents.instruments
        # Nothing is awaited before the lock, which serves in the order of asking.
        nothing: AbstractContextManager[Mapping[str, str]] = nullcontext({})
        with nothing if instruments is None else instruments.submitting(lane, turn_id) as carrier:
            options = replace(options or TurnOptions(), trace=carrier)
            return await self.submissions.submit(lane, queued, prompt, options)

    async def cancel(self, turn: Turn) -> CancelOutcome:
        """See `Turn.cancel`."""
        record = await self.store.record(turn.lane, turn.turn_id)
        if record is None:
            if not await self.store.turns.is_pending(turn.lane, turn.turn_id):
                record = await self.store.record(turn.lane, turn.turn_id)
                return "unknown" if record is None else _CANCELS[record.outcome]
            try:
                await self.temporal.get_workflow_handle(self.workflow_id(turn.lane)).signal(
                    CANCEL_TURN, CancelRequest(turn.turn_id)
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise temporal_unavailable(error, "Temporal did not take the cancellation") from error
                # No workflow is open, so nothing has been accepted; what follows finds that out.
            record = await self._ended(turn)
        return _CANCELS[record.outcome]

    async def holds(self, turn: Turn) -> bool:
        """Whether the turn's lane will end it, as far as can be told: without a worker nobody can."""
        try:
            status = await self.status(turn.lane)
        except ServiceUnavailable:
            return True
        if turn.turn_id in (status.turn, *status.leaving, *status.queue, *status.steering):
            return True
        return await self.store.inputs.is_handed_out(turn.lane, turn.turn_id)

    async def pending(self, lane: LaneKey | None = None) -> list[Pending]:
        """What turns wait for, oldest first: on one lane, or on all."""
        return await (pending_anywhere(self) if lane is None else pending_on(self, lane))

    async def _ended(self, turn: Turn) -> TurnRecord:
        """Wait for a turn to end. Where its lane does not know it, its submit was not accepted: then end it here.

        Redis decides between this and an acceptance that is on its way: a turn that has a record is not run.
        """
        store = self.store
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNHEARD_AFTER_SECONDS):
                    return await turn.record()
            with suppress(ServiceUnavailable):  # no worker is there to tell: the turn may well be known
                status = await self.status(turn.lane)
                if turn.turn_id in (status.turn, *status.leaving, *status.queue, *status.steering):
                    continue
                fields = await store.turns.unfinished(turn.lane, turn.turn_id)
                if "p" in fields:
                    record = TurnRecord(turn.turn_id, "cancelled", fields["p"].decode(), None, time.time())
                    return await store.endings.abort(Fence(turn.lane, turn.turn_id), record, decided=True)


_CANCELS: dict[str, CancelOutcome] = {
    "cancelled": "cancelled",
    "committed": "already_committed",
    "failed": "already_failed",
}
