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

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from laneway.activities.adapter import IMPORT_MARK
from laneway.activities.agents import Agents
from laneway.activities.capabilities import Capability, require
from laneway.activities.hooks import Hooks
from laneway.activities.profiles import AgentProfile
from laneway.activities.turn_scope import TurnScope
from laneway.activities.wire import (
    CANCEL_TURN,
    LANE_STATUS,
    LANE_WORKFLOW,
    SUBMIT_TURN,
    CancelRequest,
    LaneInput,
    LaneLimits,
    LaneView,
    QueuedTurn,
    SubmitReceipt,
    WhenBusy,
)
from laneway.answers import Pending, pending_anywhere, pending_on
from laneway.connect import connect_redis, connect_temporal, interceptors_of
from laneway.errors import InvalidInput, LaneBusy, ServiceUnavailable, TurnConflict
from laneway.history.budget import Headroom, RequestBudget
from laneway.history.callbacks import refuse_reentry
from laneway.history.checkpoints import CheckpointRef
from laneway.history.compaction import Compaction, CompactionReport
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.heads import Fence
from laneway.history.lanes import ONCE, LaneKey, check_conversation, check_name, conversation_of_turn
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.history.scopes import (
    INHERIT,
    CompactionMode,
    CompactionSettings,
    HistoryProcessingSettings,
    Inherit,
)
from laneway.history.store import HistoryStore
from laneway.history.triggers import is_whole
from laneway.scopes import Scope, ScopeSettings, call_here, profile_here, where
from laneway.settings import Settings
from laneway.turns import CancelOutcome, Turn, TurnResult
from laneway.watch import LaneWatch

__all__ = ["Conversation", "LaneStatus", "LanewayClient", "NoHistory"]

Processors: TypeAlias = HistoryProcessor[Any] | str | Sequence[HistoryProcessor[Any] | str]
"""A history processor or its registered name, or several that run in order."""

