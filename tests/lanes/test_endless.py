"""A lane lives as long as it is needed."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


async def test_continue_as_new_with_a_full_queue_and_cancellations_loses_nothing(bench: Bench, conversation_id: str):
    """Every third turn a new run, turns waiting, cancels on their way: one outcome each, in order."""
    paced = Paced()
    client = await bench.serve(paced.agents(), max_turns_per_run=3)
    conversation = client.conversation(conversation_id)

    async def submit(n: int) -> tuple[str, str]:
        turn = await conversation.submit("agent", f"turn {n}", turn_id=f"t{n}")
        if n % 7 == 3:
            await turn.cancel()
        record = await turn.record()
        return f"turn {n}", record.outcome

    outcomes = await asyncio.gather(*(submit(n) for n in range(80)))
    committed = [prompt for prompt, outcome in outcomes if outcome == "committed"]
    assert len(outcomes) == 80
    assert len(committed) >= 80 - 12
    assert prompts_of(await conversation.messages("agent")) == committed
    records = await client.turns(conversation.lane("agent"))
    assert sorted(record.turn_id for record in records) == sorted(f"t{n}" for n in range(80))
    assert (await conversation.status("agent")).version == len(committed)
    lane_runs = f"WorkflowId = '{client.workflow_id(conversation.lane('agent'))}'"
    runs = [run async for run in client.temporal.list_workflows(lane_runs)]
    assert len(runs) >= 10 or len(runs) == 0  # visibility may lag; the histories above are the proof


async def test_an_idle_lane_completes_and_starts_again_with_the_next_submit(bench: Bench, conversation_id: str):
    """A thousand submits at about the moment in which their lanes complete: each runs, none twice."""
    paced = Paced()
    client = await bench.serve(paced.agents(), idle_timeout=timedelta(seconds=1))
    chance = random.Random(20261130)

    async def converse(name: str) -> None:
        conversation = client.conversation(f"{conversation_id}-{name}")
        for n in range(10):
            result = await conversation.ask("agent", f"{name}:{n}")
            assert result.output == f"re: {name}:{n}"
            # The lane completes a second after its last turn.
            await asyncio.sleep(0.9 + 0.3 * chance.random())
        assert prompts_of(await conversation.messages("agent")) == [f"{name}:{n}" for n in range(10)]

    await asyncio.gather(*(converse(str(lane)) for lane in range(100)))
    assert len(paced.asked) == len(set(paced.asked)) == 1000


async def test_a_lane_continues_as_new_when_temporal_suggests_it(bench: Bench, conversation_id: str):
    """Long before the count says so, Temporal finds the history long enough: after some 4,000 events.

    How many turns that takes depends on how many of them share a workflow task, and so on how fast the machine is.
    """
    paced = Paced()
    client = await bench.serve(paced.agents(), max_turns_per_run=5000, queue_limit=500)
    conversation = client.conversation(conversation_id)
    handle = client.temporal.get_workflow_handle(client.workflow_id(conversation.lane("agent")))
    count, is_continued = 0, False
    while not is_continued and count < 2000:
        prompts = [f"turn {n}" for n in range(count, count + 200)]
        turns = await asyncio.gather(*(conversation.submit("agent", prompt) for prompt in prompts))
        await asyncio.gather(*(turn.result() for turn in turns))
        count += len(prompts)
        first = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        is_continued = bool(first.continued_execution_run_id)
    assert is_continued
    assert paced.asked == [f"turn {n}" for n in range(count)]
