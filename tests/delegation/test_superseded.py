"""Copies of a kept conversation that nothing goes on from any more are not kept for ever, and no other is let go."""

from __future__ import annotations

import asyncio
import json

from redis.asyncio import Redis

from laneway import Delegation, LanewayClient, Turn
from laneway.history.archives import ArchivedItem
from laneway.history.delegation import ChildRef
from laneway.history.lanes import LaneKey

from tests.delegation.agents import Team
from tests.delegation.test_delegation import children_of
from tests.support.bench import Bench

KEEPING = {
    "reader": Delegation("reader", "reads", keep=True),
    "middle": Delegation("middle", "hands on", keep=True),
}


def going_on(name: str, brief: str, child: ChildRef) -> str:
    """A prompt that has a kept conversation gone on with."""
    return f"{name}: {json.dumps({'brief': brief, 'child': child.kept})}"


async def lives(client: LanewayClient, redis: Redis, lane: LaneKey) -> str:
    """Whether what a lane holds is kept `for ever` or `for a while`; all of it, or none."""
    keys = [key async for key in redis.scan_iter(f"{client.store.names(lane).base}*")]
    ends = {await redis.ttl(key) > 0 for key in keys}
    assert len(ends) == 1, f"{keys} are kept alike"
    return "for a while" if ends.pop() else "for ever"


async def settled(client: LanewayClient, turn: Turn) -> None:
    """Wait until the lane has heard of a turn's end: what follows its commit is done by then."""
    async with asyncio.timeout(30):
        while (await client.status(turn.lane)).turn is not None:
            await asyncio.sleep(0.02)


async def only_child(client: LanewayClient, turn: Turn) -> ChildRef:
    await turn.result()
    await settled(client, turn)
    (child,) = await children_of(client, turn)
    return child


async def test_the_copy_before_lives_for_a_while_once_the_next_is_committed(
    bench: Bench, redis: Redis, conversation_id: str
):
    """Not where the turn comes to nothing; and where a worker died after the commit, the next turn sees to it."""
    team = Team(KEEPING)
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    first = await only_child(client, await conversation.submit("lead", "reader: a"))
    lost = await conversation.submit("lead", going_on("reader", "wait c", first))
    await asyncio.wait_for(team.begun["wait c"].wait(), 30)
    await lost.cancel()
    assert await lives(client, redis, first.lane) == "for ever"

    turn = await conversation.submit("lead", going_on("reader", "b", first))
    second = await only_child(client, turn)
    assert (second.kept, second.turns) == (first.kept, 2)
    assert await lives(client, redis, first.lane) == "for a while"
    assert await lives(client, redis, second.lane) == "for ever"

    for key in [key async for key in redis.scan_iter(f"{client.store.names(first.lane).base}*")]:
        await redis.persist(key)  # as if the worker had died before it came to that
    third = await conversation.submit("lead", going_on("reader", "d", second))
    assert "read d after a+b" in str((await third.result()).output)
    await settled(client, third)
    for lane in (first.lane, second.lane):
        assert await lives(client, redis, lane) == "for a while"


async def test_what_a_child_puts_aside_goes_with_the_commit_of_the_root(
    bench: Bench, redis: Redis, conversation_id: str
):
    """The child's own commit is not enough: where the root's turn comes to nothing, it is gone back to."""
    team = Team(KEEPING)
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    middle = await only_child(client, await conversation.submit("lead", "middle: reader: a"))
    record = await client.store.record(middle.lane, middle.turn_id)
    assert record is not None
    (reader,) = record.children

    within = going_on("middle", going_on("reader", "b", reader), middle)
    lost = await conversation.submit("lead", f"{within} | reader: wait c")
    await asyncio.wait_for(team.begun["wait c"].wait(), 30)
    async with asyncio.timeout(30):
        while len((await conversation.status("lead")).waiting) > 1:
            await asyncio.sleep(0.02)
    await lost.cancel()
    assert await lives(client, redis, reader.lane) == "for ever"
    assert await lives(client, redis, middle.lane) == "for ever"

    again = await only_child(client, await conversation.submit("lead", within))
    record = await client.store.record(again.lane, again.turn_id)
    assert record is not None
    (latest,) = record.children
    assert [await lives(client, redis, one.lane) for one in (reader, middle)] == ["for a while"] * 2
    assert [await lives(client, redis, one.lane) for one in (latest, again)] == ["for ever"] * 2


async def test_what_a_run_has_archived_is_there_for_the_next(bench: Bench, redis: Redis, conversation_id: str):
    """A copy holds all that references in its history name."""
    team = Team(KEEPING)
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    first = await only_child(client, await conversation.submit("lead", "reader: a"))
    item = ArchivedItem("result", (b'"all of it"',), "look")
    await redis.hset(client.store.names(first.lane).archive, item.reference, item.to_bytes())
    second = await only_child(client, await conversation.submit("lead", going_on("reader", "b", first)))
    assert await client.store.archives.get(second.lane, item.reference) == item
