"""An agent hands work to others: in parallel, once each, within limits, and all of it or none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from laneway import Delegation, LanewayClient, RequestBudget, Turn
from laneway.errors import ConfigurationError, TurnFailed, TurnTimedOut
from laneway.history.delegation import ChildRef

from tests.delegation.agents import Team
from tests.lanes.agents import prompts_of
from tests.support.bench import Bench
from tests.support.contents import events_in


async def children_of(client: LanewayClient, turn: Turn) -> tuple[ChildRef, ...]:
    record = await client.store.record(turn.lane, turn.turn_id)
    assert record is not None
    return record.children


async def dropped(client: LanewayClient, turn: Turn) -> list[str]:
    """How each child of a turn that came to nothing ended, once nothing that they wrote is left."""
    outcomes: list[str] = []
    for child in await children_of(client, turn):
        async with asyncio.timeout(30):
            while (record := await client.store.record(child.lane, child.turn_id)) is None or (
                await client.store.head(child.lane)
            ).version:
                await asyncio.sleep(0.02)
        outcomes.append(record.outcome)
    return outcomes


async def running_below(client: LanewayClient, turn: Turn) -> list[str]:
    """The workflows of a turn's children, and of theirs, that run as Temporal has it."""
    found: list[str] = []
    for child in await children_of(client, turn):
        try:
            description = await client.temporal.get_workflow_handle(client.workflow_id(child.lane)).describe()
        except RPCError:  # it was never started
            continue
        if description.status is WorkflowExecutionStatus.RUNNING:
            found.append(client.workflow_id(child.lane))
        found += await running_below(client, client.turn(child.lane, child.turn_id))
    return found


def test_what_a_delegation_is_by_default_and_what_it_cannot_be():
    one = Delegation("reader", "reads")
    assert (one.seconds, one.max_depth, one.max_concurrency, one.max_turns) == (120, 5, 4, 8)
    assert (one.keep, one.on_failure, one.budget) == (False, "tell_model", None)
    assert one.schema["required"] == ["brief"]
    assert "child" in Delegation("reader", "reads", keep=True).schema["properties"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_concurrency": 33}, "from 1 to 32"),
        ({"max_concurrency": 0}, "from 1 to 32"),
        ({"max_depth": True}, "from 1 to 100"),
        ({"timeout": 0}, "give a positive one"),
        ({"description": " "}, "tell the model what the agent is for"),
        ({"agent": ""}, "agent"),
        ({"on_failure": "ignore"}, "tell_model"),
        ({"tool_name": "a tool"}, "letters, digits"),
        ({"parameters": {"type": "string"}}, "JSON schema of an object"),
    ]
    for changed, why in wrong:
        with pytest.raises(ConfigurationError, match=why):
            Delegation(**{"agent": "reader", "description": "reads"} | changed)


async def test_work_is_handed_out_in_parallel_and_appends_nothing_to_the_lane(bench: Bench, conversation_id: str):
    team = Team()
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("lead", "reader: wait a | reader: wait b | reader: c")
    await asyncio.gather(*(asyncio.wait_for(team.begun[text].wait(), 30) for text in ("wait a", "wait b", "c")))
    assert team.most >= 2
    assert len((await conversation.status("lead")).waiting) >= 2
    team.gate.set()
    result = await turn.result()
    assert result.output == "success: read wait a; success: read wait b; success: read c"
    assert dict(team.read) == {"wait a": 1, "wait b": 1, "c": 1}
    assert prompts_of(await conversation.messages("lead")) == ["reader: wait a | reader: wait b | reader: c"]
    children = await children_of(client, turn)
    assert [child.delegate for child in children] == ["reader"] * 3
    assert [prompts_of(await client.messages(child.lane)) for child in children] == [["wait a"], ["wait b"], ["c"]]
    assert [lane.agent for lane in await client.lanes()] == ["lead"]
    assert await events_in(client, client.workflow_id(children[0].lane)) == [
        "workflow_execution_started",
        "timer_started",
        *(f"activity_task_{what}" for what in ("scheduled", "started", "completed")),
        "timer_canceled",
        "workflow_execution_completed",
    ]


async def test_children_have_children_up_to_a_depth_and_never_in_a_circle(bench: Bench, conversation_id: str):
    delegates = {
        "reader": Delegation("reader", "reads", max_depth=2),
        "middle": Delegation("middle", "hands on"),
        "lead": Delegation("lead", "leads"),
    }
    team = Team(delegates)
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    nested = await conversation.ask("lead", "middle: reader: a")
    assert nested.output == "success: success: read a"
    circle = await conversation.ask("lead", "middle: lead: reader: b")
    assert "failed: agent 'lead' is at work on this already (lead → middle)" in circle.output
    shallow = Team({"reader": Delegation("reader", "reads", max_depth=1), "middle": delegates["middle"]})
    other = await bench.serve(shallow.agents(), task_queue=f"{bench.settings.task_queue}-2")
    deep = await other.conversation(f"{conversation_id}-2").ask("lead", "middle: reader: c")
    assert "the work is 2 delegations deep, and 1 are allowed" in deep.output
    assert shallow.read == {}


