"""What a turn may spend: asked before each model request and each batch of tool calls, by every adapter."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from laneway.errors import TurnCancelled
from laneway.history.accounts import Accounts
from laneway.history.budget import BudgetScope, RequestBudget, RequestEstimate, refuse_over_budget
from laneway.history.heads import Fence, TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.options import ParentTurn, TurnOptions

__all__ = ["TurnAccount"]

# Later than any attempt at a step: a turn above is at another step by now.
_DECIDED = 2**31


class TurnAccount:
    """The account of an attempt at a step of a turn. Made of nothing, it is one without limits.

    Args:
        accounts: the store's.
        fence: the attempt.
        budget: the adapter's budget.
        options: what the turn's caller gave.
        above: the accounts of the turns above a delegated one, which count what it spends.
        child: the attempt of a delegated turn that charges it; None where it is the turn's own.
        batch: the step that began the batch of tool calls that this one goes on with; its own where None.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        fence: Fence | None = None,
        *,
        budget: RequestBudget | None = None,
        options: TurnOptions | None = None,
        batch: int | None = None,
        above: Sequence[TurnAccount] = (),
        child: Fence | None = None,
    ) -> None:
        self._at = None if accounts is None or fence is None else (accounts, fence)
        options = options or TurnOptions()
        whole = (budget or RequestBudget()).narrowed(options.budget)
        self._turn = BudgetScope("turn", whole, options.depth)
        self._conversation = BudgetScope("conversation", options.conversation_budget, options.depth)
        self._limits = whole.narrowed(options.conversation_budget)
        self._requests = 0
        self._batch = batch
        self._above = tuple(above)
        self._child = child
        self._prefix = "" if child is None else f"{child.lane.lane_id}:"

    @classmethod
    def of_parent(cls, accounts: Accounts, parent: ParentTurn, *, depth: int, child: Fence, batch: int) -> TurnAccount:
        """The account of a turn above, charged by an attempt at a step of a delegated turn."""
        fence = Fence(parent.lane, parent.turn_id, child.step, _DECIDED)
        options = TurnOptions(parent.budget, parent.conversation_budget, depth)
        return cls(accounts, fence, options=options, batch=batch, child=child)

    def as_parent(self, lane: LaneKey, turn_id: str) -> ParentTurn:
        """What a turn that this one hands work to is to know of its budget."""
        return ParentTurn(lane, turn_id, self._turn.budget, self._conversation.budget)

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget at all."""
        return not self._limits.is_empty or any(one.is_limited for one in self._above)

    @property
    def measures_tokens(self) -> bool:
        """Whether the budget asks for the size of requests."""
        limits = self._limits
        here = limits.max_request_tokens is not None or limits.max_total_input_tokens is not None
        return here or any(one.measures_tokens for one in self._above)

    async def request(self, estimate: RequestEstimate | None, number: int | None = None) -> int:
        """A model request is about to be sent.

        Args:
            estimate: its size; it may be None where not `measures_tokens`.
            number: which request of the attempt it is; the next one where None.

        Returns:
            its number, by which `settle` knows it among others that are under way.

        Raises:
            RequestTooLarge: it is too large.
            BudgetExceeded: there may be no other.
        """
        if number is None:
            self._requests += 1
            number = self._requests
        for one in self._above:
            await one.request(estimate, number)
        limits = self._limits
        if estimate is not None and limits.max_request_tokens is not None:
            refuse_over_budget(estimate, max_request_tokens=limits.max_request_tokens)
        if self._at is None or not limits.counted:
            return number
        # Without a limit of tokens none are reserved, since nobody would settle them: the record's figure counts then.
        reserved = 0 if estimate is None or limits.max_total_input_tokens is None else estimate.input_tokens
        await self._charge("r", {self._name(number): reserved})
        return number

    async def admit(self, input_tokens: int) -> None:
        """A request of Laneway's own, such as for a summary, of about so many tokens is about to be sent.

        Raises:
            RequestTooLarge, BudgetExceeded: see `request`.
        """
        await self.request(RequestEstimate(0, 0, input_tokens))

    async def settle(self, input_tokens: int, number: int | None = None) -> None:
        """A request was answered; its provider says how large it was (0 where it does not).

        Args:
            input_tokens: that.
            number: as `request` gave it; the newest one's where None.
        """
        number = self._requests if number is None else number
        for one in self._above:
            await one.settle(input_tokens, number)
        if self._at is not None and input_tokens and self._limits.max_total_input_tokens is not None:
            accounts, fence = self._at
            with self._parent_ended():
                await accounts.settle(fence, self._name(number), input_tokens)

    async def tool_calls(self, call_ids: Iterable[str], *, are_unique: bool = False) -> None:
        """All tool calls of a response are about to be made. Those of an earlier attempt are not counted again.

        Args:
            call_ids: their ids, in order.
            are_unique: whether each of them is of one call only within the batch of steps; else, since models do reuse
                them, a call is known by its place too.

        Raises:
            BudgetExceeded: there may not be as many more: then none is to be made.
        """
        call_ids = list(call_ids)
        for one in self._above:
            await one.tool_calls(call_ids, are_unique=are_unique)
        if self._at is None or not self._limits.counted:
            return
        step = self._at[1].step if self._batch is None else self._batch
        names = call_ids if are_unique else [f"{place}:{call_id}" for place, call_id in enumerate(call_ids)]
        charges = {f"{self._prefix}{step}:{name}": 0 for name in names}
        if charges:
            await self._charge("t", charges)

    async def _charge(self, kind: Literal["r", "t"], charges: Mapping[str, int]) -> None:
        assert self._at is not None
        accounts, fence = self._at
        with self._parent_ended():
            await accounts.charge(fence, kind, charges, turn=self._turn, conversation=self._conversation)

    @contextmanager
    def _parent_ended(self) -> Generator[None]:
        try:
            yield
        except TurnEnded as ended:
            if self._child is None:
                raise
            raise TurnCancelled(
                f"turn {ended.record.turn_id!r}, which handed out the work, has ended ({ended.record.outcome})",
                turn_id=ended.record.turn_id,
            ) from None

    def _name(self, number: int) -> str:
        assert self._at is not None
        _, fence = self._at
        attempt = fence.attempt if self._child is None else self._child.attempt
        return f"{self._prefix}{fence.step}:{attempt}:{number}"
