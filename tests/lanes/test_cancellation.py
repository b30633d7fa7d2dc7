"""A cancelled turn leaves its record and nothing else, wherever it was."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from laneway import Settings
from laneway.activities.wire import QueuedTurn
from laneway.errors import TurnCancelled

from tests.delegation.test_delegation import children_of
from tests.lanes.agents import Paced, prompts_of
from tests.support.bench import Bench
from tests.support.ledgered import agents
from tests.support.stops import Stops
from tests.support.workers import WorkerNursery, WorkerProcess


async def test_a_queued_turn_is_cancelled_at_once_while_another_runs(bench: Bench, conversation_id: str, paced: Paced):
    """It does not wait for its place in the queue to be told."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    running = await conversation.submit("agent", "wait")
    queued = await conversation.submit("agent", "queued")
    after = await conversation.submit("agent", "after")
    await paced.begun["wait"].wait()
    assert await queued.cancel() == "cancelled"
    assert not paced.gates["wait"].is_set()
    paced.release("wait")
    assert (await running.result()).output == "re: wait"
    assert (await after.result()).output == "re: after"
    assert paced.asked == ["wait", "after"]
    with pytest.raises(TurnCancelled):
        await queued.result()


async def test_a_turn_in_its_model_request_is_cancelled_and_the_next_one_runs_as_if_it_had_never_been(
    bench: Bench, conversation_id: str, paced: Paced
):
    """The request is cancelled, the history has only the other turns."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")
    turn = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    assert await turn.cancel() == "cancelled"
    assert paced.cancelled == ["wait"]
    assert (await conversation.ask("agent", "second")).output == "re: second"
    assert prompts_of(await conversation.messages("agent")) == ["first", "second"]


async def test_async_tools_are_cancelled_and_the_results_of_sync_ones_are_discarded(
    bench: Bench, conversation_id: str, paced: Paced
):
    """A thread cannot be stopped: it runs to its end unseen."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "tools")
    await paced.begun["slow"].wait()
    await asyncio.to_thread(paced.begun_threads.wait, 10)
    try:
        cancelling = asyncio.create_task(turn.cancel())
        while "slow" not in paced.cancelled:
            await asyncio.sleep(0.01)
    finally:
        paced.thread_gate.set()
    assert await cancelling == "cancelled"
    assert paced.finished in ([], ["threaded"])
    assert (await conversation.ask("agent", "next")).output == "re: next"
    assert prompts_of(await conversation.messages("agent")) == ["next"]


async def test_cancelling_after_the_end_says_how_the_turn_ended(bench: Bench, conversation_id: str, paced: Paced):
    """Committed and failed turns stay so; cancelling twice says `cancelled` twice; an unknown id is unknown."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    committed = await conversation.submit("agent", "fine")
    await committed.result()
    assert await committed.cancel() == "already_committed"
    failed = await conversation.submit("agent", "fail")
    await failed.record()
    assert await failed.cancel() == "already_failed"
    twice = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    assert await asyncio.gather(twice.cancel(), twice.cancel()) == ["cancelled", "cancelled"]
    assert await twice.cancel() == "cancelled"
    assert await conversation.turn("agent", "nobody").cancel() == "unknown"
    assert await client.conversation(f"{conversation_id}-new").turn("agent", "nobody").cancel() == "unknown"


async def test_a_cancellation_without_a_worker_takes_effect_when_one_comes(
    bench: Bench, conversation_id: str, paced: Paced
):
    """The signal is durable: the turn that was left running is cancelled, the queued one too, and neither is asked."""
    worker = await bench.worker(paced.agents())
    client = await bench.client(paced.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "wait")
    await paced.begun["wait"].wait()
    queued = await conversation.submit("agent", "queued")
    await worker.aclose()
    cancelling = [asyncio.create_task(one.cancel()) for one in (turn, queued)]
    done, _ = await asyncio.wait(cancelling, timeout=1)
    assert not done
    await bench.worker(paced.agents())
    assert await asyncio.gather(*cancelling) == ["cancelled", "cancelled"]
    assert (await conversation.ask("agent", "next")).output == "re: next"
    assert "queued" not in paced.asked
    assert prompts_of(await conversation.messages("agent")) == ["next"]


async def test_a_cancellation_that_races_the_commit_gives_one_consistent_outcome(
    bench: Bench, conversation_id: str, paced: Paced
):
    """Whatever `cancel` answers is what the record says, and what the history shows."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    committed: list[str] = []
    for n in range(40):
        turn = await conversation.submit("agent", f"turn {n}")
        await asyncio.sleep(0.002 * (n % 20))
        answer = await turn.cancel()
        record = await turn.record()
        assert (answer, record.outcome) in [("cancelled", "cancelled"), ("already_committed", "committed")]
        if record.outcome == "committed":
            committed.append(f"turn {n}")
    assert prompts_of(await conversation.messages("agent")) == committed


