"""What a turn may spend: asked before each model request and each batch of tool calls, by every adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from laneway.history.accounts import Accounts
from laneway.history.budget import BudgetScope, RequestBudget, RequestEstimate, refuse_over_budget
from laneway.history.heads import Fence
from laneway.history.options import TurnOptions

__all__ = ["TurnAccount"]


class TurnAccount:
    """The account of an attempt at a step of a turn. Made of nothing, it is one without limits.

    Args:
        accounts: the store's.
        fence: the attempt.
        budget: the adapter's budget.
        options: what the turn's caller gave.
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
    ) -> None:
        self._at = None if accounts is None or fence is None else (accounts, fence)
        options = options or TurnOptions()
        whole = (budget or RequestBudget()).narrowed(options.budget)
        self._turn = BudgetScope("turn", whole, options.depth)
        self._conversation = BudgetScope("conversation", options.conversation_budget, options.depth)
        self._limits = whole.narrowed(options.conversation_budget)
        self._requests = 0
        self._batch = batch

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget at all."""
        return not self._limits.is_empty

    @property
    def measures_tokens(self) -> bool:
        """Whether the budget asks for the size of requests."""
        limits = self._limits
        return limits.max_request_tokens is not None or limits.max_total_input_tokens is not None

    async def request(self, estimate: RequestEstimate | None) -> None:
        """A model request is about to be sent.

        Args:
            estimate: its size; it may be None where not `measures_tokens`.

        Raises:
            RequestTooLarge: it is too large.
            BudgetExceeded: there may be no other.
        """
        limits = self._limits
        if estimate is not None and limits.max_request_tokens is not None:
            refuse_over_budget(estimate, max_request_tokens=limits.max_request_tokens)
        if self._at is None or not limits.counted:
            return
        self._requests += 1
        # Without a limit of tokens none are reserved, since nobody would settle them: the record's figure counts then.
        reserved = 0 if estimate is None or limits.max_total_input_tokens is None else estimate.input_tokens
        await self._charge("r", {self._name: reserved})

    async def admit(self, input_tokens: int) -> None:
        """A request of Laneway's own, such as for a summary, of about so many tokens is about to be sent.

        Raises:
            RequestTooLarge, BudgetExceeded: see `request`.
        """
        await self.request(RequestEstimate(0, 0, input_tokens))

    async def settle(self, input_tokens: int) -> None:
        """The request was answered; its provider says how large it was (0 where it does not)."""
        if self._at is not None and input_tokens and self._limits.max_total_input_tokens is not None:
            accounts, fence = self._at
            await accounts.settle(fence, self._name, input_tokens)

    async def tool_calls(self, call_ids: Iterable[str]) -> None:
        """All tool calls of a response are about to be made. Those of an earlier attempt are not counted again.

        Raises:
            BudgetExceeded: there may not be as many more: then none is to be made.
        """
        if self._at is None or not self._limits.counted:
            return
        step = self._at[1].step if self._batch is None else self._batch
        charges = {f"{step}:{place}:{call_id}": 0 for place, call_id in enumerate(call_ids)}
        if charges:
            await self._charge("t", charges)

    async def _charge(self, kind: Literal["r", "t"], charges: Mapping[str, int]) -> None:
        assert self._at is not None
        accounts, fence = self._at
        await accounts.charge(fence, kind, charges, turn=self._turn, conversation=self._conversation)

    @property
    def _name(self) -> str:
        assert self._at is not None
        _, fence = self._at
        return f"{fence.step}:{fence.attempt}:{self._requests}"
