"""A worker is killed at each boundary of a turn, and the turn comes to what it would have come to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from laneway import Settings

from tests.adapters.scripted import plain_form
from tests.support.bench import Bench
from tests.support.ledgered import agents
from tests.support.stops import Stops, lines
from tests.support.workers import WorkerNursery, WorkerProcess

pytestmark = pytest.mark.long

# Where the worker dies, and how often the model is asked for its first and its last answer in all. An answer that was
# staged is never asked for again; for `plain`, the commit stages the last one.
KILLS = [
    ("plain", "before load:0", 1, 1),
    ("plain", "after load:0", 1, 1),
    ("plain", "model 0", 2, 1),
    ("plain", "before s0", 2, 1),
    ("plain", "after s0", 1, 1),
    ("plain", "before load:1", 1, 1),
    ("plain", "second", 1, 1),
    ("plain", "before s1", 1, 1),
    ("plain", "after s1", 1, 1),
    ("plain", "after load:2", 1, 1),
    ("plain", "model 2", 1, 2),
    ("plain", "before commit", 1, 2),
    ("plain", "after commit", 1, 1),
    ("checked", "after m2", 1, 1),
    ("checked", "validator", 1, 1),
    ("checked", "before commit", 1, 1),
    # A graph's answer is kept before its superstep is staged.
    ("graph", "after load:0", 1, 1),
    ("graph", "model 0", 2, 1),
    ("graph", "before s0", 1, 1),
    ("graph", "after s0", 1, 1),
    ("graph", "second", 1, 1),
    ("graph", "after s1", 1, 1),
    ("graph", "model 2", 1, 2),
    ("graph", "before commit", 1, 1),
    ("graph", "after commit", 1, 1),
]


@pytest.mark.parametrize(("agent", "place", "first_asked", "last_asked"), KILLS, ids=str)
async def test_a_turn_survives_the_death_of_its_worker(
    nursery: WorkerNursery,
    quick: Settings,
    bench: Bench,
    conversation_id: str,
    tmp_path: Path,
    agent: str,
    place: str,
    first_asked: int,
    last_asked: int,
):
    """The result is the uninterrupted one, and no finished call of a tool or of the model is made again."""
    bench.settings = quick
    folder = tmp_path / "worker"
    ledger = folder / "ledger"
    client = await bench.client(agents(ledger, Stops()))
    conversation = client.conversation(conversation_id)
    async with WorkerProcess(nursery, folder, quick, stop=place) as worker:
        turn = await conversation.submit(agent, "go")
        assert await worker.killed() == place
    await bench.worker(agents(ledger, Stops()))
    result = await turn.result()
    assert result.output == "turn 1: one and two"
    assert (result.steps, result.usage.requests, result.usage.tool_calls) == (3, 2, 2)
    done = Counter(lines(ledger))
    assert done["turn 1 model 0 asked"] == first_asked
    assert done["turn 1 model 2 asked"] == last_asked
    assert done["first finished"] == done["second finished"] == 1
    assert done["second called"] == (2 if place == "second" else 1)
    assert (await conversation.ask(agent, "and on")).output == "turn 2: one and two"
    messages = await conversation.messages(agent)
    assert _form(messages) == _form(await _uninterrupted(bench, f"{conversation_id}-again", agent, tmp_path))


def _form(messages: list[Any]) -> Any:
    """Messages without what differs from run to run."""
    if isinstance(messages[0], BaseMessage):
        return [message.model_copy(update={"id": None}).model_dump() for message in messages]
    return plain_form(messages)


async def _uninterrupted(bench: Bench, conversation_id: str, agent: str, tmp_path: Path) -> list[Any]:
    conversation = (await bench.client(agents(tmp_path / "other", Stops()))).conversation(conversation_id)
    for prompt in ("go", "and on"):
        await conversation.ask(agent, prompt)
    return await conversation.messages(agent)
