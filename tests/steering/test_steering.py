"""A message that steers a turn enters it before its next model request, and commits with it or is a turn of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from laneway import Hooks, LanewayClient, RequestBudget, approve
from laneway.conversations import Conversation
from laneway.errors import LaneBusy, TurnCancelled, TurnConflict, TurnFailed
from laneway.turns import Turn

from tests.steering.agents import Held, shape
from tests.support.bench import Bench
from tests.waiting.agents import Office
from tests.waiting.test_answers import waiting

FRAMEWORKS = ["pydantic_ai", "langchain"]


async def begun(client: LanewayClient, held: Held, conversation: Conversation, prompt: str) -> Turn:
    turn = await conversation.submit("agent", prompt, turn_id="running")
    async with asyncio.timeout(30):
        await held.begun.wait()
    return turn


async def steer(conversation: Conversation, prompt: str, **options: Any) -> Turn:
    return await conversation.submit("agent", prompt, turn_id=prompt, when_busy="steer", **options)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_messages_enter_the_turn_that_runs_in_order_and_commit_with_it(
    bench: Bench, conversation_id: str, framework: str
):
    held = Held()
    client = await bench.serve({"agent": held.of(framework)})
    conversation = client.conversation(conversation_id)
    turn = await begun(client, held, conversation, "work")
    later = await conversation.submit("agent", "later")
    first = await steer(conversation, "first")
    second, third = await asyncio.gather(steer(conversation, "second"), steer(conversation, "third"))
    assert (await conversation.status("agent")).steering == ("first", "second", "third")
    assert (await steer(conversation, "first")).turn_id == "first"  # again, and it is there once
    with pytest.raises(TurnConflict):
        await conversation.submit("agent", "other", turn_id="first", when_busy="steer")
    held.gate.set()
    assert (await turn.result()).output == "work, first, second, third"
    record = await turn.record()
    assert record.tally.taken == ["first", "second", "third"]
    for one in (first, second, third):
        result = await one.result()
        assert (result.output, result.steered_into) == ("work, first, second, third", "running")
        assert await one.cancel() == "already_committed"
        events = [event async for event in one.events()]
        assert [(event.kind.value, event.data) for event in events] == [("turn.committed", {"into": "running"})]
    assert (await later.result()).output == "later"
    assert shape(await conversation.messages("agent")) == [
        "user work",
        "calls",
        "result held",
        "user first",
        "user second",
        "user third",
        "says work, first, second, third",
        "user later",
        "says later",
    ]
    assert held.seen[1] == ["user work", "calls", "result held", "user first", "user second", "user third"]
    assert (await steer(conversation, "first")).turn_id == "first"
    told = [one.data["turn"] async for one in turn.events() if one.kind == "message.taken"]
    assert told == ["first", "second", "third"]
    assert [one.turn_id for one in await client.turns(turn.lane)] == [
        "running",
        "first",
        "second",
        "third",
        later.turn_id,
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_what_comes_too_late_or_to_an_idle_lane_is_a_turn_of_its_own(
    bench: Bench, conversation_id: str, framework: str
):
    held = Held()
    client = await bench.serve({"agent": held.of(framework)})
    conversation = client.conversation(conversation_id)
    idle = await steer(conversation, "idle")
    assert (await idle.result()).steered_into is None
    turn = await begun(client, held, conversation, "last")
    later = await conversation.submit("agent", "later")
    late = await steer(conversation, "late")
    held.gate.set()
    assert (await turn.result()).output == "last"
    result = await late.result()
    assert (result.output, result.steered_into) == ("late", None)
    await later.result()
    assert [one.turn_id for one in await client.turns(turn.lane)] == ["idle", "running", "late", later.turn_id]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_turn_that_comes_to_nothing_leaves_its_messages_to_turns_of_their_own(
    bench: Bench, conversation_id: str, framework: str
):
    """Taken in already where the turn fails, not yet where it is cancelled; one is cancelled itself before."""
    held = Held()
    client = await bench.serve({"agent": held.of(framework)})
    conversation = client.conversation(conversation_id)
    turn = await begun(client, held, conversation, "fail")
    one, other = await steer(conversation, "one"), await steer(conversation, "other")
    held.gate.set()
    with pytest.raises(TurnFailed, match="cannot"):
        await turn.result()
    assert [await one.result() == await other.result(), (await one.result()).output] == [False, "one"]
    assert (await turn.record()).tally.taken == []
    held.gate.clear()
    held.begun.clear()
    running = await conversation.submit("agent", "work")
    async with asyncio.timeout(30):
        await held.begun.wait()
    stays, goes = await steer(conversation, "stays"), await steer(conversation, "goes")
    assert await goes.cancel() == "cancelled"
    urgent = await conversation.submit("agent", "urgent", when_busy="interrupt")
    with pytest.raises(TurnCancelled):
        await running.result()
    assert [(await urgent.result()).output, (await stays.result()).output] == ["urgent", "stays"]
    assert shape(await conversation.messages("agent")) == [
        "user one",
        "says one",
        "user other",
        "says other",
        "user urgent",
        "says urgent",
        "user stays",
        "says stays",
    ]


async def test_a_turn_that_waits_takes_it_when_it_goes_on(bench: Bench, conversation_id: str):
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "send(letter)")
    asked = (await waiting(turn))["send"].request
    steering, refused = await steer(conversation, "plain(a)"), await steer(conversation, "plain(b)")
    assert await refused.cancel() == "cancelled"
    await turn.answer(asked.id, approve())
    assert (await steering.result()).steered_into == turn.turn_id
    assert (office.ran, office.asked) == (["send letter", "plain a"], 3)


async def test_what_the_running_turn_may_not_take_becomes_a_turn_of_its_own(bench: Bench, conversation_id: str):
    """A message with a budget of its own, one that a hook is to be asked about, and what a full queue refuses."""
    held = Held()
    client = await bench.serve({"agent": held.pydantic()}, queue_limit=2)
    conversation = client.conversation(conversation_id)
    turn = await begun(client, held, conversation, "work")
    other = await steer(conversation, "other", budget=RequestBudget(request_limit=1))
    hurried = await steer(conversation, "hurried", timeout=0.2)
    with pytest.raises(LaneBusy):
        await steer(conversation, "too many")
    with pytest.raises(TurnFailed, match="timeout"):
        await hurried.result()
    held.gate.set()
    assert [(await turn.result()).output, (await other.result()).output] == ["work", "other"]
    asked: list[object] = []
    hooks = Hooks(user_prompt_submit=lambda event: asked.append(event.prompt))
    held = Held()
    client = await bench.serve({"agent": held.pydantic(hooks=hooks)}, task_queue=f"hooked-{conversation_id}")
    conversation = client.conversation(f"{conversation_id}-hooked")
    turn = await begun(client, held, conversation, "work")
    other = await steer(conversation, "other")
    held.gate.set()
    assert [(await turn.result()).output, (await other.result()).output] == ["work", "other"]
    assert asked == ["work", "other"]