_ACCEPT_TIMEOUT = timedelta(seconds=30)
# A Redis string holds no more than 512 MB.
_MAX_IMPORT_BYTES = 256 * 1024 * 1024
_QUERY_TIMEOUT = timedelta(seconds=5)
# How long a lane waits for a worker that took its workflow task and died; Temporal's default is 10 s.
_TASK_TIMEOUT = timedelta(seconds=5)
# How long a cancellation may go unanswered before the lane is asked whether it knows the turn at all.
_UNHEARD_AFTER_SECONDS = 2.0
_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
# How Temporal answers while a lane completes or continues as new, while it has too much to do, or where it gave up the
# workflow task that was to take the turn, as it does with one that would continue as new while something comes in.
_PASSING = frozenset(
    {
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.ABORTED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)


@dataclass(frozen=True)
class LaneStatus:
    """What a lane is doing.

    Attributes:
        lane: which.
        head: its committed checkpoint.
        version: how many turns it has committed.
        epoch: its cache epoch.
        running: whether its workflow is open; an idle lane's is not, and the next submit starts it again.
        turn: the turn that runs; None where none does.
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
        self._locks: dict[str, asyncio.Lock] = {}
        self._registered: set[str] = set()
        # Tells this client's submits of a turn from another's.
        self._claim = uuid4().hex[:8]
        self._limits = LaneLimits(
            queue=settings.queue_limit,
            turns=settings.max_turns_per_run,
            idle=settings.idle_timeout.total_seconds(),
            heartbeat=settings.heartbeat_timeout.total_seconds(),
            step=settings.step_timeout.total_seconds(),
        )

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
        return Scope(self, ScopeSettings(profile=profile, hooks=hooks), opens_history=False)

    def capabilities(self, agent: str) -> frozenset[Capability]:
        """What an agent can do here besides taking turns; the rest is refused before a model is asked.

        Raises:
            UnknownAgent: no agent of that name is registered.
        """
        return self.agents[agent].capabilities

    async def lanes(self, conversation_id: str | None = None) -> list[LaneKey]:
        """All lanes, or those of one conversation."""
        return await self.store.lanes(conversation_id)

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
        head = await self.store.head(lane)
        messages = [adapter.decode(entry.payload) for entry in await self.store.history(lane, head.checkpoint)]
        return adapter.state_of(messages, head.extras)

    async def status(self, lane: LaneKey) -> LaneStatus:
        """What a lane is doing.

        Raises:
            ServiceUnavailable: Temporal or Redis does not answer, or the lane is open and no worker is there to tell.
        """
        head = await self.store.head(lane)
        view: LaneView | None = None
        try:
            view = await self.temporal.get_workflow_handle(lane.workflow_id).query(
                LANE_STATUS, result_type=LaneView, rpc_timeout=_QUERY_TIMEOUT
            )
            description = await self.temporal.get_workflow_handle(lane.workflow_id).describe()
            running = description.close_time is None
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise _unavailable(error, "no worker answers for the lane") from error
            running = False
        except WorkflowQueryFailedError as error:
            raise ServiceUnavailable(f"the lane does not tell what it is doing: {error}") from error
        turn = view.turn if view is not None and running else None
        headroom = tuple((await self.store.accounts.spending(lane, turn)).headroom)
        if view is None or not running:
            return LaneStatus(lane, head.checkpoint, head.version, running=False, headroom=headroom)
        return LaneStatus(
            lane,
            head.checkpoint,
            head.version,
            running=True,
            turn=view.turn,
            step=view.step,
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
        turn_id: str | None,
        timeout: timedelta | None,
        when_busy: WhenBusy,
        cancel_waiting: bool,
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
        if timeout is not None and timeout <= timedelta(0):
            raise InvalidInput(f"the timeout is {timeout}: give a positive one, or none")
        digest = blake2b(prompt, digest_size=12).hexdigest()
        queued = QueuedTurn(
            turn_id, digest, t=None if timeout is None else timeout.total_seconds(), b=when_busy, w=cancel_waiting
        )
        instruments = self.agents.instruments
        # Nothing is awaited before the lock, which serves in the order of asking.
        nothing: AbstractContextManager[Mapping[str, str]] = nullcontext({})
        with nothing if instruments is None else instruments.submitting(lane, turn_id) as carrier:
            options = replace(options or TurnOptions(), trace=carrier)
            return await self._submit(lane, queued, prompt, options)

    async def _submit(self, lane: LaneKey, queued: QueuedTurn, prompt: bytes, options: TurnOptions) -> Turn:
        turn_id = queued.id
        async with self._locks.setdefault(lane.lane_id, asyncio.Lock()):
            if lane.lane_id not in self._registered and not lane.is_once:
                await self.store.register(lane)
                self._registered.add(lane.lane_id)
            watcher = self.watch.heard(self.store.names(lane).wake, turn_id)
            known = await self.store.put_input(
                lane,
                turn_id,
                digest=queued.p,
                prompt=prompt,
                claim=self._claim,
                options=options.to_json(),
            )
            if isinstance(known, TurnRecord):
                return Turn(self, lane, turn_id)
            receipt = await self._accept(lane, queued)
        # A turn that was accepted before may have ended before it was listened for.
        return Turn(self, lane, turn_id, since=known, watcher=watcher if receipt.s == "new" else None)

    async def _accept(self, lane: LaneKey, turn: QueuedTurn) -> SubmitReceipt:
        try:
            receipt = await self._update(lane, turn)
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == LaneBusy.code:
                if cause.details and await self.store.record(lane, str(cause.details[0])) is not None:
                    # The turn before it has ended, and its lane is about to hear of it.
                    await asyncio.sleep(_PAUSE_SECONDS)
                    return await self._accept(lane, turn)
                await self.store.drop_input(lane, turn.id, claim=self._claim)
                raise LaneBusy(
                    f"the lane of conversation {lane.conversation!r} with agent {lane.agent!r} did not accept turn "
                    f"{turn.id!r}: {cause.message}. Try again later"
                ) from None
            raise ServiceUnavailable(f"the lane did not accept turn {turn.id!r}: {cause}") from error
        if receipt.s == "conflict":
            raise TurnConflict(f"turn id {turn.id!r} was used with another prompt: give this prompt an id of its own")
        return receipt

    async def _update(self, lane: LaneKey, turn: QueuedTurn) -> SubmitReceipt:
        """Have the lane's workflow take the turn, through what passes by itself."""
        refusal: RPCError | None = None
        pause = _PAUSE_SECONDS
        try:
            async with asyncio.timeout(_ACCEPT_TIMEOUT.total_seconds()):
                while True:
                    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                        LANE_WORKFLOW,
                        LaneInput(lane.conversation, lane.agent, lane.contract, self._limits),
                        id=lane.workflow_id,
                        task_queue=self.settings.task_queue,
                        task_timeout=_TASK_TIMEOUT,
                        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    )
                    try:
                        temporal: Any = self.temporal  # its overload for names leaves types open
                        receipt: SubmitReceipt = await temporal.execute_update_with_start_workflow(
                            SUBMIT_TURN, turn, id=turn.id, start_workflow_operation=start, result_type=SubmitReceipt
                        )
                        return receipt
                    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                        await _hear(start)
                        if isinstance(error.__cause__, asyncio.CancelledError):
                            # The SDK puts this in place of the cancellation of this very task, which has to end it.
                            raise error.__cause__ from None
                        # The server gave up waiting for a worker; it waits for this call's own end.
                        refusal = None
                        await asyncio.sleep(0.05)
                    except RPCError as error:
                        await _hear(start)
                        if error.status not in _PASSING:
                            raise _unavailable(error, "Temporal did not take the turn") from error
                        refusal = error
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            limit = f"{_ACCEPT_TIMEOUT.total_seconds():g} s"
            if refusal is not None:
                what = f"Temporal did not take turn {turn.id!r} within {limit}"
                raise _unavailable(refusal, what) from refusal
            raise ServiceUnavailable(
                f"no worker accepted turn {turn.id!r} within {limit} on task queue {self.settings.task_queue!r}. Start "
                "one (`laneway worker APP`), then submit again with the same turn id"
            ) from None

    async def cancel(self, turn: Turn) -> CancelOutcome:
        """See `Turn.cancel`."""
        record = await self.store.record(turn.lane, turn.turn_id)
        if record is None:
            if not await self.store.is_pending(turn.lane, turn.turn_id):
                record = await self.store.record(turn.lane, turn.turn_id)
                return "unknown" if record is None else _CANCELS[record.outcome]
            try:
                await self.temporal.get_workflow_handle(turn.lane.workflow_id).signal(
                    CANCEL_TURN, CancelRequest(turn.turn_id)
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise _unavailable(error, "Temporal did not take the cancellation") from error
                # No workflow is open, so nothing has been accepted; what follows finds that out.
            record = await self._ended(turn)
        return _CANCELS[record.outcome]

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
                fields = await store.unfinished(turn.lane, turn.turn_id)
                if "p" in fields:
                    record = TurnRecord(turn.turn_id, "cancelled", fields["p"].decode(), None, time.time())
                    return await store.abort(Fence(turn.lane, turn.turn_id), record, decided=True)

    def decode_output(self, agent: str, output: str) -> object:
        """A stored output, of the agent's output type."""
        return self.agents[agent].decode_output(output)


_CANCELS: dict[str, CancelOutcome] = {
    "cancelled": "cancelled",
    "committed": "already_committed",
    "failed": "already_failed",
}


class Conversation:
    """A conversation with the application's agents. Made by `LanewayClient.conversation`."""

    def __init__(self, client: LanewayClient, conversation_id: str, *, budget: RequestBudget | None = None) -> None:
        self._client = client
        self._budget = budget or RequestBudget()
        self.conversation_id = conversation_id

    def __repr__(self) -> str:
        return f"Conversation({self.conversation_id!r})"

    def lane(self, agent: str, *, profile: AgentProfile | None = None) -> LaneKey:
        """The conversation's lane with an agent, under the agent's present contract.

        Args:
            agent: which agent.
            profile: one that it runs under, inside of those of the scopes around: it may have another contract.

        Raises:
            UnknownAgent: no agent of that name is registered.
            ConfigurationError: the agent cannot run under the profile.
        """
        agents = self._client.agents
        return agents.lane(self.conversation_id, agent, profile_here(self._client, agents, profile))

    async def submit(
        self,
        agent: str,
        prompt: Any,
        *,
        turn_id: str | None = None,
        timeout: timedelta | float | None = None,
        when_busy: WhenBusy = "enqueue",
        cancel_waiting: bool = False,
        budget: RequestBudget | None = None,
        profile: AgentProfile | None = None,
    ) -> Turn:
        """Submit a turn, and return once the lane has accepted it: from then on it ends exactly once.

        Args:
            agent: which agent.
            prompt: what the agent's framework takes; for Pydantic AI text, or a sequence with images and documents.
            turn_id: names the turn, so that submitting it again gives the first outcome; by default a new name.
            timeout: how long the turn may take, its waiting included; seconds where it is a number.
            when_busy: where the lane is busy, wait (`enqueue`), raise LaneBusy (`reject`), cancel the turn that runs
                and go next (`interrupt`), or enter the turn that runs before its next model request (`steer`). What
                steers a turn commits with it, and has its output; where that turn ends without it, or not at all well,
                it is a turn of its own, and next.
            cancel_waiting: with `interrupt`, cancel the turns that wait as well.
            budget: what the turn's requests may take; it narrows the adapter's and the conversation's.
            profile: what is different about the agent for this turn, inside of the profiles of the scopes around.

        Raises:
            InvalidInput: the prompt, the turn id or the timeout cannot be one.
            UnknownAgent, LaneBusy, TurnConflict, ServiceUnavailable: see there.
        """
        agents = self._client.agents
        adapter = agents[agent]
        refuse_reentry(adapter)
        call = call_here(self._client, agents, agent, profile=profile)
        lane = agents.lane(self.conversation_id, agent, call.scope.profile)
        blob = adapter.encode_prompt(prompt)
        if isinstance(timeout, int | float):
            timeout = timedelta(seconds=timeout)
        options = replace(call.options, budget=call.budget.narrowed(budget), conversation_budget=self._budget)
        if options.is_budgeted:
            require(adapter, "budgets", agent=agent, what="budget=…")
        return await self._client.submit(
            lane,
            blob,
            turn_id=turn_id,
            timeout=timeout,
            when_busy=when_busy,
            cancel_waiting=cancel_waiting,
            options=options,
        )

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
        """Submit a turn and wait for its result. See `submit` and `Turn.result`."""
        turn = await self.submit(agent, prompt, turn_id=turn_id, timeout=timeout, budget=budget, profile=profile)
        return await turn.result()

    async def compact(
        self, agent: str, *, focus: str | None = None, keep: int = 2, turn_id: str | None = None
    ) -> CompactionReport:
        """Sum up the lane's history now, in place of waiting for a history processor to do it.

        It is a turn of its own, with its place among others: fenced, recorded, its summary paid once. The summary is
        made as the adapter's `SummarizationProcessor` makes it, where there is one, else by the agent's own model, of
        everything.

        Args:
            agent: whose lane.
            focus: what the summary should pay particular attention to.
            keep: how many of the newest messages stay, at least 1; their exchanges stay whole.
            turn_id: see `submit`.

        Returns:
            what happened, or why nothing did.

        Raises:
            InvalidInput: `keep` is no positive int, or the focus is empty.
            TurnFailed: it could not be done: a server, a budget, history that is damaged.
            UnsupportedCapability: the agent's adapter cannot.
            UnknownAgent, TurnConflict, LaneBusy, ServiceUnavailable: see there.
        """
        if not is_whole(keep, least=1):
            raise InvalidInput(f"keep is {keep!r}: give a positive number of messages")
        if focus is not None and not focus.strip():
            raise InvalidInput("the focus is empty: give it some text, or leave it out")
        lane = self.lane(agent)
        adapter = self._client.agents[agent]
        refuse_reentry(adapter)
        require(adapter, "compaction", agent=agent, what="compact()")
        turn = await self._client.submit(
            lane,
            Compaction(focus, keep).to_bytes(),
            turn_id=turn_id,
            timeout=None,
            when_busy="enqueue",
            cancel_waiting=False,
            options=TurnOptions(conversation_budget=self._budget),
        )
        return CompactionReport.of(await turn.committed())

    async def import_messages(
        self, agent: str, messages: Sequence[Any], *, repair: bool = False, turn_id: str | None = None
    ) -> TurnRecord:
        """Open the conversation's lane with a history that was made elsewhere.

        The history is checked whole before anything is written. It is committed as a turn of its own, so it keeps its
        place among others, and the same `turn_id` imports it once.

        Args:
            agent: whose lane.
            messages: native messages, oldest first.
            repair: close unanswered calls, remove results without a call and rename reused call ids, rather than refuse
                them; the record says what was done.
            turn_id: see `submit`.

        Returns:
            the import's record: its checkpoint, and its repairs.

        Raises:
            HistoryProcessingValidationError: the history may not be sent as it is; it has the rule and the index.
            TurnFailed: the lane has a history already.
            UnknownAgent, TurnConflict, LaneBusy, ServiceUnavailable: see there.
        """
        lane = self.lane(agent)
        blob = self._client.agents[agent].encode_import(messages, repair=repair)
        turn = await self._client.submit(
            lane,
            blob,
            turn_id=turn_id,
            timeout=None,
            when_busy="enqueue",
            cancel_waiting=False,
            # It goes to the lane of the profiles around, and by nothing else that they say.
            options=TurnOptions(scope=TurnScope(profile=profile_here(self._client, self._client.agents)).to_data()),
        )
        return await turn.committed()

    def turn(self, agent: str, turn_id: str) -> Turn:
        """A turn that was submitted before."""
        return self._client.turn(self.lane(agent), turn_id)

    async def pending(self, agent: str | None = None) -> list[Pending]:
        """What the conversation's turns wait for: those of one agent, under its present contract, or all of them."""
        lanes = await self._client.lanes(self.conversation_id) if agent is None else [self.lane(agent)]
        return [one for lane in lanes for one in await self._client.pending(lane)]

    async def messages(self, agent: str) -> list[Any]:
        """The committed native messages. See `LanewayClient.messages`."""
        return await self._client.messages(self.lane(agent))

    async def state(self, agent: str) -> Mapping[str, Any]:
        """The committed state of a graph's channels, messages among them. See `LanewayClient.state`."""
        return await self._client.state(self.lane(agent))

    async def status(self, agent: str) -> LaneStatus:
        """What the lane is doing. See `LanewayClient.status`."""
        return await self._client.status(self.lane(agent))


class NoHistory(Conversation):
    """What calls use that keep nothing: each turn has a conversation of its own, which ends with it."""

    def __init__(self, client: LanewayClient) -> None:
        super().__init__(client, ONCE)

    def __repr__(self) -> str:
        return "NoHistory()"

    def lane(self, agent: str, *, profile: AgentProfile | None = None) -> LaneKey:
        """There is none to name.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput("this code is in no history scope, so there is no conversation to look at: name one")

    async def submit(
        self,
        agent: str,
        prompt: Any,
        *,
        turn_id: str | None = None,
        timeout: timedelta | float | None = None,
        when_busy: WhenBusy = "enqueue",
        cancel_waiting: bool = False,
        budget: RequestBudget | None = None,
        profile: AgentProfile | None = None,
    ) -> Turn:
        """Submit a turn that begins without history and leaves none. See `Conversation.submit`.

        What came of it can be read for ten minutes after its end. The same `turn_id` is the same turn for as long.
        """
        turn_id = uuid4().hex if turn_id is None else check_name(turn_id, what="the turn id")
        alone = Conversation(self._client, conversation_of_turn(turn_id))
        return await alone.submit(
            agent,
            prompt,
            turn_id=turn_id,
            timeout=timeout,
            when_busy=when_busy,
            cancel_waiting=cancel_waiting,
            budget=budget,
            profile=profile,
        )

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
        """Submit such a turn, wait for its result, and drop what it left."""
        turn = await self.submit(agent, prompt, turn_id=turn_id, timeout=timeout, budget=budget, profile=profile)
        record = await turn.record()
        try:
            return await turn.result()
        finally:
            await self._client.store.forget(turn.lane, record)


async def _hear(start: WithStartWorkflowOperation[Any, Any]) -> None:
    """Take what the SDK says of a failed start a second time, or asyncio would log that nobody did."""
    with suppress(Exception, asyncio.CancelledError):
        await start.workflow_handle()


def _unavailable(error: RPCError, what: str) -> ServiceUnavailable:
    return ServiceUnavailable(f"{what}: {error.message} ({error.status.name}). Check LANEWAY_TEMPORAL_ADDRESS")
