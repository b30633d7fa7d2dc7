"""What the children of a turn that came to nothing have written goes with it, for good."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from laneway import Delegation

from tests.delegation.agents import Team
from tests.delegation.test_delegation import children_of, dropped
from tests.support.bench import Bench


async def test_nothing_of_a_dropped_child_is_kept_for_ever(bench: Bench, redis: Redis, conversation_id: str):
    """And a step that wakes after that, and would give a child its kept conversation again, brings nothing back."""
    team = Team({"reader": Delegation("reader", "reads", keep=True)})
    client = await bench.serve({name: one for name, one in team.agents().items() if name != "middle"})
    conversation = client.conversation(conversation_id)
    first = await conversation.submit("lead", "reader: a")
    await first.result()
    (kept,) = await children_of(client, first)
    again = f'reader: {{"brief": "b", "child": "{kept.kept}"}}'
    turn = await conversation.submit("lead", f"{again} | reader: wait c")
    await asyncio.wait_for(team.begun["wait c"].wait(), 30)
    async with asyncio.timeout(30):
        while len((await conversation.status("lead")).waiting) > 1:
            await asyncio.sleep(0.02)
    await turn.cancel()
    assert await dropped(client, turn) == ["committed", "cancelled"]
    gone = (await children_of(client, turn))[0]
    await client.store.fork(kept.lane, gone.lane)
    assert (await client.store.head(gone.lane)).version == 0
    for child in await children_of(client, turn):
        keys = [key async for key in redis.scan_iter(f"{client.store.names(child.lane).base}*")]
        assert keys
        assert all([await redis.ttl(key) > 0 for key in keys])
    indexes = [key async for key in redis.scan_iter(f"{bench.settings.redis_prefix}:conversation:*")]
    assert sorted([await redis.ttl(key) > 0 for key in indexes]) == [False, False, True, True]
