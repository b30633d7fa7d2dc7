"""Turns wait for Redis where they can, and fail clearly where they cannot; the head is never wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from laneway import Laneway, LocalStack, Settings
from laneway.connect import connect_redis
from laneway.errors import ServiceUnavailable, TurnFailed
from laneway.history.checkpoints import EMPTY, StoredEntry
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.link import Durability
from laneway.history.records import EventKind, LaneEvent, TurnRecord
from laneway.history.store import HistoryStore

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


def _admin(stack: LocalStack) -> Redis:
    """A connection that stays, whatever others may no more."""
    return Redis.from_url(stack.settings.redis_url, single_connection_client=True)


Undo = Callable[[], Awaitable[object]]


async def _stop(stack: LocalStack, admin: Redis) -> Undo:
    await stack.kill_valkey()
    return stack.restart_valkey


async def _demote(stack: LocalStack, admin: Redis) -> Undo:
    await admin.replicaof("127.0.0.1", 1)
    return lambda: admin.replicaof("NO", "ONE")


async def _fill(stack: LocalStack, admin: Redis) -> Undo:
    await admin.config_set("maxmemory", "1")
    return lambda: admin.config_set("maxmemory", "0")


async def _lock_out(stack: LocalStack, admin: Redis) -> Undo:
    await admin.config_set("requirepass", "another")
    await admin.execute_command("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")
    return lambda: admin.config_set("requirepass", "")


async def _keep_busy(stack: LocalStack, admin: Redis) -> Undo:
    await admin.config_set("busy-reply-threshold", "50")
    busy = Redis.from_url(stack.settings.redis_url, socket_timeout=60)
    running = asyncio.create_task(busy.eval("while true do end", 0))
    await asyncio.sleep(0.3)

    async def undo() -> None:
        await admin.script_kill()
        with pytest.raises(ResponseError, match="killed"):
            await running
        await busy.aclose()

    return undo


# A server that was stopped comes back with settings of its own, so it is the last.
TROUBLES = {"a replica": _demote, "full": _fill, "locked": _lock_out, "busy": _keep_busy, "stopped": _stop}


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
async def test_an_answer_that_came_while_redis_was_in_trouble_is_kept_and_not_paid_for_again(
    own_stack: OwnStack, conversation_id: str, appendfsync: str, caplog: pytest.LogCaptureFixture
):
    """The step holds on to it for longer than a client tries to connect, and the worker says once that it waits."""
    paced = Paced()
    app = Laneway(agents=paced.agents())
    async with own_stack() as stack:
        async with _admin(stack) as admin:
            await admin.config_set("appendfsync", appendfsync)
        async with app.worker(stack.settings), app.client(stack.settings) as client:
            conversation = client.conversation(conversation_id)
            for name, begin in TROUBLES.items():
                caplog.clear()
                prompt = f"wait while it is {name}"
                turn = await conversation.submit("agent", prompt)
                await paced.begun[prompt].wait()
                async with _admin(stack) as admin:
                    undo = await begin(stack, admin)
                    paced.release(prompt)
                    await asyncio.sleep(5)
                    await undo()
                assert (await turn.result()).output == f"re: {prompt}"
                said = [one.message for one in caplog.records if one.name == "laneway.history.patience"]
                assert [one.partition(":")[0].partition(",")[0] for one in said] == [
                    "turns wait for Redis",
                    "Redis takes writes again",
                ]
                assert paced.asked == [prompt]
                paced.asked.clear()
            assert len(await conversation.messages("agent")) == 2 * len(TROUBLES)


async def test_a_memory_that_stays_full_fails_the_turn_and_leaves_the_head(
    own_stack: OwnStack, conversation_id: str, monkeypatch: pytest.MonkeyPatch
):
    """Under noeviction a write is refused: the turn says so, and the next one is fine once there is room."""
    monkeypatch.setattr("laneway.history.patience._FULL_FOR", timedelta(seconds=0.5))
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
    await store.inputs.put(lane, "turn", digest="d", prompt=b'"hello"')
    event = LaneEvent(EventKind.TURN_STARTED, "turn")
    loaded = await store.turns.load(Fence(lane, "turn"), held=EMPTY, started=event, retried=event, now=0)
    await store.endings.commit(
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
    monkeypatch.setattr("laneway.history.link._WAIT_FOR_DISK", timedelta(seconds=0.3))
    await redis.config_set("appendfsync", "no")
    try:
        with pytest.raises(ServiceUnavailable, match="did not bring a commit to its disk"):
            await _committed(redis, settings, "auto")
    finally:
        await redis.config_set("appendfsync", "always")
