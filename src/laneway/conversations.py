"""A conversation with agents: what its caller asks of its lanes, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from laneway.activities.archive_transfer import checked_archives, with_archives
from laneway.activities.capabilities import require
from laneway.activities.profiles import AgentProfile
from laneway.activities.turn_scope import TurnScope
from laneway.activities.wire import WhenBusy
from laneway.answers import Pending
from laneway.arguments import check_call, check_timeout, check_when_busy
from laneway.errors import InvalidInput
from laneway.history.budget import RequestBudget
from laneway.history.callbacks import refuse_reentry
from laneway.history.compaction import Compaction, CompactionReport
from laneway.history.lanes import ONCE, LaneKey, check_name, conversation_of_turn
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.history.triggers import is_whole
from laneway.scopes import call_here, profile_here
from laneway.turns import Turn, TurnResult

if TYPE_CHECKING:
    from laneway.client import LaneStatus, LanewayClient

__all__ = ["Conversation", "NoHistory"]


class Conversation:
    """A conversation with the application's agents. Made by `LanewayClient.conversation`."""

    def __init__(self, client: LanewayClient, conversation_id: str, *, budget: RequestBudget | None = None) -> None:
        check_call(budget=budget)
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
        check_call(budget=budget, profile=profile)
        if not isinstance(cast("object", cancel_waiting), bool):
            raise InvalidInput(f"cancel_waiting is {cancel_waiting!r}: give True or False")
        turn_id, conversation_id = self._place(turn_id)
        agents = self._client.agents
        adapter = agents[agent]
        refuse_reentry(adapter)
        call = call_here(self._client, agents, agent, profile=profile)
        lane = agents.lane(conversation_id, agent, call.scope.profile)
        blob = adapter.encode_prompt(prompt)
        timeout, when_busy = check_timeout(timeout), check_when_busy(when_busy)
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
        return await self._result(turn)

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
        if focus is not None and not (isinstance(cast("object", focus), str) and focus.strip()):
            raise InvalidInput(f"the focus is {focus!r}: give it some text, or leave it out")
        lane = self.lane(agent)
        adapter = self._client.agents[agent]
        refuse_reentry(adapter)
        require(adapter, "compaction", agent=agent, what="compact()")
        turn = await self._client.submit(
            lane,
            Compaction(focus, keep).to_bytes(),
            turn_id=turn_id,
            options=TurnOptions(conversation_budget=self._budget),
        )
        return CompactionReport.of(await turn.committed())

    async def import_messages(
        self,
        agent: str,
        messages: Sequence[Any],
        *,
        repair: bool = False,
        archives: Mapping[str, bytes] | None = None,
        turn_id: str | None = None,
    ) -> TurnRecord:
        """Open the conversation's lane with a history that was made elsewhere.

        The history is checked whole before anything is written. It is committed as a turn of its own, so it keeps its
        place among others, and the same `turn_id` imports it once.

        Args:
            agent: whose lane.
            messages: native messages, oldest first.
            repair: close unanswered calls, remove results without a call and rename reused call ids, rather than refuse
                them; the record says what was done.
            archives: what references in the history name, as `archives` gave it where the history comes from; without
                it the model is told that there is no such archive here.
            turn_id: see `submit`.

        Returns:
            the import's record: its checkpoint, and its repairs.

        Raises:
            HistoryProcessingValidationError: the history may not be sent as it is; it has the rule and the index.
            InvalidInput: an archive was altered, or is of another framework.
            TurnFailed: the lane has a history already.
            UnknownAgent, TurnConflict, LaneBusy, ServiceUnavailable: see there.
        """
        lane = self.lane(agent)
        adapter = self._client.agents[agent]
        archived = checked_archives({} if archives is None else archives, adapter)
        blob = with_archives(adapter.encode_import(messages, repair=repair), archived)
        turn = await self._client.submit(
            lane,
            blob,
            turn_id=turn_id,
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

    async def archives(self, agent: str) -> dict[str, bytes]:
        """All that the lane has archived, by reference, for `import_messages` elsewhere."""
        return await self._client.store.archives.all_of(self.lane(agent))

    async def state(self, agent: str) -> Mapping[str, Any]:
        """The committed state of a graph's channels, messages among them. See `LanewayClient.state`."""
        return await self._client.state(self.lane(agent))

    async def status(self, agent: str) -> LaneStatus:
        """What the lane is doing. See `LanewayClient.status`."""
        return await self._client.status(self.lane(agent))

    def _place(self, turn_id: str | None) -> tuple[str | None, str]:
        """The id that a turn gets, None for a new one, and the conversation that it is in."""
        return turn_id, self.conversation_id

    async def _result(self, turn: Turn) -> TurnResult[Any]:
        return await turn.result()


class NoHistory(Conversation):
    """What calls use that keep nothing: each turn has a conversation of its own, which ends with it.

    What came of a turn that was submitted can be read for ten minutes after its end, and the same `turn_id` is the same
    turn for as long; what `ask` leaves is dropped once its result is there.
    """

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

    def _place(self, turn_id: str | None) -> tuple[str | None, str]:
        turn_id = uuid4().hex if turn_id is None else check_name(turn_id, what="the turn id")
        return turn_id, conversation_of_turn(turn_id)

    async def _result(self, turn: Turn) -> TurnResult[Any]:
        """A turn's result; what the turn left is dropped."""
        record = await turn.record()
        try:
            return await turn.result()
        finally:
            await self._client.store.endings.forget(turn.lane, record)
