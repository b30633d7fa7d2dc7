"""A worker by itself, to be killed: `python -m bench.arms.worker SETTINGS`. It says when it runs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from redis.asyncio import Redis

from laneway import HistoryProcessorContext, Laneway, PydanticAdapter, Settings

from bench.script import answer

__all__ = ["CALLS", "app"]

CALLS = "calls"
_HANG_SECONDS = 300


def app(settings: Settings) -> Laneway:
    """Agents whose model notes in Redis when it is asked, by conversation."""
    redis: Any = Redis.from_url(settings.redis_url)
    respond = answer()

    async def note(messages: list[ModelMessage]) -> int:
        key = f"{settings.redis_prefix}:{CALLS}:{messages[-1].conversation_id}"
        return await redis.rpush(key, json.dumps({"at": time.time()}))

    async def noted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await note(messages)
        return cast("ModelResponse", await respond(messages, info))

    async def hangs_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if await note(messages) == 1:
            await asyncio.sleep(_HANG_SECONDS)
        return cast("ModelResponse", await respond(messages, info))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the processor may cost a provider's cached prefix
        brief = PydanticAdapter(Agent(FunctionModel(respond, model_name="bench")), history_processor=_recent)
    return Laneway(
        agents={
            "agent": PydanticAdapter(Agent(FunctionModel(respond, model_name="bench"))),
            "brief": brief,
            "noted": PydanticAdapter(Agent(FunctionModel(noted, model_name="bench"))),
            "hangs_once": PydanticAdapter(Agent(FunctionModel(hangs_once, model_name="bench"))),
        }
    )


def _recent(context: HistoryProcessorContext[ModelMessage]) -> Sequence[ModelMessage]:
    return context.keep_recent_groups(1)


async def main() -> None:
    settings = Settings.model_validate_json(sys.argv[1])
    closed = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(closed), sys.stdin)
    async with app(settings).worker(settings):
        print(time.time(), flush=True)
        await closed.read()  # whoever started it is gone


if __name__ == "__main__":
    asyncio.run(main())
