"""Turns are accepted and committed in the order in which their callers wrote them."""

from __future__ import annotations

import asyncio

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


async def test_turns_submitted_at_once_are_committed_in_source_order(bench: Bench, conversation_id: str, paced: Paced):
    """The order of the calls is the order of the lane, beyond Temporal's limit of 10 updates in flight."""
    count = 200 if paced.framework == "pydantic_ai" else 50
    client = await bench.serve(paced.agents(), queue_limit=500)
    conversation = client.conversation(conversation_id)
    turns = await asyncio.gather(*(conversation.submit("agent", f"turn {n}", turn_id=f"t{n}") for n in range(count)))
    results = await asyncio.gather(*(turn.result() for turn in turns))
    assert [result.output for result in results] == [f"re: turn {n}" for n in range(count)]
    records = await client.turns(conversation.lane("agent"))
    assert [record.turn_id for record in records] == [f"t{n}" for n in range(count)]
    assert prompts_of(await conversation.messages("agent")) == [f"turn {n}" for n in range(count)]
    assert paced.asked == [f"turn {n}" for n in range(count)]


async def test_each_of_two_clients_keeps_its_own_order_on_one_lane(bench: Bench, conversation_id: str, paced: Paced):
    """Turns of two clients may mix; those of each one stay in order."""
    one = await bench.serve(paced.agents())
    two = await bench.client(paced.agents())
    turns = await asyncio.gather(
        *(
            client.conversation(conversation_id).submit("agent", f"{name} {n}")
            for n in range(30)
            for name, client in (("one", one), ("two", two))
        )
    )
    await asyncio.gather(*(turn.result() for turn in turns))
    asked = paced.asked
    assert len(asked) == 60
    for name in ("one", "two"):
        assert [prompt for prompt in asked if prompt.startswith(name)] == [f"{name} {n}" for n in range(30)]


async def test_a_lane_does_not_wait_for_another(bench: Bench, conversation_id: str, paced: Paced):
    """While one lane's model takes its time, other conversations and other agents of the same one go on."""
    client = await bench.serve({"agent": paced.adapter(), "other": paced.adapter()})
    conversation = client.conversation(conversation_id)
    slow = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    other_agent = await conversation.ask("other", "quick")
    other_conversation = await client.conversation(f"{conversation_id}-2").ask("agent", "quick too")
    assert (other_agent.output, other_conversation.output) == ("re: quick", "re: quick too")
    paced.release("wait")
    assert (await slow.result()).output == "re: wait"
