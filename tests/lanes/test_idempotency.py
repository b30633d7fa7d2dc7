"""The same turn id gives the first outcome and runs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from laneway import Laneway, LocalStack
from laneway.errors import TurnCancelled, TurnConflict, TurnFailed
from laneway.workflows.queue import LEDGER_LENGTH

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


async def test_a_repeated_submit_gives_the_first_outcome_at_every_point_of_a_turn(
    bench: Bench, conversation_id: str, paced: Paced
):
    """While it waits, while it runs, after commit, failure and cancellation."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    first = await conversation.submit("agent", "wait", turn_id="one")
    await paced.begun["wait"].wait()
    queued = await conversation.submit("agent", "queued", turn_id="two")
    again = [
        await conversation.submit("agent", "wait", turn_id="one"),
        await conversation.submit("agent", "queued", turn_id="two"),
    ]
    for other in ("one", "two"):
        with pytest.raises(TurnConflict, match=repr(other)):
            await conversation.submit("agent", "another prompt", turn_id=other)
    paced.release("wait")
    assert [(await turn.result()).output for turn in (first, queued, *again)] == ["re: wait", "re: queued"] * 2
    repeated = await conversation.ask("agent", "wait", turn_id="one")
    assert repeated == await first.result()
    failed = await conversation.submit("agent", "fail", turn_id="three")
    await failed.record()
    with pytest.raises(TurnFailed, match="cannot answer"):
        await conversation.ask("agent", "fail", turn_id="three")
    cancelled = await conversation.submit("agent", "wait 2", turn_id="four")
    await paced.begun["wait 2"].wait()
    await cancelled.cancel()
    with pytest.raises(TurnCancelled):
        await conversation.ask("agent", "wait 2", turn_id="four")
    with pytest.raises(TurnConflict):
        await conversation.submit("agent", "another prompt", turn_id="four")
    assert paced.asked == ["wait", "queued", "fail", "wait 2"]


async def test_two_clients_that_submit_the_same_turn_at_once_run_it_once(
    bench: Bench, conversation_id: str, paced: Paced
):
    one = await bench.serve(paced.agents())
    two = await bench.client(paced.agents())
    for n in range(10):
        results = await asyncio.gather(
            *(c.conversation(conversation_id).ask("agent", f"turn {n}", turn_id=f"t{n}") for c in (one, two, one, two))
        )
        assert {result.output for result in results} == {f"re: turn {n}"}
    assert paced.asked == [f"turn {n}" for n in range(10)]


async def test_a_turn_is_known_after_continue_as_new_and_after_the_lane_idled_out(
    bench: Bench, conversation_id: str, paced: Paced
):
    """Temporal has forgotten the update ids by then; the lane's ledger and its records have not."""
    from datetime import timedelta

    client = await bench.serve(
        paced.agents(), max_turns_per_run=2, min_run_time=timedelta(0), idle_timeout=timedelta(seconds=1)
    )
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    for n in range(5):
        await conversation.ask("agent", f"turn {n}", turn_id=f"t{n}")
    for n in range(5):
        assert (await conversation.ask("agent", f"turn {n}", turn_id=f"t{n}")).output == f"re: turn {n}"
    await client.temporal.get_workflow_handle(client.workflow_id(lane)).result()
    for n in range(5):
        assert (await conversation.ask("agent", f"turn {n}", turn_id=f"t{n}")).output == f"re: turn {n}"
        with pytest.raises(TurnConflict):
            await conversation.ask("agent", "another prompt", turn_id=f"t{n}")
    assert len(paced.asked) == 5


async def test_a_turn_beyond_the_ledger_is_known_by_its_record(bench: Bench, conversation_id: str):
    """A lane whose workflow has forgotten a turn id runs nothing for it either, though it accepts it."""
    paced = Paced()
    client = await bench.serve(paced.agents(), queue_limit=1000)
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    await conversation.ask("agent", "old", turn_id="old")
    turns = await asyncio.gather(*(conversation.submit("agent", "more") for _ in range(LEDGER_LENGTH + 5)))
    await turns[-1].result()
    # Straight to the workflow, as a client would that had looked for the record before the turn's commit.
    from laneway.activities.wire import QueuedTurn

    digest = next(record.prompt_digest for record in await client.turns(lane) if record.turn_id == "old")
    receipt = await client.submissions.update(lane, QueuedTurn("old", digest))
    assert receipt.s == "new"
    assert (await conversation.ask("agent", "after")).output == "re: after"
    assert paced.asked.count("old") == 1
    assert prompts_of(await conversation.messages("agent")).count("old") == 1


async def test_a_turn_is_known_after_all_servers_were_restarted(
    own_stack: Callable[[], AbstractAsyncContextManager[LocalStack]], conversation_id: str
):
    paced = Paced()
    app = Laneway(agents=paced.agents())
    for start in range(2):
        async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
            conversation = client.conversation(conversation_id)
            assert (await conversation.ask("agent", "hello", turn_id="one")).output == "re: hello"
            assert (await conversation.ask("agent", f"start {start}")).output == f"re: start {start}"
    assert paced.asked == ["hello", "start 0", "start 1"]
