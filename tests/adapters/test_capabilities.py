"""For each thing that an adapter may not be able to do there is what asks for it, and it is refused by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from redis.asyncio import Redis

from laneway import (
    AgentProfile,
    Conversation,
    Delegation,
    Hooks,
    Laneway,
    LanewayClient,
    PydanticAdapter,
    RequestBudget,
    approve,
)
from laneway.activities.capabilities import CAPABILITIES
from laneway.errors import ConfigurationError, UnsupportedCapability

from examples.plain_adapter import Message, PlainAdapter
from tests.scopes import named
from tests.support.bench import Bench

ASKED: list[str] = []


async def answer(messages: Any) -> Message:
    """Answers, and writes it down."""
    ASKED.append(messages[-1]["text"])
    return {"role": "assistant", "text": "fine"}


class Leading(PlainAdapter):
    """Would hand work on, if it could wait for it."""

    def __init__(self) -> None:
        super().__init__(answer, name="lead")
        self.delegates = {"reader": Delegation("bare", "Reads.")}


def bare(kind: type[PlainAdapter] = PlainAdapter) -> PlainAdapter:
    return kind(answer, name="bare")


async def edited(client: LanewayClient, conversation: Conversation) -> None:
    async with client.history(processor=named.keep_one):
        await client.ask("bare", "one")


async def compacted_by_the_provider(client: LanewayClient, conversation: Conversation) -> None:
    async with client.history(compaction_mode="native"):
        await client.ask("bare", "one")


async def hooked_in_a_scope(client: LanewayClient, conversation: Conversation) -> None:
    async with client.scope(hooks=Hooks(before_model_request=named.keep_one)):
        await client.ask("bare", "one")


async def handing_on(client: LanewayClient, conversation: Conversation) -> None:
    Laneway(agents={"bare": bare(), "lead": Leading()})


async def hooked_around_tools(client: LanewayClient, conversation: Conversation) -> None:
    Laneway(agents={"bare": bare()}, hooks=Hooks(after_tool=named.keep_one))


Ask = Callable[[LanewayClient, Conversation], Awaitable[object]]

REFUSED: dict[str, Ask] = {
    "approval": lambda client, conversation: conversation.turn("bare", "t").answer("r", approve()),
    "budgets": lambda client, conversation: conversation.ask("bare", "one", budget=RequestBudget(request_limit=1)),
    "compaction": lambda client, conversation: conversation.compact("bare"),
    "delegation": handing_on,
    "history_processing": edited,
    "hooks": hooked_in_a_scope,
    "native_compaction": compacted_by_the_provider,
    "profiles": lambda client, conversation: conversation.ask("bare", "one", profile=AgentProfile(instructions="Hi.")),
    "tool_hooks": hooked_around_tools,
}
"""What asks for each capability, of an agent whose adapter has none."""

TOLD = frozenset({"streaming"})
"""What no call asks for: whoever reads a turn's events is told by the client whether text is among them."""


def test_every_capability_is_asked_for_or_told() -> None:
    assert set(REFUSED) | TOLD == CAPABILITIES
    assert not set(REFUSED) & TOLD


@pytest.mark.parametrize("capability", sorted(REFUSED))
async def test_what_an_adapter_cannot_do_is_refused_before_anything_is_submitted(
    bench: Bench, redis: Redis, capability: str
) -> None:
    """By the capability's name and the agent's, with what the adapter has; nothing is written, and nobody is asked."""
    ASKED.clear()
    client = await bench.client({"bare": bare()})
    assert client.capabilities("bare") == frozenset()
    with pytest.raises(UnsupportedCapability, match=f"needs the capability '{capability}', which agent '") as refused:
        await REFUSED[capability](client, client.conversation("c"))
    assert "(adapter 'plain' has: none). Nothing was sent" in str(refused.value)
    assert [key async for key in redis.scan_iter(match=f"{bench.settings.redis_prefix}:*")] == []
    assert ASKED == []


async def test_what_asks_for_nothing_is_taken(bench: Bench, conversation_id: str) -> None:
    """A turn and its events, without text as it comes."""
    client = await bench.serve({"bare": bare()})
    turn = await client.conversation(conversation_id).submit("bare", "one")
    assert (await turn.result()).output == "fine"
    assert await turn.pending() == []
    assert "turn.committed" in [event.kind async for event in turn.events()]


def test_a_model_that_cannot_stream_is_not_made_to() -> None:
    """Where the adapter is made, and not by each of its turns."""
    silent = Agent(FunctionModel(lambda messages, info: ModelResponse([TextPart("fine")])))
    with pytest.raises(ConfigurationError, match="stream is True.*cannot stream"):
        PydanticAdapter(silent, stream=True)
    PydanticAdapter(silent)
