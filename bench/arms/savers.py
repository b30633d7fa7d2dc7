"""LangGraph by itself, with checkpoint savers, `durability="sync"`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from redis.asyncio import Redis

from laneway.connect import connect_redis

from bench.arms.base import Place
from bench.script import PROMPT, graph_builder

__all__ = ["laneway_saver", "memory_saver", "plainredis_saver", "sqlite_saver"]


class Saver:
    """A graph on a checkpointer.

    Args:
        checkpointer: the saver.
        bytes_stored: what all that it holds takes: keys, values, and the server's own overhead where it tells.
    """

    def __init__(self, checkpointer: Any, bytes_stored: Callable[[], Awaitable[int]]) -> None:
        self._graph = graph_builder().compile(checkpointer=checkpointer)
        self._bytes_stored = bytes_stored

    async def turn(self, lane: str) -> None:
        await self._graph.ainvoke({"messages": [HumanMessage(PROMPT)]}, _config(lane), durability="sync")

    async def held(self) -> int:
        """What the saver holds of all conversations."""
        return await self._bytes_stored()

    async def stored(self, lane: str) -> dict[str, int]:
        """Every message once, as LangGraph's serializer writes it; and what the saver holds, of all conversations."""
        serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
        state = await self._graph.aget_state(_config(lane))
        own = sum(len(serializer.dumps_typed(message)[1]) for message in state.values["messages"])
        return {"own": own, "all": await self._bytes_stored()}


def _config(lane: str) -> Any:
    return {"configurable": {"thread_id": lane}}


async def used_memory(redis: Redis, pattern: str) -> int:
    """What the server's memory holds for keys, its own overhead included."""
    client: Any = redis
    return sum([await client.memory_usage(key, samples=0) or 0 async for key in client.scan_iter(pattern, count=1000)])


@asynccontextmanager
async def memory_saver(place: Place) -> AsyncIterator[Saver]:
    """`InMemorySaver`: nothing is durable."""
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()

    async def bytes_stored() -> int:
        blobs = sum(len(data) for _, data in saver.blobs.values())
        writes = sum(len(value[1]) for of in saver.writes.values() for *_, value, _ in of.values())
        rows = [row for namespaces in saver.storage.values() for rows in namespaces.values() for row in rows.values()]
        return blobs + writes + sum(len(checkpoint[1]) + len(metadata[1]) for checkpoint, metadata, _ in rows)

    yield Saver(saver, bytes_stored)


@asynccontextmanager
async def laneway_saver(place: Place) -> AsyncIterator[Saver]:
    """Laneway's own saver, without a lane."""
    from laneway.langgraph import RedisSaver

    redis, prefix = await connect_redis(place.settings), place.settings.redis_prefix
    try:
        async with RedisSaver.from_url(place.settings.redis_url, prefix=prefix) as saver:
            yield Saver(saver, lambda: used_memory(redis, f"{prefix}*"))
    finally:
        await redis.aclose()


@asynccontextmanager
async def sqlite_saver(place: Place) -> AsyncIterator[Saver]:
    """`langgraph-checkpoint-sqlite`, on a file."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    path = place.folder / "checkpoints.sqlite"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:

        async def bytes_stored() -> int:
            await saver.setup()
            await saver.conn.commit()
            await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return path.stat().st_size

        yield Saver(saver, bytes_stored)


@asynccontextmanager
async def plainredis_saver(place: Place) -> AsyncIterator[Saver]:
    """`langgraph-checkpoint-plainredis`, on the same Valkey."""
    from langgraph_checkpoint_plainredis import AsyncRedisSaver

    redis, prefix = await connect_redis(place.settings), place.settings.redis_prefix
    try:
        yield Saver(AsyncRedisSaver(redis, prefix=prefix), lambda: used_memory(redis, f"{prefix}*"))
    finally:
        await redis.aclose()
