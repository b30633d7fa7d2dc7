"""A client hears of its turns also after Redis was away for longer than a command is sent again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from laneway import Laneway, LocalStack

from tests.lanes.agents import Paced

# Redis commands are sent again for some 3 s.
_OUTAGE_S = 6.0
_QUIET_S = 30.0


@pytest.mark.timeout(300)
async def test_a_turns_end_is_heard_at_once_after_a_long_outage_of_redis(
    own_stack: Callable[[], AbstractAsyncContextManager[LocalStack]], conversation_id: str
):
    """Not only when the client looks for itself, every 30 s."""
    paced = Paced()
    app = Laneway(agents=paced.agents())
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "before")
        await stack.kill_valkey()
        await asyncio.sleep(_OUTAGE_S)
        await stack.restart_valkey()
        await asyncio.sleep(2.0)
        turn = await conversation.submit("agent", "wait for it")
        waiting = asyncio.create_task(turn.result())
        async with asyncio.timeout(60):
            await paced.begun["wait for it"].wait()
        await asyncio.sleep(0.5)
        paced.release("wait for it")
        begun = time.monotonic()
        assert (await waiting).output == "re: wait for it"
        assert time.monotonic() - begun < _QUIET_S / 3
