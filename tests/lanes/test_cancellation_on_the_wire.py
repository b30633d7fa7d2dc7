"""A cancellation reaches the HTTP request: the provider sees the connection close."""

from __future__ import annotations

import time

import pytest

from tests.support.bench import Bench
from tests.support.provider import reply, stall
from tests.wire.providers import APIS, FRAMEWORKS, Api, Framework, wire


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("at", ["start", "body"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_the_provider_sees_the_connection_close_within_two_seconds(
    bench: Bench, conversation_id: str, api: Api, at: str, stream: bool, framework: Framework
):
    """Before the answer begins and in the middle of it; then the next turn is asked as if this one had never been."""
    async with wire(lambda request: reply(f"re: {request.prompt}")) as running:
        client = await bench.serve({"agent": running.adapter(api, stream=stream, framework=framework)})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "first")
        running.server.fail(stall(at=at), times=1)
        turn = await conversation.submit("agent", "never")
        request = await running.server.wait_for_request(2)
        cancelled_at = time.monotonic()
        assert await turn.cancel() == "cancelled"
        await request.closed()
        assert time.monotonic() - cancelled_at < 2
        assert not request.completed
        assert (await conversation.ask("agent", "second")).output == "re: second"
        assert "never" not in str(running.server.requests[-1].body)
