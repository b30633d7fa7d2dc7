"""What of OpenAI's own state outlives an edit, seen on the wire."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from laneway import HistoryProcessorContext, PydanticAdapter

from tests.support.bench import Bench
from tests.support.clients import openai_client
from tests.support.provider import ProviderServer

Sdk = Callable[[ProviderServer], AsyncOpenAI]


@pytest.fixture
async def sdk() -> AsyncIterator[Sdk]:
    """Makes SDK clients, and closes them after the test."""
    made: list[AsyncOpenAI] = []

    def make(server: ProviderServer) -> AsyncOpenAI:
        made.append(openai_client(server))
        return made[-1]

    yield make
    for client in made:
        await client.close()


def _adapter(client: AsyncOpenAI, processor: Any = None, **settings: Any) -> PydanticAdapter[None, str]:
    model = OpenAIResponsesModel(
        "gpt-5.2",
        provider=OpenAIProvider(openai_client=client),
        settings=OpenAIResponsesModelSettings(**settings),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return PydanticAdapter(Agent(model), history_processor=processor)


class EditOnce:
    """Drops all that may go, before the turn whose prompt says so."""

    def __call__(self, ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
        return ctx.keep_recent_groups(0) if "forget" in str(ctx.messages[-1]) else ctx.messages


async def test_a_response_id_is_used_while_history_grows_dropped_after_an_edit_and_used_again_from_a_new_answer(
    bench: Bench, conversation_id: str, sdk: Sdk
):
    """`previous_response_id` is the newest answer's, never one from before the edit."""
    async with ProviderServer() as server:
        client = await bench.serve({"agent": _adapter(sdk(server), EditOnce(), openai_previous_response_id="auto")})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "forget", "four", "five"):
            await conversation.ask("agent", prompt)
        answers = [record.answer_id for record in server.requests]
        used = [record.body.get("previous_response_id") for record in server.requests]
        assert used == [None, answers[0], None, answers[2], answers[3]]


async def test_a_fixed_response_id_is_never_sent_again_after_an_edit(bench: Bench, conversation_id: str, sdk: Sdk):
    """The caller's setting names it still; it continues a history that is no more."""
    async with ProviderServer() as server:
        seed = await _adapter(sdk(server)).agent.run("seed")
        fixed = seed.all_messages()[-1].provider_response_id
        settings = {"openai_previous_response_id": fixed}
        client = await bench.serve({"agent": _adapter(sdk(server), EditOnce(), **settings)})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "forget", "four", "forget again", "six"):
            await conversation.ask("agent", prompt)
        used = [record.body.get("previous_response_id") for record in server.requests[1:]]
        answers = [record.answer_id for record in server.requests[1:]]
        assert used == [fixed, answers[0], None, answers[2], None, answers[4]]
        assert settings == {"openai_previous_response_id": fixed}


async def test_the_cache_key_is_the_lane_and_its_epoch_unless_the_caller_set_one(
    bench: Bench, conversation_id: str, sdk: Sdk
):
    async with ProviderServer() as server:
        own = _adapter(sdk(server), openai_prompt_cache_key="mine")
        client = await bench.serve({"agent": _adapter(sdk(server), EditOnce()), "own": own})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "forget", "four"):
            await conversation.ask("agent", prompt)
        await conversation.ask("own", "one")
        keys = [record.body.get("prompt_cache_key") for record in server.requests]
        assert keys[0] == keys[1] != keys[2] == keys[3]
        assert keys[0].split(":")[0] == keys[2].split(":")[0] == conversation.lane("agent").lane_id
        assert keys[4] == "mine"


@pytest.mark.parametrize("setting", ["auto", "fixed"])
async def test_a_server_owned_conversation_is_never_used_again_after_an_edit(
    bench: Bench, conversation_id: str, sdk: Sdk, setting: str
):
    """The provider holds the messages that the edit took away: going on in it would send them."""
    async with ProviderServer() as server:
        owned = (await sdk(server).conversations.create()).id if setting == "fixed" else None
        given = owned or "auto"
        client = await bench.serve({"agent": _adapter(sdk(server), EditOnce(), openai_conversation_id=given)})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "forget", "four"):
            await conversation.ask("agent", prompt)
        used = [record.body.get("conversation") for record in server.requests if record.path.endswith("/responses")]
        assert used == [owned, owned, None, None]
