"""Turns outlive Temporal's server, and workers that do not have their agent."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from laneway import Laneway, LocalStack, PydanticAdapter
from laneway.activities.steps import Steps
from laneway.activities.wire import LANE_WORKFLOW, SUBMIT_TURN, LaneInput, QueuedTurn
from laneway.errors import ServiceUnavailable, TurnFailed

from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench

OwnStack = Callable[[], AbstractAsyncContextManager[LocalStack]]


async def test_turns_go_on_when_temporal_was_killed_and_restarted(
    own_stack: OwnStack, conversation_id: str, paced: Paced
):
    """A turn that runs, one that waits, and one submitted afterwards."""
    app = Laneway(agents=paced.agents())
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "before")
        running = await conversation.submit("agent", "wait")
        queued = await conversation.submit("agent", "queued")
        await paced.begun["wait"].wait()
        await stack.kill_temporal()
        await asyncio.sleep(0.5)
        await stack.restart_temporal()
        paced.release("wait")
        assert (await running.result()).output == "re: wait"
        assert (await queued.result()).output == "re: queued"
        assert (await conversation.ask("agent", "after")).output == "re: after"
        assert prompts_of(await conversation.messages("agent")) == ["before", "wait", "queued", "after"]


async def test_a_turn_of_an_agent_that_no_worker_has_fails_clearly_and_other_lanes_go_on(
    bench: Bench, conversation_id: str, monkeypatch: pytest.MonkeyPatch
):
    """The lane's worker knows other agents only: the turn says which, the others are served meanwhile."""
    # It waits for a worker that has the agent, by itself for 10 s.
    monkeypatch.setattr("laneway.worker.Steps", partial(Steps, mismatch_grace=timedelta(seconds=1)))
    paced = Paced()
    await bench.worker({"other": paced.adapter()})
    client = await bench.client({"other": paced.adapter(), "missing": paced.adapter()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("missing", "hello")
    assert (await conversation.ask("other", "hello")).output == "re: hello"
    with pytest.raises(TurnFailed, match="no agent 'missing' is registered here; registered: 'other'"):
        await turn.result()
    assert await conversation.messages("missing") == []


async def test_workers_of_two_versions_share_the_lanes_of_both(bench: Bench, conversation_id: str):
    """While old and new workers run, each lane's steps go to one that has its contract, or wait a moment for it."""
    paced = Paced()
    changed = Agent(FunctionModel(paced._model, model_name="paced-2"))
    old, new = {"agent": paced.adapter()}, {"agent": PydanticAdapter(changed)}
    await bench.worker(old)
    await bench.worker(new)
    old_client, new_client = await bench.client(old), await bench.client(new)
    for n in range(6):
        assert (await old_client.conversation(conversation_id).ask("agent", f"old {n}")).output == f"re: old {n}"
        assert (await new_client.conversation(conversation_id).ask("agent", f"new {n}")).output == f"re: new {n}"
    assert prompts_of(await old_client.conversation(conversation_id).messages("agent")) == [
        f"old {n}" for n in range(6)
    ]
    assert prompts_of(await new_client.conversation(conversation_id).messages("agent")) == [
        f"new {n}" for n in range(6)
    ]
    assert len(await new_client.lanes(conversation_id)) == 2


async def test_turns_of_a_workflow_that_was_terminated_are_told_of_and_go_on_when_submitted_again(
    bench: Bench, conversation_id: str, paced: Paced, monkeypatch: pytest.MonkeyPatch
):
    """An operator may do that. Nobody waits for ever, and Temporal's memory of the first submit does not stand in for a
    turn that nobody runs."""
    monkeypatch.setattr("laneway.lookout._FIRST_LOOK", timedelta(seconds=0.5))
    monkeypatch.setattr("laneway.lookout._SECOND_LOOK", timedelta(seconds=0.2))
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    running = await conversation.submit("agent", "wait", turn_id="running")
    queued = await conversation.submit("agent", "queued", turn_id="queued")
    await paced.begun["wait"].wait()
    waiting = asyncio.create_task(running.result())
    await asyncio.sleep(1.5)
    assert not waiting.done()  # its lane holds it
    await client.temporal.get_workflow_handle(client.workflow_id(running.lane)).terminate("by an operator")
    with pytest.raises(ServiceUnavailable, match="turn 'running' has not ended, and workflow .* does not hold it"):
        await waiting
    with pytest.raises(ServiceUnavailable, match="turn 'queued' has not ended"):
        await queued.result()
    with pytest.raises(ServiceUnavailable, match="turn 'queued' has not ended"):
        _ = [event async for event in queued.events()]
    paced.release("wait")
    turns = [
        await conversation.submit("agent", one, turn_id=two) for one, two in (("wait", "running"), ("queued",) * 2)
    ]
    assert [(await turn.result()).output for turn in turns] == ["re: wait", "re: queued"]
    assert prompts_of(await conversation.messages("agent")) == ["wait", "queued"]


@workflow.defn(name=LANE_WORKFLOW)
class FailingLane:
    """A lane whose every workflow task with an update is refused by the server, as one is that would have continued as
    new while something came in."""

    failed = threading.Event()

    @workflow.run
    async def run(self, lane: LaneInput) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update(name=SUBMIT_TURN)
    def submit(self, turn: QueuedTurn) -> None:
        self.failed.set()
        name_that_no_server_takes = "x" * 2000
        workflow.start_activity(name_that_no_server_takes, start_to_close_timeout=timedelta(seconds=1))


async def test_a_submit_outlives_a_workflow_task_that_fails(
    bench: Bench, conversation_id: str, caplog: pytest.LogCaptureFixture
):
    """Temporal refuses an update whose workflow task fails; where a later one takes it, nobody hears of it."""
    paced = Paced()
    client = await bench.client(paced.agents())
    async with Worker(
        client.temporal,
        task_queue=bench.settings.task_queue,
        workflows=[FailingLane],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    ):
        submitting = asyncio.create_task(client.conversation(conversation_id).submit("agent", "hello"))
        await asyncio.to_thread(FailingLane.failed.wait)
        await asyncio.sleep(0.2)
        assert not submitting.done()
    await bench.worker(paced.agents())
    assert (await (await submitting).result()).output == "re: hello"
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]
