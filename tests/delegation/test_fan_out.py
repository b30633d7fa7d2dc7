"""Much work at once on one worker: each piece is done once, and no turn has more of it run at a time than it may."""

from __future__ import annotations

import asyncio

from laneway import Delegation

from tests.delegation.agents import Team
from tests.delegation.test_delegation import children_of
from tests.support.bench import Bench

PARENTS, CHILDREN, AT_A_TIME = 4, 8, 3


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """How many overlap at most."""
    running = most = 0
    for _, change in sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans]):
        running += change
        most = max(most, running)
    return most


async def test_a_fan_out_is_bounded_by_max_concurrency(bench: Bench, conversation_id: str):
    """By the children's records. (The bench does it with 200 children of 20 turns.)"""
    team = Team({"reader": Delegation("reader", "reads", max_concurrency=AT_A_TIME)})
    client = await bench.serve({name: one for name, one in team.agents().items() if name != "middle"})
    texts = [[f"{parent}.{child}" for child in range(CHILDREN)] for parent in range(PARENTS)]
    turns = [
        await client.conversation(f"{conversation_id}-{parent}").submit(
            "lead", " | ".join(f"reader: {text}" for text in texts[parent])
        )
        for parent in range(PARENTS)
    ]
    outputs = [(await turn.result()).output for turn in turns]
    assert outputs == ["; ".join(f"success: read {text}" for text in some) for some in texts]
    assert dict(team.read) == {text: 1 for some in texts for text in some}
    for turn in turns:
        children = await children_of(client, turn)
        records = await asyncio.gather(*(client.store.record(child.lane, child.turn_id) for child in children))
        spans = [(one.started_at, one.ended_at) for one in records if one is not None and one.started_at is not None]
        assert len(spans) == CHILDREN
        assert most_at_once(spans) <= AT_A_TIME
