"""A worker is killed right after each hook's decision is kept: one decision, and the turn goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from laneway import LanewayClient, Settings, Turn
from laneway.errors import TurnDenied

from tests.support.bench import Bench
from tests.support.hooked import denying
from tests.support.ledgered import agents
from tests.support.stops import Stops, lines
from tests.support.workers import WorkerNursery, WorkerProcess

EITHER = pytest.mark.parametrize("agent", ["hooked", "hooked graph"])

ASKED = {
    "user_prompt_submit": 1,
    "before_model_request 1": 1,
    "after_model_request 1": 1,
    "before_tool": 1,
    "after_tool": 1,
    "before_model_request 2": 1,
    "after_model_request 2": 1,
    "turn_committed": 1,
    "model 1": 1,
    "looked": 1,
    "model 3": 1,
}
"""What a whole turn writes down, each once."""

# Where the worker dies, and what is written down once more than without. What a death before a decision comes to, and
# one after a commit, is in test_crashes.
PLACES: list[tuple[str, set[str]]] = [
    ("after user_prompt_submit", set()),
    ("after before_model_request", set()),
    ("after after_model_request", set()),
    ("after before_tool", set()),
    ("after after_tool", set()),
    ("before settle", {"turn_committed"}),
]


async def killed(
    nursery: WorkerNursery, bench: Bench, folder: Path, place: str, agent: str, conversation_id: str
) -> tuple[LanewayClient, Turn]:
    """A turn whose worker was killed at a place; the next worker runs."""
    client = await bench.client(agents(folder / "ledger", Stops()))
    async with WorkerProcess(nursery, folder, bench.settings, stop=place) as worker:
        turn = await client.conversation(conversation_id).submit(agent, "go")
        assert await worker.killed() == place
    await bench.worker(agents(folder / "ledger", Stops()))
    return client, turn


@EITHER
@pytest.mark.parametrize(("place", "again"), PLACES, ids=[place for place, _ in PLACES])
async def test_a_turn_survives_the_death_of_its_worker_around_a_hook(
    nursery: WorkerNursery,
    quick: Settings,
    bench: Bench,
    conversation_id: str,
    tmp_path: Path,
    agent: str,
    place: str,
    again: set[str],
):
    """What was kept is used and not asked again; what was not kept is asked once more, and nothing else is repeated."""
    bench.settings = quick
    client, turn = await killed(nursery, bench, tmp_path / "worker", place, agent, conversation_id)
    assert (await turn.result()).output == "success: seen"
    assert await written(client, turn, tmp_path / "worker" / "ledger") == {
        name: times + (name in again) for name, times in ASKED.items()
    }


async def test_a_denial_that_was_kept_stands_after_the_death_of_its_worker(
    nursery: WorkerNursery, quick: Settings, bench: Bench, conversation_id: str, tmp_path: Path
):
    """The hook would say yes if it were asked again."""
    bench.settings = quick
    conversation_id += denying("before_model_request")
    place, folder = "after before_model_request", tmp_path / "worker"
    client, turn = await killed(nursery, bench, folder, place, "hooked", conversation_id)
    with pytest.raises(TurnDenied, match="the first word"):
        await turn.result()
    assert await client.messages(turn.lane) == []
    expected = {"user_prompt_submit": 1, "before_model_request 1": 1, "turn_failed": 1}
    assert await written(client, turn, folder / "ledger") == expected


async def written(client: LanewayClient, turn: Turn, ledger: Path) -> Counter[str]:
    """What was written down, once the lane has heard of the turn's end: those who are told of it were, by then."""
    async with asyncio.timeout(30):
        while (await client.status(turn.lane)).turn is not None:
            await asyncio.sleep(0.02)
    return Counter(lines(ledger))
