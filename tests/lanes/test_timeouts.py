"""A turn's timeout covers its steps and its waiting."""

from __future__ import annotations

import pytest

from laneway.errors import TurnTimedOut

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


async def test_a_turn_that_runs_too_long_fails_as_timed_out_and_leaves_nothing(
    bench: Bench, conversation_id: str, paced: Paced
):
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "wait", timeout=0.5)
    with pytest.raises(TurnTimedOut, match=r"its timeout of 0.5 s passed while it ran"):
        await turn.result()
    assert paced.cancelled == ["wait"]
    assert (await conversation.ask("agent", "next", timeout=30)).output == "re: next"
    assert prompts_of(await conversation.messages("agent")) == ["next"]


async def test_waiting_in_the_queue_counts(bench: Bench, conversation_id: str, paced: Paced):
    """A turn whose time passes while another runs ends there and then, without being asked."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    running = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    queued = await conversation.submit("agent", "hurried", timeout=0.5)
    with pytest.raises(TurnTimedOut, match="in the queue"):
        await queued.result()
    paced.release("wait")
    await running.result()
    assert paced.asked == ["wait"]
