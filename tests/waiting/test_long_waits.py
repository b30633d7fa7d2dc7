"""A turn waits for as long as it takes: servers restart meanwhile, and prompts behind it last as long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from redis.asyncio import Redis

from laneway import Laneway, LocalStack, approve

from tests.support.bench import Bench
from tests.waiting.agents import Office
from tests.waiting.test_answers import waiting


async def test_a_turn_that_waits_outlives_restarts_of_both_servers(
    own_stack: Callable[[], AbstractAsyncContextManager[LocalStack]], conversation_id: str
):
    office = Office()
    app = Laneway(agents={"agent": office.adapter()})
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        turn = await conversation.submit("agent", "plain(a) send(b)")
        asked = (await waiting(turn))["send"].request
        queued = await conversation.submit("agent", "plain(c)")
        steering = await conversation.submit("agent", "plain(d)", when_busy="steer")
        await stack.kill_temporal()
        await stack.kill_valkey()
        await stack.restart_valkey()
        await stack.restart_temporal()
        assert [one.request.id for one in await client.pending()] == [asked.id]
        await turn.answer(asked.id, approve())
        assert (await turn.result()).output == (await queued.result()).output == "done"
        assert (await steering.result()).steered_into == turn.turn_id
        assert office.ran == ["plain a", "send b", "plain d", "plain c"]
        assert office.asked == 5


async def test_prompts_queued_before_the_wait_began_last_as_long_as_it(
    bench: Bench, redis: Redis, conversation_id: str
):
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    names = client.store.names(lane)
    await client.store.inputs.put(lane, "queued", digest="d", prompt=b'"hello"', claim="me")
    assert await redis.ttl(names.turn("queued")) > 0
    first = await conversation.submit("agent", "send(a)")
    asked = (await waiting(first))["send"].request
    assert await redis.ttl(names.turn("queued")) == -1
    await client.store.inputs.drop(lane, "queued", claim="me")
    behind = await conversation.submit("agent", "send(b)")
    assert await redis.ttl(names.turn(behind.turn_id)) == -1
    await first.answer(asked.id, approve())
    await waiting(behind)
    assert await behind.cancel() == "cancelled"
    assert await redis.exists(names.base + "open", names.waits) == 0
