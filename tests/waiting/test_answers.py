"""A turn that needs a person or another system waits for the answer, and goes on with it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests

from laneway import LanewayClient, Pending, Turn, approve, deny, failed
from laneway.activities.wire import LANE_WORKFLOW, Awaited, LaneInput, QueuedTurn, SuspendedTurn
from laneway.errors import AlreadyAnswered, InvalidInput, TurnTimedOut, UnknownRequest

from tests.support.bench import Bench
from tests.waiting.agents import Office, results_in


async def waiting(turn: Turn, count: int = 1) -> dict[str, Pending]:
    """What a turn waits for, by tool, once it is so much."""
    async with asyncio.timeout(30):
        while len(found := await turn.pending()) != count:
            await asyncio.sleep(0.02)
    return {one.request.name: one for one in found}


async def test_an_approved_tool_runs_once_and_what_ran_beside_it_does_not_run_again(bench: Bench, conversation_id: str):
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "plain(a) send(letter)")
    asked = (await waiting(turn))["send"].request
    assert (asked.kind, asked.payload, asked.ref) == ("approval", {"what": "letter"}, "send-1")
    assert office.ran == ["plain a"]
    assert (await conversation.status("agent")).waiting == (asked.id,)
    assert [one.request.id for one in await client.pending()] == [asked.id]
    assert [one.request.id for one in await conversation.pending()] == [asked.id]
    await turn.answer(asked.id, approve())
    assert (await turn.result()).output == "done"
    assert office.ran == ["plain a", "send letter"]
    assert office.asked == 2
    assert results_in(await conversation.messages("agent")) == [
        ("plain", "success", "did a"),
        ("send", "success", "sent letter"),
    ]
    assert await client.pending() == []
    kinds = [event.kind.value async for event in turn.events()]
    assert [kind for kind in kinds if kind.startswith("request")] == ["request.pending", "request.answered"]


async def test_several_are_answered_in_any_order_and_each_in_its_way(bench: Bench, conversation_id: str):
    """Denied, approved with other arguments, approved and then deferred, answered from outside, and failed."""
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    prompt = "send(a) send(b) pay(5) pay(50) pay(500) measure(x) order(y) ask(z)"
    turn = await conversation.submit("agent", prompt)
    async with asyncio.timeout(30):
        while len(found := await turn.pending()) != 7:
            await asyncio.sleep(0.02)
    by_ref = {one.request.ref: one.request for one in found}
    assert {ref: one.kind for ref, one in by_ref.items()} == {
        "send-0": "approval",
        "send-1": "approval",
        "pay-3": "approval",
        "pay-4": "approval",
        "measure-5": "external",
        "order-6": "external",
        "ask-7": "question",
    }
    assert by_ref["pay-3"].metadata == {"why": "it is much"}
    assert sorted(office.ran) == ["order y", "pay 5"]
    other = client.turn(conversation.lane("agent"), turn.turn_id)
    await turn.answer(by_ref["ask-7"].id, result={"answer": [1, None]})
    await other.answer(by_ref["measure-5"].id, result=2.5)
    await turn.answer(by_ref["order-6"].id, failed("sold out"))
    await turn.answer(by_ref["send-1"].id, deny("not to them"))
    await other.answer(by_ref["pay-4"].id, approve())
    await turn.answer(by_ref["pay-3"].id, approve(arguments={"what": 20}))
    await turn.answer(by_ref["send-0"].id, approve())
    # What was approved defers itself: the turn waits again, for that alone.
    (again,) = (await waiting(turn)).values()
    assert (again.request.ref, again.request.kind) == ("pay-4", "external")
    await turn.answer(again.request.id, result="by cheque")
    assert (await turn.result()).output == "done"
    assert sorted(results_in(await conversation.messages("agent"))) == [
        ("ask", "success", "{'answer': [1, None]}"),
        ("measure", "success", "2.5"),
        ("order", "failed", "sold out"),
        ("pay", "success", "by cheque"),
        ("pay", "success", "paid 20"),
        ("pay", "success", "paid 5"),
        ("send", "denied", "not to them"),
        ("send", "success", "sent a"),
    ]
    assert sorted(office.ran) == ["order y", "pay 20", "pay 5", "pay 500", "send a"]


async def _refused(turn: Turn, error: type[Exception], request: str, *args: Any, **result: Any) -> None:
    before = await turn.pending()
    with pytest.raises(error):
        await turn.answer(request, *args, **result)
    assert await turn.pending() == before


async def test_a_wrong_answer_is_refused_and_changes_nothing(bench: Bench, conversation_id: str):
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    turn = await client.conversation(conversation_id).submit("agent", "send(a) measure(x) pay(11)")
    asked = await waiting(turn, 3)
    send, measure, pay = (asked[name].request.id for name in ("send", "measure", "pay"))
    await _refused(turn, UnknownRequest, "nothing", approve())
    await _refused(turn, InvalidInput, send, result=1)
    await _refused(turn, InvalidInput, send, failed("no"))
    await _refused(turn, InvalidInput, measure, approve())
    await _refused(turn, InvalidInput, measure, result="two")
    await _refused(turn, InvalidInput, measure, result=float("nan"))
    await _refused(turn, InvalidInput, pay, approve(arguments={"what": "a lot"}))
    await _refused(turn, InvalidInput, pay, approve(arguments={}))
    await _refused(turn, InvalidInput, pay)
    await turn.answer(send, deny("no"))
    await turn.answer(send, deny("no"))  # the same again
    await _refused(turn, AlreadyAnswered, send, approve())
    await asyncio.gather(turn.answer(measure, result=1), turn.answer(pay, approve()))
    assert (await turn.result()).output == "done"
    with pytest.raises(UnknownRequest, match="committed"):
        await turn.answer(send, approve())
    assert office.ran == ["pay 11"]


async def test_a_deadline_that_passes_gives_the_default_answer(bench: Bench, conversation_id: str):
    office = Office(timeout=0.3)
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "hurried(a)", timeout=30)).output == "done"
    assert results_in(await conversation.messages("agent")) == [("hurried", "denied", "nobody answered")]
    assert office.ran == []


async def test_cancelling_and_timing_out_end_a_turn_that_waits(bench: Bench, conversation_id: str):
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "send(a)")
    asked = (await waiting(turn))["send"].request.id
    assert await turn.cancel() == "cancelled"
    with pytest.raises(UnknownRequest, match="cancelled"):
        await turn.answer(asked, approve())
    timed = await conversation.submit("agent", "send(b)", timeout=1.5)
    await waiting(timed)
    with pytest.raises(TurnTimedOut, match="while it waited for request"):
        await timed.result()
    assert await conversation.messages("agent") == []
    assert office.ran == []


async def test_an_agent_whose_output_may_be_deferred_requests_waits_all_the_same(bench: Bench, conversation_id: str):
    office = Office()
    client = await bench.serve({"agent": office.adapter(output_type=[str, DeferredToolRequests])})
    turn = await client.conversation(conversation_id).submit("agent", "send(a)")
    await turn.answer((await waiting(turn))["send"].request.id, approve())
    assert (await turn.result()).output == "done"
    assert office.ran == ["send a"]


async def _events(client: LanewayClient, turn: Turn) -> list[str]:
    history = await client.temporal.get_workflow_handle(client.workflow_id(turn.lane)).fetch_history()
    return [str(event.WhichOneof("attributes")) for event in history.events]


async def test_waiting_writes_nothing_and_outlives_idleness(bench: Bench, conversation_id: str):
    """The idle timer that runs when the wait begins fires once; from then on the history does not grow."""
    office = Office()
    client = await bench.serve({"agent": office.adapter()}, idle_timeout=timedelta(seconds=0.1))
    turn = await client.conversation(conversation_id).submit("agent", "send(a)")
    asked = (await waiting(turn))["send"].request.id
    async with asyncio.timeout(30):
        while "timer_fired_event_attributes" not in (before := await _events(client, turn)) or not before[
            -1
        ].startswith("workflow_task_completed"):
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.5)
    assert await _events(client, turn) == before
    await turn.answer(asked, approve())
    assert (await turn.result()).output == "done"


async def test_a_turn_that_waits_is_carried_into_the_next_run_of_its_workflow(bench: Bench, conversation_id: str):
    """With what a run that continues as new hands on; when it does, tests/replay shows."""
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "send(a) measure(b)", timeout=600)
    asked = {name: one.request.id for name, one in (await waiting(turn, 2)).items()}
    await turn.answer(asked["measure"], result=1)
    queued = await conversation.submit("agent", "plain(c)")
    lane = turn.lane
    handle = client.temporal.get_workflow_handle(client.workflow_id(lane))
    assert (await conversation.status("agent")).step == 1
    await handle.terminate()
    fields = [await client.store.turns.unfinished(lane, one.turn_id) for one in (turn, queued)]
    running, behind = (
        QueuedTurn(one.turn_id, known["p"].decode(), time.time() + 600, 600)
        for one, known in zip((turn, queued), fields, strict=True)
    )
    waits = SuspendedTurn(running, 1, [Awaited(one) for one in asked.values()], [asked["measure"]])
    await client.temporal.start_workflow(
        LANE_WORKFLOW,
        LaneInput(lane.conversation, lane.agent, lane.contract, head=0, queue=[behind], waits=waits),
        id=client.workflow_id(lane),
        task_queue=client.settings.task_queue,
    )
    status = await conversation.status("agent")
    assert (status.turn, status.waiting, status.queue) == (turn.turn_id, (asked["send"],), (queued.turn_id,))
    known = await conversation.submit("agent", "send(a) measure(b)", turn_id=turn.turn_id)
    await known.answer(asked["send"], approve())
    assert (await turn.result()).output == "done"
    assert (await queued.result()).output == "done"
    assert office.ran == ["send a", "plain c"]
