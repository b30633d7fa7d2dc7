"""What is charged at once, against the real server: a check and its charge are one thing."""

from __future__ import annotations

import asyncio

import pytest

from laneway import RequestBudget, Settings
from laneway.connect import connect_redis
from laneway.errors import BudgetExceeded
from laneway.history.budget import BudgetScope
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.store import HistoryStore

LANE = LaneKey("conversation", "agent", "c0")


@pytest.mark.parametrize("scope", ["turn", "conversation"])
async def test_charges_at_once_never_pass_a_limit_together(settings: Settings, scope: str):
    """Twenty workers ask for one call each, where five may be made: a read that is followed by a write lets more by."""
    redis = [await connect_redis(settings) for _ in range(20)]
    stores = [HistoryStore(one, prefix=settings.redis_prefix) for one in redis]
    await stores[0].inputs.put(LANE, "turn", digest="d", prompt=b'"hello"')
    five, none = RequestBudget(tool_call_limit=5), RequestBudget()
    turn = BudgetScope("turn", five if scope == "turn" else none)
    conversation = BudgetScope("conversation", five if scope == "conversation" else none)

    async def charge(number: int) -> bool:
        fence = Fence(LANE, "turn", 0, 1)
        try:
            await stores[number].accounts.charge(fence, "t", {f"c{number}": 0}, turn=turn, conversation=conversation)
        except BudgetExceeded:
            return False
        return True

    assert sum(await asyncio.gather(*map(charge, range(20)))) == 5
    spent = (await stores[0].accounts.spending(LANE, "turn")).turn
    assert spent is not None
    assert spent.tool_calls == 5
    await asyncio.gather(*(one.aclose() for one in redis))
