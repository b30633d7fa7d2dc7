"""A worker is killed at each boundary of delegating and of waiting: one outcome, and no child twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from laneway import Settings, approve

from tests.delegation.test_delegation import children_of, running_below
from tests.support.bench import Bench
from tests.support.ledgered import agents
from tests.support.stops import Stops, lines
from tests.support.workers import WorkerNursery, WorkerProcess
from tests.waiting.test_answers import waiting

# Where the worker dies, and how often the helper's model is asked in all.
_PLACES = [
    ("before s1", 1),  # the lead's batch is done, and nobody knows what it waits for
    ("after s1", 1),  # it is staged, and no child has started
    ("helper", 2),  # the child runs
    ("before commit", 2),  # the child has its answer, and its output is not kept
    ("after commit", 1),  # the child has ended, and its parent does not know
    ("", 1),  # the child is done, and a person is waited for
    ("before load:2", 1),  # all is answered
]
# A graph's model is not asked again once it has answered: what its nodes write is kept before the commit.
KILLS = [
    *(("lead", place, helped) for place, helped in _PLACES),
    *(("graph lead", place, helped) for place, helped in _PLACES),
    *(
        ("lead of graphs", place, helped)
        for place, helped in [("helper", 2), ("before commit", 1), ("after commit", 1)]
    ),
]


@pytest.mark.parametrize(("lead", "place", "helped"), KILLS, ids=str)
async def test_a_delegating_turn_survives_the_death_of_its_worker(
    nursery: WorkerNursery,
    quick: Settings,
    bench: Bench,
    conversation_id: str,
    tmp_path: Path,
    lead: str,
    place: str,
    helped: int,
):
    """A lead and a helper of one framework and of both."""
    bench.settings = quick
    folder = tmp_path / "worker"
    ledger = folder / "ledger"
    asks = "tools" if lead == "graph lead" else "sign"  # an interrupt is named by its node
    client = await bench.client(agents(ledger, Stops()))
    conversation = client.conversation(conversation_id)
    async with WorkerProcess(nursery, folder, quick, stop=place or None) as worker:
        turn = await conversation.submit(lead, "go")
        if place == "before load:2":
            await turn.answer((await waiting(turn, 2))[asks].request.id, approve())
        if place:
            assert await worker.stopped() == place
        else:
            asked = await waiting(turn, 2)
            async with asyncio.timeout(30):
                while (await conversation.status(lead)).waiting != (asked[asks].request.id,):
                    await asyncio.sleep(0.05)
        worker.kill()
    if place != "before load:2":
        # Answers need no worker, once the turn waits.
        pending = {one.request.name: one for one in await turn.pending()}
        if asks in pending:
            await turn.answer(pending[asks].request.id, approve())
    await bench.worker(agents(ledger, Stops()))
    if place == "before s1":
        await turn.answer((await waiting(turn, 2))[asks].request.id, approve())
    assert (await turn.result()).output == "helped and signed"
    done = Counter(lines(ledger))
    assert done == {"lead asked 0": 1, "helper asked": helped, "signed": 1, "lead asked 2": 1}
    (child,) = await children_of(client, turn)
    assert [record.outcome for record in await client.turns(child.lane)] == ["committed"]
    assert await running_below(client, turn) == []


async def test_a_tool_that_must_not_run_twice_does_not_and_the_record_says_so(
    nursery: WorkerNursery, quick: Settings, bench: Bench, conversation_id: str, tmp_path: Path
):
    bench.settings = quick
    folder = tmp_path / "worker"
    ledger = folder / "ledger"
    client = await bench.client(agents(ledger, Stops()))
    conversation = client.conversation(conversation_id)
    async with WorkerProcess(nursery, folder, quick, stop="pay") as worker:
        turn = await conversation.submit("payer", "go")
        assert await worker.killed() == "pay"
    await bench.worker(agents(ledger, Stops()))
    output = (await turn.result()).output
    assert output.startswith("failed: The outcome of this call of 'pay' is unknown")
    assert lines(ledger) == ["paid 5"]
    (call,) = (await turn.record()).uncertain
    assert (call.tool, call.call_id, call.arguments) == ("pay", "p", '{"amount":5}')
    assert (await conversation.ask("payer", "again")).output == "success: paid"
    assert (await client.turns(turn.lane))[1].uncertain == ()
