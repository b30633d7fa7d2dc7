"""The small examples run as they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laneway.history.requests import approve

from examples.langchain_support import app as langchain_app
from examples.support import app

if TYPE_CHECKING:
    from laneway import Settings


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Where is order 7?", "It left the warehouse this morning."),
        ("And order 8?", "It waits for its payment."),
        ("And order 9?", "I find no such order: is the number right?"),
        ("Hello!", "I can tell you where an order is: give me its number."),
    ],
)
async def test_the_support_agent_answers_offline(
    settings: Settings, conversation_id: str, prompt: str, answer: str
) -> None:
    async with app.worker(settings), app.client(settings) as client:
        result = await client.conversation(conversation_id).ask("support", prompt)
    assert str(result.output).strip() == answer


async def test_the_langchain_agent_answers_offline_and_asks_before_it_cancels(
    settings: Settings, conversation_id: str
) -> None:
    async with langchain_app.worker(settings), langchain_app.client(settings) as client:
        conversation = client.conversation(conversation_id)
        for prompt, answer in (
            ("Where is order 7?", "Your order left the warehouse this morning."),
            ("Hello!", "I can tell you where an order is, or cancel it: give me its number."),
        ):
            assert (await conversation.ask("support", prompt)).output == answer
        turn = await conversation.submit("support", "Cancel order 8!")
        async with asyncio.timeout(30):
            while not (pending := await turn.pending()):
                await asyncio.sleep(0.02)
        await turn.answer(pending[0].request.id, approve())
        assert (await turn.result()).output == "Your order was cancelled, number 8."
