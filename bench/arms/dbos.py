"""Pydantic AI on DBOS, with the history in Valkey: the workflow is given a conversation and a length, no messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from laneway.connect import connect_redis

from bench.arms.base import Place
from bench.arms.plain import SavedHistory
from bench.script import PROMPT, answer

__all__ = ["by_reference"]


class ByReference:
    def __init__(self, saved: SavedHistory) -> None:
        agent = Agent(FunctionModel(answer(), model_name="bench"), name="bench", capabilities=[DBOSDurability()])
        self._saved = saved
        self.stored = saved.stored

        @DBOS.step()
        async def append(lane: str, length: int, messages: list[object]) -> None:
            # A step that runs again must not append again.
            if await saved.length(lane) == length:
                await saved.append(lane, messages)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        @DBOS.workflow()
        async def ask(lane: str, length: int) -> str:
            # A prefix never changes, so reading it is deterministic, and need not be recorded.
            result = await agent.run(PROMPT, message_history=await saved.load(lane, length))
            await append(lane, length, list(result.new_messages()))
            return result.output

        self._ask = ask

    async def turn(self, lane: str) -> None:
        await self._ask(lane, await self._saved.length(lane))


@asynccontextmanager
async def by_reference(place: Place) -> AsyncIterator[ByReference]:
    """DBOS on a sqlite file, which is what it has without Postgres."""
    redis = await connect_redis(place.settings)
    config = DBOSConfig(name="bench", system_database_url=f"sqlite:///{place.folder / 'dbos.sqlite'}")
    DBOS(config=config)
    arm = ByReference(SavedHistory(redis, place.settings.redis_prefix))
    DBOS.launch()
    try:
        yield arm
    finally:
        DBOS.destroy()
        await redis.aclose()
