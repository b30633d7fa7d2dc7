"""Pydantic AI by itself, with the history in Valkey: what an application does that has no durable execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import FunctionModel

from laneway.connect import connect_redis

from bench.arms.base import Place
from bench.script import PROMPT, answer

__all__ = ["SavedHistory", "plain"]

_message: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage)


class SavedHistory:
    """Conversations as lists of messages in Valkey."""

    def __init__(self, redis: Any, prefix: str) -> None:
        self._redis, self._prefix = redis, prefix

    async def load(self, lane: str, length: int = -1) -> list[ModelMessage]:
        """The first `length` messages; all of them by default."""
        end = -1 if length < 0 else length - 1
        blobs = [] if length == 0 else await self._redis.lrange(f"{self._prefix}:{lane}", 0, end)
        return [_message.validate_json(blob) for blob in blobs]

    async def length(self, lane: str) -> int:
        return await self._redis.llen(f"{self._prefix}:{lane}")

    async def append(self, lane: str, messages: list[ModelMessage]) -> None:
        await self._redis.rpush(f"{self._prefix}:{lane}", *map(_message.dump_json, messages))

    async def stored(self, lane: str) -> dict[str, int]:
        """The messages' own bytes, and what Valkey's memory holds for them."""
        blobs = await self._redis.lrange(f"{self._prefix}:{lane}", 0, -1)
        return {
            "own": sum(map(len, blobs)),
            "all": await self._redis.memory_usage(f"{self._prefix}:{lane}", samples=0) or 0,
        }


class Plain:
    def __init__(self, saved: SavedHistory) -> None:
        self._saved = saved
        self._agent = Agent(FunctionModel(answer(), model_name="bench"))
        self.stored = saved.stored

    async def turn(self, lane: str) -> None:
        history = await self._saved.load(lane)
        result = await self._agent.run(PROMPT, message_history=history)
        await self._saved.append(lane, result.new_messages())


@asynccontextmanager
async def plain(place: Place) -> AsyncIterator[Plain]:
    """`agent.run` between a read and an append."""
    redis = await connect_redis(place.settings)
    try:
        yield Plain(SavedHistory(redis, place.settings.redis_prefix))
    finally:
        await redis.aclose()
