"""A cancellation reaches the HTTP requests of a whole tree: the provider sees each connection close."""

from __future__ import annotations

import time

import pytest

from laneway import Delegation

from tests.delegation.agents import Team
from tests.delegation.test_across import lead as graph_lead
from tests.delegation.test_delegation import dropped, running_below
from tests.support.bench import Bench
from tests.support.provider import reply, stall
from tests.wire.providers import FRAMEWORKS, Framework, wire


@pytest.mark.parametrize("child", FRAMEWORKS)
@pytest.mark.parametrize("parent", FRAMEWORKS)
async def test_the_provider_sees_the_connections_of_children_and_of_theirs_close(
    bench: Bench, conversation_id: str, parent: Framework, child: Framework
):
    """One child asks by itself, another one's child does."""
    async with wire(lambda request: reply(f"re: {request.prompt}")) as running:
        team = Team({"reader": Delegation("reader", "reads"), "graph": Delegation("middle", "hands on")})
        agents = team.agents()
        agents["lead"] = graph_lead() if parent == "langchain" else agents["lead"]
        agents["reader"] = running.adapter("messages", stream=True, framework=child)
        # What hands on to the same reader is of the other framework than the lead.
        agents["middle"] = agents["lead"] if parent == "pydantic_ai" else team.agents()["middle"]
        agents["graph"] = agents["middle"]
        client = await bench.serve(agents)
        conversation = client.conversation(conversation_id)
        running.server.fail(stall(at="body"), times=2)
        turn = await conversation.submit("lead", "reader: never | graph: reader: neither")
        requests = [await running.server.wait_for_request(number) for number in (1, 2)]
        cancelled_at = time.monotonic()
        assert await turn.cancel() == "cancelled"
        for request in requests:
            await request.closed()
            assert not request.completed
        assert time.monotonic() - cancelled_at < 5
        assert await dropped(client, turn) == ["cancelled", "cancelled"]
        assert await running_below(client, turn) == []
        again = await conversation.ask("lead", "reader: now")
        assert again.output == "success: re: now"
        assert len(running.server.requests) == 3
