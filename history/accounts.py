"""What turns and conversations have spent: an account of each in Redis, charged before anything is paid.

A charge is checked against the budgets and written in one script, so that parallel calls, and later attempts at a step,
cannot together spend what none of them may. Only turns that have a budget are charged as they go; of the others the
record's figures are added up when they end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway.history.budget import (
    BudgetDimension,
    BudgetScope,
    Headroom,
    RequestBudget,
    Spent,
    exceeded,
    headroom_of,
    scopes_from_json,
    scopes_to_json,
)
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.layout import Answer
from laneway.history.scripts import FENCE, PRESENT, STRICT

if TYPE_CHECKING:
    from laneway.history.link import StoreLink

__all__ = ["Accounts", "LaneSpending"]

# ARGV 8, 9, 10: the turn's limits of requests, tool calls and input tokens, empty where there is none. 11, 12, 13: the
# conversation's. 14, 15: both budgets, for readers; the second is empty where there is none. 16: 'r' for requests, 't'
# for tool calls. 17...: charges, each a field and its input tokens. What was charged before is not charged again. Says
# 'ok' or 'over'.
CHARGE = (
    STRICT
    + FENCE
    + PRESENT
    + """
local mine, all = base .. 'spent:' .. id, base .. 'spent'
local kind, count, tokens, fresh = ARGV[16], 0, 0, {}
for at = 17, #ARGV, 2 do
  if redis.call('HEXISTS', mine, ARGV[at]) == 0 then
    count, tokens = count + 1, tokens + tonumber(ARGV[at + 1])
    fresh[#fresh + 1] = ARGV[at]
    fresh[#fresh + 1] = ARGV[at + 1]
  end
end
if count == 0 then return {'ok'} end
local function over(scope, first, consumed)
  local limit = tonumber(ARGV[first + (kind == 'r' and 0 or 1)])
  if limit and consumed[kind] + count > limit then return {'over', scope, kind, limit, consumed[kind], count} end
  limit = kind == 'r' and tonumber(ARGV[first + 2])
  if limit and consumed.i + tokens > limit then return {'over', scope, 'i', limit, consumed.i, tokens} end
end
local function totals(key)
  local found = redis.call('HMGET', key, 'r', 't', 'i')
  return {r = tonumber(found[1] or 0), t = tonumber(found[2] or 0), i = tonumber(found[3] or 0)}
end
local here, before = totals(mine), totals(all)
local refused = over('turn', 8, here)
  or over('conversation', 11, {r = before.r + here.r, t = before.t + here.t, i = before.i + here.i})
redis.call('HSET', mine, 'b', ARGV[14])
if ARGV[15] ~= '' then redis.call('HSET', all, 'b', ARGV[15]) end
redis.call('EXPIRE', mine, ttl)
if refused then return refused end
redis.call('HSET', mine, unpack(fresh))
redis.call('HINCRBY', mine, kind, count)
redis.call('HINCRBY', mine, 'i', tokens)
return {'ok'}
"""
)

# ARGV 8: a charge's field. 9: the input tokens that were measured, in place of what was reserved. Says 'ok'.
SETTLE = (
    STRICT
    + FENCE
    + """
local mine = base .. 'spent:' .. id
local reserved = redis.call('HGET', mine, ARGV[8])
if reserved then
  redis.call('HSET', mine, ARGV[8], ARGV[9])
  redis.call('HINCRBY', mine, 'i', tonumber(ARGV[9]) - tonumber(reserved))
end
return {'ok'}
"""
)

_DIMENSIONS: Mapping[str, BudgetDimension] = {
    "r": "request_limit",
    "t": "tool_call_limit",
    "i": "max_total_input_tokens",
}


@dataclass(frozen=True)
class LaneSpending:
    """What a lane has spent, and may spend.

    Attributes:
        total: what all turns that have ended spent.
        conversation: the budget that the conversation was given last, if any.
        turn: what the turn that runs has spent; None where none runs or it has no budget.
        turn_budget: what that turn goes by.
    """

    total: Spent
    conversation: BudgetScope | None = None
    turn: Spent | None = None
    turn_budget: BudgetScope | None = None

    @property
    def headroom(self) -> list[Headroom]:
        """What is left of each limit: of the turn that runs, and of the conversation."""
        found: list[Headroom] = []
        if self.turn is not None and self.turn_budget is not None:
            found += headroom_of(self.turn_budget, self.turn)
        if self.conversation is not None:
            found += headroom_of(self.conversation, self.total + (self.turn or Spent()))
        return found


class Accounts:
    """The accounts of all lanes. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._charge: Any = link.script(CHARGE)
        self._settle: Any = link.script(SETTLE)

    async def charge(
        self, fence: Fence, kind: str, charges: Mapping[str, int], *, turn: BudgetScope, conversation: BudgetScope
    ) -> None:
        """Count requests (`r`) or tool calls (`t`), all of them or none.

        Args:
            fence: who makes them.
            kind: what they are.
            charges: the input tokens of each, by a name that is its own within the turn; one that was charged before
                is not charged again.
            turn: the turn's budget.
            conversation: the conversation's.

        Raises:
            BudgetExceeded: a budget forbids them. Nothing was charged.
            TurnEnded, StaleTurn: as for every write.
        """
        scopes = {"turn": turn, "conversation": conversation}
        answer, *rest = await self._link.run(
            self._charge,
            fence,
            *(limit for scope in scopes.values() for limit in _limits(scope.budget)),
            scopes_to_json([turn]),
            "" if conversation.budget.is_empty else scopes_to_json([conversation]),
            kind,
            *(value for name, tokens in charges.items() for value in (f"{kind}:{name}", tokens)),
        )
        if answer == Answer.OVER:
            scope, dimension, limit, consumed, asked = rest
            found = scopes[scope.decode()]
            raise exceeded(
                found.name,
                _DIMENSIONS[dimension.decode()],
                limit=int(limit),
                consumed=int(consumed),
                asked=int(asked),
                depth=found.depth,
            )

    async def settle(self, fence: Fence, name: str, input_tokens: int) -> None:
        """Put what a request took in place of what was reserved for it."""
        await self._link.run(self._settle, fence, f"r:{name}", input_tokens)

    async def spending(self, lane: LaneKey, turn_id: str | None = None) -> LaneSpending:
        """What a lane has spent, and a turn that runs on it."""
        names = self._link.names(lane)
        total, _, budget = _read(await self._link.ask(self._link.redis.hmget(names.spent, "r", "t", "i", "b")))
        if turn_id is None:
            return LaneSpending(total, budget)
        fields = await self._link.ask(self._link.redis.hmget(names.spent_of(turn_id), "r", "t", "i", "b"))
        spent, is_there, turn_budget = _read(fields)
        return LaneSpending(total, budget, spent if is_there else None, turn_budget)


def _limits(budget: RequestBudget) -> Sequence[str]:
    return [
        "" if (limit := budget.counted.get(dimension)) is None else str(limit) for dimension in _DIMENSIONS.values()
    ]


def _read(fields: Sequence[bytes | None]) -> tuple[Spent, bool, BudgetScope | None]:
    requests, tool_calls, tokens, scopes = fields
    spent = Spent(int(requests or 0), int(tool_calls or 0), int(tokens or 0))
    found = scopes_from_json(scopes) if scopes else ()
    return spent, scopes is not None, found[0] if found else None
