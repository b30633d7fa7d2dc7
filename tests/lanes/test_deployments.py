"""Several deployments in one Temporal namespace and one Redis: each has its own lanes, whatever their names."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from laneway import Delegation, Settings
from laneway.errors import ServiceUnavailable

from tests.delegation.agents import Team
from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench


def of(settings: Settings, name: str) -> dict[str, object]:
    """Another deployment's settings."""
    return {"redis_prefix": f"{settings.redis_prefix}-{name}", "task_queue": f"{settings.task_queue}-{name}"}


async def test_deployments_with_two_prefixes_hold_conversations_of_the_same_names(
    bench: Bench, settings: Settings, conversation_id: str, paced: Paced
):
    """The same agent, so the same contract: nothing but the prefix tells their lanes apart."""
    clients = [await bench.serve(paced.agents(), **of(settings, name)) for name in ("green", "blue")]
    for number in range(3):
        results = await asyncio.gather(
            *(
                client.conversation(conversation_id).ask("agent", f"{which} {number}", turn_id=f"turn {number}")
                for which, client in enumerate(clients)
            )
        )
        assert [one.output for one in results] == [f"re: 0 {number}", f"re: 1 {number}"]
    for which, client in enumerate(clients):
        conversation = client.conversation(conversation_id)
        lane = conversation.lane("agent")
        assert prompts_of(await conversation.messages("agent")) == [f"{which} {number}" for number in range(3)]
        assert client.workflow_id(lane).startswith(f"lane:{client.settings.redis_prefix}:{conversation_id}:agent:")
        assert (await client.temporal.get_workflow_handle(client.workflow_id(lane)).describe()).close_time is None


async def test_children_of_two_deployments_stay_apart(bench: Bench, settings: Settings, conversation_id: str):
    """A child's workflow is named as its parent's is, by the worker that hands out the work."""
    for name in ("green", "blue"):
        agents = Team({"reader": Delegation("reader", "reads")}).agents()
        client = await bench.serve(agents, **of(settings, name))
        turn = await client.conversation(conversation_id).submit("lead", f"reader: {name}", turn_id="same")
        (child,) = (await turn.record()).children
        found = await client.temporal.get_workflow_handle(client.workflow_id(child.lane)).describe()
        assert found.id.startswith(f"lane:{settings.redis_prefix}-{name}:child-")
        assert found.close_time is not None


async def test_workers_of_two_prefixes_on_one_task_queue_leave_each_others_turns_alone(
    bench: Bench, settings: Settings, conversation_id: str
):
    """A step that reaches the wrong one would find nothing in its Redis: it goes to the right one instead."""
    paced = Paced()
    shared = {"task_queue": settings.task_queue}
    clients = [await bench.serve(paced.agents(), **of(settings, name) | shared) for name in ("green", "blue")]
    for number in range(4):
        for client in clients:
            result = await client.conversation(conversation_id).ask("agent", f"{number}", timeout=30)
            assert result.output == f"re: {number}"


async def test_an_open_lane_is_served_where_it_runs_though_the_client_names_another_task_queue(
    bench: Bench, settings: Settings, conversation_id: str, monkeypatch: pytest.MonkeyPatch
):
    """One prefix, two queues: the turn is taken by the first one's worker. Where that is gone, the error names it."""
    paced = Paced()
    worker = await bench.worker(paced.agents())
    first = await bench.client(paced.agents())
    assert (await first.conversation(conversation_id).ask("agent", "one")).output == "re: one"
    moved = await bench.serve(paced.agents(), task_queue=f"{settings.task_queue}-moved")
    assert (await moved.conversation(conversation_id).ask("agent", "two")).output == "re: two"
    await worker.aclose()
    elsewhere = f"open on task queue '{settings.task_queue}'.*LANEWAY_TASK_QUEUE="
    with monkeypatch.context() as hurried:
        hurried.setattr("laneway.submissions._ACCEPT_TIMEOUT", timedelta(seconds=2))
        with pytest.raises(ServiceUnavailable, match=elsewhere):
            await moved.conversation(conversation_id).ask("agent", "three", turn_id="three")
    other = f"{conversation_id}-other"
    assert (await moved.conversation(other).ask("agent", "three")).output == "re: three"
    await bench.worker(paced.agents())
    assert (await moved.conversation(conversation_id).ask("agent", "three", turn_id="three")).output == "re: three"
    assert prompts_of(await moved.conversation(conversation_id).messages("agent")) == ["one", "two", "three"]
