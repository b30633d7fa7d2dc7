"""A worker is killed around what takes a steering message in: it is in the history once, whatever is tried again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from laneway import Settings

from tests.steering.agents import shape
from tests.support.bench import Bench
from tests.support.ledgered import agents
from tests.support.stops import Stops, lines
from tests.support.workers import WorkerNursery, WorkerProcess

# Where the worker dies that takes the message in, in step 2, and how often the model is asked with it in all.
KILLS = [("before s2", 2), ("after s2", 1), ("before commit", 1), ("after commit", 1)]


@pytest.mark.parametrize(("place", "asked"), KILLS, ids=str)
async def test_a_message_survives_the_death_of_the_worker_that_takes_it_in(
    nursery: WorkerNursery,
    quick: Settings,
    bench: Bench,
    conversation_id: str,
    tmp_path: Path,
    place: str,
    asked: int,
):
    bench.settings = quick
    folders = [tmp_path / "first", tmp_path / "second"]
    client = await bench.client(agents(tmp_path / "none", Stops()))
    conversation = client.conversation(conversation_id)
    async with WorkerProcess(nursery, folders[0], quick, stop="before s1") as worker:
        turn = await conversation.submit("plain", "go")
        assert await worker.stopped() == "before s1"
        steering = await conversation.submit("plain", "and this", when_busy="steer")
        worker.kill()
    async with WorkerProcess(nursery, folders[1], quick, stop=place) as worker:
        assert await worker.killed() == place
    await bench.worker(agents(folders[1] / "ledger", Stops()))
    assert (await turn.result()).output == "turn 2: one and two"
    assert (await steering.result()).steered_into == turn.turn_id
    done = Counter(lines(folders[1] / "ledger"))
    assert done["turn 2 model 0 asked"] == asked
    assert shape(await conversation.messages("plain")) == [
        "user go",
        *["calls", "calls", "result one", "result two"],
        "user and this",
        *["calls", "calls", "result one", "result two"],
        "says turn 2: one and two",
    ]
    assert [one.turn_id for one in await client.turns(turn.lane)] == [turn.turn_id, steering.turn_id]
