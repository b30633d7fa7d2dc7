"""A lane lives as long as it is needed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from temporalio.api.history.v1 import HistoryEvent

from laneway import LanewayClient
from laneway.history.lanes import LaneKey

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


async def test_continue_as_new_with_a_full_queue_and_cancellations_loses_nothing(bench: Bench, conversation_id: str):
    """Every third turn a new run, turns waiting, cancels on their way: one outcome each, in order."""
    paced = Paced()
    client = await bench.serve(paced.agents(), max_turns_per_run=3, min_run_time=timedelta(0))
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


async def _runs(client: LanewayClient, lane: LaneKey) -> list[Sequence[HistoryEvent]]:
    """The events of each run of a lane's workflow since it last began, the oldest first."""
    runs: list[Sequence[HistoryEvent]] = []
    run_id = None
    while run_id != "":
        handle = client.temporal.get_workflow_handle(client.workflow_id(lane), run_id=run_id)
        runs.insert(0, (await handle.fetch_history()).events)
        run_id = runs[0][0].workflow_execution_started_event_attributes.continued_execution_run_id
    return runs


def _begins_with(run: Sequence[HistoryEvent]) -> list[str]:
    """The turns that a run was handed."""
    (given,) = run[0].workflow_execution_started_event_attributes.input.payloads
    return [turn["id"] for turn in json.loads(given.data).get("queue", ())]


def _accepted_in(run: Sequence[HistoryEvent]) -> int:
    return sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in run)


async def test_a_lane_continues_as_new_with_its_next_turn(bench: Bench, conversation_id: str):
    """Which is accepted before: one that arrived while the workflow continues would be refused, and come late."""
    client = await bench.serve(Paced().agents(), max_turns_per_run=3, min_run_time=timedelta(0))
    conversation = client.conversation(conversation_id)
    for n in range(6):
        await (await conversation.submit("agent", f"turn {n}", turn_id=f"t{n}")).result()
    assert len(await _runs(client, conversation.lane("agent"))) == 2, "there is nothing to continue with"
    await (await conversation.submit("agent", "turn 6", turn_id="t6")).result()
    runs = await _runs(client, conversation.lane("agent"))
    assert [_begins_with(run) for run in runs] == [[], ["t3"], ["t6"]]
    # The turn that a run hands on was accepted by it.
    assert [_accepted_in(run) for run in runs] == [4, 3, 0]


async def test_a_run_lasts_as_long_as_temporal_wants(bench: Bench, conversation_id: str):
    """After a shorter one the server begins the next late, by up to a second."""
    client = await bench.serve(Paced().agents(), max_turns_per_run=3)
    conversation = client.conversation(conversation_id)
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < 3 or count < 12:
        await conversation.ask("agent", f"turn {count}")
        count += 1
    runs = await _runs(client, conversation.lane("agent"))
    assert len(runs) >= 2
    for run, following in pairwise(runs):
        assert run[-1].event_time.ToNanoseconds() - run[0].event_time.ToNanoseconds() >= 1e9
        assert not following[0].workflow_execution_started_event_attributes.first_workflow_task_backoff.ToNanoseconds()


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