async def test_an_operator_who_cancels_the_workflow_ends_its_turns_and_not_its_history(
    bench: Bench, conversation_id: str, paced: Paced
):
    """What runs and what waits is cancelled, with its record; the next turn starts the lane again where it was."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")
    turns = [await conversation.submit("agent", prompt) for prompt in ("wait", "queued", "queued too")]
    await paced.begun["wait"].wait()
    await client.temporal.get_workflow_handle(client.workflow_id(conversation.lane("agent"))).cancel()
    assert [(await turn.record()).outcome for turn in turns] == ["cancelled"] * 3
    assert paced.cancelled == ["wait"]
    assert (await conversation.ask("agent", "second")).output == "re: second"
    assert prompts_of(await conversation.messages("agent")) == ["first", "second"]


@pytest.mark.parametrize("agent", ["helper", "lead", "lead of graphs"])
async def test_who_is_cancelled_while_its_worker_is_gone_is_cancelled(
    nursery: WorkerNursery, settings: Settings, bench: Bench, conversation_id: str, tmp_path: Path, agent: str
):
    """By its workflow, as an operator does and as a parent does: its step's silence is not how the turn ended."""
    bench.settings = settings.model_copy(update={"heartbeat_timeout": timedelta(seconds=6)})
    folder = tmp_path / "worker"
    # Where the cancellation is late, the next attempt hears of it.
    adapters = agents(folder / "ledger", Stops("helper", tmp_path / "stopped"))
    client = await bench.client(adapters)
    async with WorkerProcess(nursery, folder, bench.settings, stop="helper") as worker:
        turn = await client.conversation(conversation_id).submit(agent, "go")
        assert await worker.killed() == "helper"
    await bench.worker(adapters)
    if agent == "helper":
        await client.temporal.get_workflow_handle(client.workflow_id(turn.lane)).cancel()
    else:
        assert await turn.cancel() == "cancelled"
        (child,) = await children_of(client, turn)
        (record,) = await client.turns(child.lane)
        assert (record.outcome, record.error_type) == ("cancelled", None)
    assert (await turn.record()).outcome == "cancelled"


async def test_the_record_of_a_cancelled_turn_says_what_it_had_used(bench: Bench, conversation_id: str, paced: Paced):
    """The answer that its first step paid for is not kept, and not forgotten either."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "tools")
    await paced.begun["slow"].wait()
    paced.thread_gate.set()
    await turn.cancel()
    record = await turn.record()
    assert (record.usage.requests, record.usage.input_tokens) == (1, 1)
    assert record.started_at is not None


async def test_a_turn_whose_submit_was_never_accepted_is_cancelled_for_good(
    bench: Bench, conversation_id: str, paced: Paced
):
    """Its prompt was kept, and its client died before the lane heard of it: it ends, and is not run if it comes."""
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "first")
    await client.store.inputs.put(conversation.lane("agent"), "orphan", digest="d", prompt=b'"hello"', claim="dead")
    assert await conversation.turn("agent", "orphan").cancel() == "cancelled"
    assert (await client.submissions.update(conversation.lane("agent"), QueuedTurn("orphan", "d"))).s == "new"
    assert (await conversation.ask("agent", "next")).output == "re: next"
    assert paced.asked == ["first", "next"]


async def test_a_turn_of_many_steps_is_cancelled_wherever_it_is(bench: Bench, conversation_id: str, paced: Paced):
    """Swept over its course: in a step, between two, in its tools, about its commit. One outcome, and no trace."""
    paced.thread_gate.set()
    paced.release("slow")
    client = await bench.serve(paced.agents())
    conversation = client.conversation(conversation_id)
    committed: list[str] = []
    for n in range(50):
        turn = await conversation.submit("agent", f"tools {n}")
        await asyncio.sleep(0.004 * n)
        answer = await turn.cancel()
        record = await turn.record()
        assert (answer, record.outcome) in [("cancelled", "cancelled"), ("already_committed", "committed")]
        if record.outcome == "committed":
            committed.append(f"tools {n}")
    assert prompts_of(await conversation.messages("agent")) == committed
    keys = [key async for key in client.store.link.redis.scan_iter(f"{client.settings.redis_prefix}:*")]
    assert not [key for key in keys if b":turn:" in key or b":stage:" in key]
