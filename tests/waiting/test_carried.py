"""What waits is carried: into the next run of a workflow, over a deploy of the agent, with what steers it."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import WorkflowExecutionStatus

from laneway import LanewayClient, Turn, approve
from laneway.activities.wire import ANSWER_REQUEST, AnswerNotice
from laneway.conversations import Conversation

from tests.support.bench import Bench
from tests.waiting.desks import FRAMEWORKS, Desk, Framework


async def asked(conversation: Conversation) -> str:
    """The one request that the agent's turn waits for, once its lane knows of it."""
    async with asyncio.timeout(30):
        while not (waiting := (await conversation.status("agent")).waiting):
            await asyncio.sleep(0.02)
    return waiting[0]


async def _continue_as_new(client: LanewayClient, turn: Turn) -> None:
    """Let the workflow's history grow until Temporal suggests it, at 4 MB: with notices that answer nothing."""
    handle = client.temporal.get_workflow_handle(client.workflow_id(turn.lane))
    first = (await handle.describe()).run_id
    async with asyncio.timeout(60):
        while (await handle.describe()).run_id == first:
            await handle.signal(ANSWER_REQUEST, AnswerNotice(turn.turn_id, "0" * 1_000_000))
    ended = await client.temporal.get_workflow_handle(client.workflow_id(turn.lane), run_id=first).describe()
    assert ended.status is WorkflowExecutionStatus.CONTINUED_AS_NEW


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_wait_and_what_steers_it_are_carried_into_the_next_run(
    bench: Bench, conversation_id: str, framework: Framework
):
    desk = Desk()
    client = await bench.serve({"agent": desk.adapter(framework)})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "letter")
    request = await asked(conversation)
    behind = await conversation.submit("agent", "behind")
    steering = [
        await conversation.submit("agent", text, turn_id=text, when_busy="steer") for text in ("one", "two", "three")
    ]
    assert await steering[1].cancel() == "cancelled"
    await _continue_as_new(client, turn)
    status = await conversation.status("agent")
    assert (status.turn, status.waiting, status.queue) == (turn.turn_id, (request,), (behind.turn_id,))
    assert status.steering == ("one", "three")
    again = await conversation.submit("agent", "three", turn_id="three", when_busy="steer")
    assert (await conversation.status("agent")).steering == ("one", "three")
    await turn.answer(request, approve())
    assert (await turn.result()).output == "v1: letter, signed user letter, one, three"
    for one in (steering[0], steering[2], again):
        assert (await one.result()).steered_into == turn.turn_id
    assert desk.signed == ["user letter"]
    await behind.answer(await asked(conversation), approve())
    assert (await behind.result()).output == "v1: behind, signed user behind"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_wait_outlives_a_deploy_of_other_code(bench: Bench, conversation_id: str, framework: Framework):
    """The next version of the agent, with other instructions, goes on with the turn that the one before began."""
    first, second = Desk("v1"), Desk("v2")
    client = await bench.client({"agent": first.adapter(framework)})
    worker = await bench.worker({"agent": first.adapter(framework)})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "letter")
    request = await asked(conversation)
    steering = await conversation.submit("agent", "and this", when_busy="steer")
    await worker.aclose()
    await turn.answer(request, approve())
    await bench.worker({"agent": second.adapter(framework)})
    assert (await turn.result()).output == "v2: letter, signed user letter, and this"
    assert (await steering.result()).steered_into == turn.turn_id
    assert (first.signed, second.signed) == ([], ["user letter"])
