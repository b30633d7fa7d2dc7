"""The smallest example runs as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
