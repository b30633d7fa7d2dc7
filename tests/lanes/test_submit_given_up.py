"""A caller who gives up waiting for a lane to accept a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from laneway import Laneway, PydanticAdapter

if TYPE_CHECKING:
    from laneway import Settings


async def test_a_submit_that_no_worker_takes_ends_when_its_task_is_cancelled(
    settings: Settings, conversation_id: str
) -> None:
    app = Laneway(agents={"agent": PydanticAdapter(Agent(TestModel()))})
    async with app.client(settings) as client:
        submit = asyncio.create_task(client.conversation(conversation_id).submit("agent", "Hello"))
        await asyncio.sleep(1)
        submit.cancel()
        await asyncio.wait([submit], timeout=60)
        assert submit.cancelled()