async def test_no_more_run_at_a_time_than_may(bench: Bench, conversation_id: str):
    team = Team({"reader": Delegation("reader", "reads", max_concurrency=2)})
    client = await bench.serve({name: one for name, one in team.agents().items() if name != "middle"})
    turn = await client.conversation(conversation_id).submit(
        "lead", " | ".join(f"reader: wait {number}" for number in range(5))
    )
    async with asyncio.timeout(30):
        while sum(team.read.values()) < 2:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    assert (team.most, sum(team.read.values())) == (2, 2)
    team.gate.set()
    await turn.result()
    assert (team.most, sum(team.read.values())) == (2, 5)


async def test_a_failed_child_is_told_to_the_model_or_fails_the_turn(bench: Bench, conversation_id: str):
    team = Team(
        {
            "reader": Delegation("reader", "reads"),
            "strict": Delegation("reader", "reads", on_failure="fail_turn"),
            "hurried": Delegation("reader", "reads", timeout=0.5),
        }
    )
    client = await bench.serve({name: one for name, one in team.agents().items() if name != "middle"})
    conversation = client.conversation(conversation_id)
    told = await conversation.ask("lead", 'reader: fail a | reader: b | reader: {"text": "c"} | hurried: wait d')
    assert told.output.split("; ") == [
        "failed: reader failed: ValueError: cannot read fail a",
        "success: read b",
        told.output.split("; ")[2],
        "failed: hurried failed: TurnTimedOut: its timeout of 0.5 s passed while it ran",
    ]
    assert "'brief' is a required property" in told.output or "text" in told.output.split("; ")[2]
    failing = await conversation.submit("lead", "strict: fail e | reader: f")
    with pytest.raises(TurnFailed, match="delegate_to_strict came to nothing: strict failed: ValueError"):
        await failing.result()
    assert len(await conversation.messages("lead")) == 4
    assert await dropped(client, failing) == ["failed", "committed"]


async def test_cancelling_a_turn_cancels_its_tree(bench: Bench, conversation_id: str):
    """Children, and children of children, running and waiting for a place: nothing runs on, and nothing is kept."""
    team = Team(
        {"reader": Delegation("reader", "reads", max_concurrency=1), "middle": Delegation("middle", "hands on")}
    )
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("lead", "middle: reader: wait a | reader: wait b | reader: wait c | reader: d")
    await asyncio.gather(*(asyncio.wait_for(team.begun[text].wait(), 30) for text in ("wait a", "wait b")))
    assert await turn.cancel() == "cancelled"
    assert sorted(team.cancelled) == ["wait a", "wait b"]
    assert team.running == 0
    assert dict(team.read) == {"wait a": 1, "wait b": 1}
    assert await dropped(client, turn) == ["cancelled"] * 4
    assert await running_below(client, turn) == []
    # The lane goes on.
    assert (await conversation.ask("lead", "reader: e")).output == "success: read e"


async def test_a_timeout_ends_the_tree_as_well(bench: Bench, conversation_id: str):
    team = Team()
    client = await bench.serve(team.agents())
    turn = await client.conversation(conversation_id).submit("lead", "reader: a | reader: wait b", timeout=2)
    await asyncio.wait_for(team.begun["wait b"].wait(), 30)
    with pytest.raises(TurnTimedOut):
        await turn.result()
    assert team.cancelled == ["wait b"]
    assert await dropped(client, turn) == ["committed", "cancelled"]


async def test_a_kept_conversation_is_gone_on_with_and_commits_with_the_parent(bench: Bench, conversation_id: str):
    team = Team({"reader": Delegation("reader", "reads", keep=True, max_turns=3)})
    client = await bench.serve({name: one for name, one in team.agents().items() if name != "middle"})
    conversation = client.conversation(conversation_id)
    first = await conversation.submit("lead", "reader: a")
    assert (await first.result()).output.startswith("success: {'output': 'read a', 'child': 'reader-")
    (child,) = await children_of(client, first)
    again = f'{{"brief": "b", "child": "{child.kept}"}}'
    # Twice at once: one run at a time.
    assert (await conversation.ask("lead", f"reader: {again} | reader: {again}")).output.count("one run at a time") == 1
    # A turn that is cancelled leaves the kept conversation as it was.
    lost = await conversation.submit("lead", f'reader: {{"brief": "wait c", "child": "{child.kept}"}}')
    await asyncio.wait_for(team.begun["wait c"].wait(), 30)
    await lost.cancel()
    third = await conversation.ask("lead", again.replace('"b"', '"d"').join(("reader: ", "")))
    assert "read d after a+b" in third.output
    assert "has had its 3 runs" in (await conversation.ask("lead", f"reader: {again}")).output
    assert (
        "there is no kept conversation"
        in (await conversation.ask("lead", 'reader: {"brief": "e", "child": "reader-0"}')).output
    )
    assert prompts_of(await client.messages(child.lane)) == ["a"]


async def test_the_tree_never_exceeds_a_budget(bench: Bench, conversation_id: str):
    """Seven requests in all: two of the lead's own, so five children at most are asked anything."""
    team = Team({"reader": Delegation("reader", "reads", max_concurrency=8, budget=RequestBudget(request_limit=1))})
    agents = team.agents(budget=RequestBudget(request_limit=6))
    client = await bench.serve({name: one for name, one in agents.items() if name != "middle"})
    turn = await client.conversation(conversation_id).submit(
        "lead", " | ".join(f"reader: {number}" for number in range(8))
    )
    with pytest.raises(TurnFailed, match="request_limit"):
        await turn.result()
    assert sum(team.read.values()) == 5
