"""Turns wait for Redis where they can, and fail clearly where they cannot; the head is never wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from laneway import Laneway, LocalStack, Settings
from laneway.connect import connect_redis
from laneway.errors import ServiceUnavailable, TurnFailed
from laneway.history.checkpoints import EMPTY, StoredEntry
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.records import EventKind, LaneEvent, TurnRecord
from laneway.history.store import Durability, HistoryStore

from tests.lanes.agents import Paced, prompts_of

OwnStack = Callable[[], AbstractAsyncContextManager[LocalStack]]


async def test_turns_wait_while_valkey_restarts_and_go_on(own_stack: OwnStack, conversation_id: str):
    """Killed in the middle of a turn, Valkey comes back with all that was acknowledged; no request is asked twice."""
    paced = Paced()
    app = Laneway(agents=paced.agents())
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "before")
        running = await conversation.submit("agent", "wait")
        queued = await conversation.submit("agent", "queued")
        await paced.begun["wait"].wait()
        await stack.kill_valkey()
        paced.release("wait")
        await asyncio.sleep(1)
        await stack.restart_valkey()
        assert (await running.result()).output == "re: wait"
        assert (await queued.result()).output == "re: queued"
        assert prompts_of(await conversation.messages("agent")) == ["before", "wait", "queued"]


async def test_a_full_memory_fails_the_turn_and_leaves_the_head(own_stack: OwnStack, conversation_id: str):
    """Under noeviction a write is refused: the turn says so, and the next one is fine once there is room."""
    paced = Paced()
    app = Laneway(agents=paced.agents())
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        lane = conversation.lane("agent")
        await conversation.ask("agent", "before")
        head = await client.store.head(lane)
        redis = await connect_redis(stack.settings)
        turn = await conversation.submit("agent", "wait")
        await paced.begun["wait"].wait()
        await redis.config_set("maxmemory", "1")
        paced.release("wait")
        with pytest.raises(TurnFailed, match="Redis refused a write") as failed:
            await turn.result()
        assert failed.value.error_type == "StoreFull"
        assert await client.store.head(lane) == head
        await redis.config_set("maxmemory", "0")
        assert (await conversation.ask("agent", "after")).output == "re: after"
        assert prompts_of(await conversation.messages("agent")) == ["before", "after"]
        await redis.aclose()


async def _committed(redis: Redis, settings: Settings, durability: Durability) -> HistoryStore:
    store = HistoryStore(redis, prefix=settings.redis_prefix, durability=durability)
    lane = LaneKey("conversation", "agent", "contract")
    await store.put_input(lane, "turn", digest="d", prompt=b'"hello"')
    event = LaneEvent(EventKind.TURN_STARTED, "turn")
    loaded = await store.load(Fence(lane, "turn"), held=EMPTY, started=event, retried=event, now=0)
    await store.commit(
        Fence(lane, "turn", version=0),
        base=EMPTY,
        after=loaded.stage_checkpoint,
        entries=[StoredEntry(b"{}", {})],
        extras={},
        record=TurnRecord("turn", "committed", "d", None, 0),
    )
    return store


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
async def test_a_commit_that_was_acknowledged_is_on_disk_by_the_servers_own_account(
    redis: Redis, settings: Settings, appendfsync: str
):
    """The server counts what it has synced: right after the commit, nothing of it is outstanding.

    `WAITAOF` answers for the writes of its own connection, so the connection that committed asks, without waiting.
    """
    await redis.config_set("appendfsync", appendfsync)
    single = Redis.from_url(settings.redis_url, max_connections=1)
    try:
        await _committed(single, settings, "auto")
        local, _ = await single.execute_command("WAITAOF", 1, 0, 1)
        assert local == 1
    finally:
        await single.aclose()
        await redis.config_set("appendfsync", "always")


async def test_a_commit_is_not_acknowledged_while_the_server_does_not_sync(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    """With syncing left to the operating system the commit is not taken for durable: an error, not a promise."""
    monkeypatch.setattr("laneway.history.store._WAIT_FOR_DISK", timedelta(seconds=0.3))
    await redis.config_set("appendfsync", "no")
    try:
        with pytest.raises(ServiceUnavailable, match="did not bring a commit to its disk"):
            await _committed(redis, settings, "auto")
    finally:
        await redis.config_set("appendfsync", "always")
