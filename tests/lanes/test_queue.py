"""What a busy lane does with another turn."""

from __future__ import annotations

import asyncio

import pytest

from laneway.errors import LaneBusy, TurnCancelled

from tests.lanes.agents import Paced
from tests.support.bench import Bench
from tests.support.contents import events_in


async def test_reject_raises_lane_busy_and_leaves_no_event(bench: Bench, conversation_id: str):
    """`when_busy="reject"` is refused by the update's validator: neither Temporal nor Redis keeps anything of it."""
    paced = Paced()
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    running = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    before = await events_in(client, client.workflow_id(lane))
    with pytest.raises(LaneBusy, match="busy"):
        await conversation.submit("agent", "now", turn_id="now", when_busy="reject")
    assert await events_in(client, client.workflow_id(lane)) == before
    assert not await client.store.turns.is_pending(lane, "now")
    paced.release("wait")
    await running.result()
    assert (await (await conversation.submit("agent", "now", when_busy="reject")).result()).output == "re: now"


async def test_a_full_queue_refuses_without_an_event(bench: Bench, conversation_id: str):
    """The queue limit counts the turns that wait, not the one that runs."""
    paced = Paced()
    client = await bench.serve(paced.agents(), queue_limit=3)
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    turns = [await conversation.submit("agent", "wait")]
    await paced.begun["wait"].wait()
    turns += [await conversation.submit("agent", f"turn {n}") for n in range(3)]
    before = await events_in(client, client.workflow_id(lane))
    with pytest.raises(LaneBusy, match="3 turns wait already, the limit is 3"):
        await conversation.submit("agent", "one too many")
    assert await events_in(client, client.workflow_id(lane)) == before
    paced.release("wait")
    outputs = [(await turn.result()).output for turn in turns]
    assert outputs == ["re: wait", "re: turn 0", "re: turn 1", "re: turn 2"]
    assert "one too many" not in paced.asked


async def test_interrupt_cancels_what_runs_and_goes_next(bench: Bench, conversation_id: str):
    """The turn that ran is cancelled, the one that interrupts goes before those that wait, which stay."""
    paced = Paced()
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    running = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    waiting = await conversation.submit("agent", "later")
    urgent = await conversation.submit("agent", "urgent", when_busy="interrupt")
    assert (await urgent.result()).output == "re: urgent"
    assert (await waiting.result()).output == "re: later"
    with pytest.raises(TurnCancelled):
        await running.result()
    assert paced.asked == ["wait", "urgent", "later"]
    assert paced.cancelled == ["wait"]


async def test_interrupt_can_cancel_what_waits_as_well(bench: Bench, conversation_id: str):
    """With `cancel_waiting` only the turn that interrupts remains."""
    paced = Paced()
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    turns = [await conversation.submit("agent", "wait")]
    await paced.begun["wait"].wait()
    turns += [await conversation.submit("agent", f"turn {n}") for n in range(5)]
    urgent = await conversation.submit("agent", "urgent", when_busy="interrupt", cancel_waiting=True)
    assert (await urgent.result()).output == "re: urgent"
    records = await asyncio.gather(*(turn.record() for turn in turns))
    assert {record.outcome for record in records} == {"cancelled"}
    assert paced.asked == ["wait", "urgent"]
