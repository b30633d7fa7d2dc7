"""Edits in turns: what the model is sent, and what the lane has afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from laneway import EventKind, HistoryProcessorContext, HistoryProcessorState
from laneway.errors import TurnFailed

from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder, keep
from tests.support.bench import Bench


@pytest.fixture(params=[Recorder, LangChainRecorder], ids=["pydantic_ai", "langchain"])
def agent(request: pytest.FixtureRequest) -> AnyRecorder:
    """The same agent in each framework."""
    recorder: AnyRecorder = request.param()
    return recorder


async def test_an_accepted_edit_is_sent_and_replaces_the_history(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):
    """Each rewrite is one epoch, committed with its turn; the next turn begins from what is left."""
    client = await bench.serve({"agent": agent.adapter(keep(1))})
    conversation = client.conversation(conversation_id)
    for n in range(4):
        result = await conversation.ask("agent", f"q{n}")
        assert result.steps == 1
    assert agent.sent == [
        ["q0"],
        ["q0", "re: q0", "q1"],
        ["q1", "re: q1", "q2"],
        ["q2", "re: q2", "q3"],
    ]
    assert agent.texts_of(await conversation.messages("agent")) == ["q2", "re: q2", "q3", "re: q3"]
    assert (await conversation.status("agent")).epoch == 2
    records = await client.turns(conversation.lane("agent"))
    assert [record.tally.noops for record in records] == [1, 1, 0, 0]
    receipt = records[2].tally.edits[0]
    assert (receipt.groups_before, receipt.groups_after) == (3, 2)
    assert (receipt.entries_before, receipt.entries_after) == (5, 3)
    assert (receipt.epoch_before, receipt.epoch_after) == (0, 1)
    assert receipt.tokens_after < receipt.tokens_before
    assert "keep" in receipt.processor


async def test_a_condition_that_answers_false_skips_the_processor_and_is_asked_again(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):
    """Level-triggered: it is asked before every request, the later ones of a tool loop included."""
    asked: list[HistoryProcessorState] = []

    def condition(state: HistoryProcessorState) -> bool:
        asked.append(state)
        return len(asked) > 3

    client = await bench.serve({"agent": agent.adapter(keep(0), history_processor_condition=condition)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "look")
    await conversation.ask("agent", "q2")
    assert [state.request_index for state in asked] == [1, 1, 2, 1]
    assert [state.cache_epoch for state in asked] == [0, 0, 0, 0]
    assert asked[1].estimated_tokens > asked[0].estimated_tokens
    assert len({state.history_version for state in asked}) == 4
    assert agent.sent[-1] == ["q2"]
    records = await client.turns(conversation.lane("agent"))
    assert [record.tally.skips for record in records] == [1, 2, 0]


async def test_two_rewrites_in_a_turn_advance_two_epochs_and_later_steps_see_them(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):
    """An edit before the second request of a tool loop: the loop stays, older groups go."""

    def newest_but_one(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        closed = [group for group in ctx.groups if group.closed and not group.protected]
        return ctx.keep_recent_groups(len(closed) - 1) if closed else ctx.messages

    client = await bench.serve({"agent": agent.adapter(newest_but_one), "plain": agent.adapter()})
    conversation = client.conversation(conversation_id)
    history = [m for n in range(3) for m in (agent.user(f"old {n}"), agent.answer(f"re: old {n}"))]
    await conversation.import_messages("agent", history)
    await conversation.ask("agent", "look")
    assert agent.sent == [
        ["old 1", "re: old 1", "old 2", "re: old 2", "look"],
        ["old 2", "re: old 2", "look", "look()", "seen"],
    ]
    assert (await conversation.status("agent")).epoch == 2
    assert agent.texts_of(await conversation.messages("agent")) == [
        "old 2",
        "re: old 2",
        "look",
        "look()",
        "seen",
        "re: look",
    ]


async def test_a_rewrite_and_then_a_no_op_are_one_epoch(bench: Bench, conversation_id: str, agent: AnyRecorder):
    client = await bench.serve({"agent": agent.adapter(keep(0))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "look look")
    assert agent.sent[1:] == [
        ["look look"],
        ["look look", "look()", "seen"],
        ["look look", "look()", "seen", "look()", "seen"],
    ]
    assert (await conversation.status("agent")).epoch == 1
    record = (await client.turns(conversation.lane("agent")))[-1]
    assert (len(record.tally.edits), record.tally.noops) == (1, 2)


async def test_failure_after_a_rewrite_leaves_the_old_history_and_epoch(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):
    """Nothing of the edit outlives its turn, whether it fails or is cancelled."""
    agent.fails.add("bad")
    client = await bench.serve({"agent": agent.adapter(keep(0))})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    await conversation.ask("agent", "q0")
    head = await client.store.head(lane)
    with pytest.raises(TurnFailed):
        await conversation.ask("agent", "bad")
    assert agent.sent[-1] == ["bad"]
    assert await client.store.head(lane) == head
    assert agent.texts_of(await conversation.messages("agent")) == ["q0", "re: q0"]


async def test_cancellation_during_a_rewrite_discards_the_late_result(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):
    """A sync processor runs on in its thread; what it returns is not used, and nothing is sent."""
    import threading

    began, may_return = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        if len(ctx.groups) == 1:
            return ctx.messages
        loop.call_soon_threadsafe(began.set)
        assert may_return.wait(30)
        return ctx.keep_recent_groups(0)

    client = await bench.serve({"agent": agent.adapter(slow)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    turn = await conversation.submit("agent", "q1")
    await began.wait()
    assert await turn.cancel() == "cancelled"
    may_return.set()
    assert agent.sent == [["q0"]]
    assert (await conversation.status("agent")).epoch == 0


@pytest.mark.parametrize(
    ("returned", "rule"),
    [
        (lambda ctx: [], "empty"),
        (lambda ctx: None, "not_a_sequence"),
        (lambda ctx: [{"kind": "request"}], "not_native"),
        (lambda ctx: ctx.messages[:-1], "current_request_missing"),
        (lambda ctx: ctx.messages[1:], "partial_group"),
    ],
)
async def test_a_rejected_edit_fails_the_turn_before_anything_is_sent(
    bench: Bench, conversation_id: str, agent: AnyRecorder, returned, rule: str
):
    client = await bench.serve(
        {"agent": agent.adapter(lambda ctx: returned(ctx) if len(ctx.groups) > 1 else ctx.messages)}
    )
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    with pytest.raises(TurnFailed, match=rule) as failed:
        await conversation.ask("agent", "q1")
    assert failed.value.error_type == "HistoryProcessingValidationError"
    assert agent.sent == [["q0"]]
    assert agent.texts_of(await conversation.messages("agent")) == ["q0", "re: q0"]


async def test_an_exception_in_a_callback_fails_the_turn_before_anything_is_sent(
    bench: Bench, conversation_id: str, agent: AnyRecorder
):

    def broken(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        raise RuntimeError("no luck")

    client = await bench.serve({"agent": agent.adapter(broken)})
    with pytest.raises(TurnFailed, match="no luck") as failed:
        await client.conversation(conversation_id).ask("agent", "q0")
    assert failed.value.error_type == "HistoryProcessingError"
    assert agent.sent == []


async def test_origins_survive_edits_turns_and_storage(bench: Bench, conversation_id: str, agent: AnyRecorder):
    """Later turns, of other workers too, know what a message came from; a text for a group is its processor's."""
    seen: list[list[tuple[str, str | None, str | None]]] = []

    def summarize(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        seen.append([(o.kind, o.run_id, o.tool_name) for entry in ctx.entries for o in entry.origins])
        if len(ctx.groups) < 4:
            return ctx.messages
        return [agent.user("summary"), *ctx.keep_recent_groups(1)]

    await (worker := await bench.worker({"agent": agent.adapter(summarize)})).__aenter__()
    client = await bench.client({"agent": agent.adapter(summarize)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0", turn_id="t0")
    await conversation.ask("agent", "look", turn_id="t1")
    await conversation.ask("agent", "q2", turn_id="t2")
    await conversation.ask("agent", "q3", turn_id="t3")
    await worker.aclose()
    await bench.worker({"agent": agent.adapter(summarize)})
    await conversation.ask("agent", "q4", turn_id="t4")
    assert ("tool", "t1", "look") in seen[2]
    assert seen[-1][0] == ("processor", "t3", None)
    assert ("user", "t2", None) in seen[-1]
    assert ("model", "t3", None) in seen[-1]


async def test_a_rewrite_is_an_event_on_the_stream(bench: Bench, conversation_id: str, agent: AnyRecorder):
    client = await bench.serve({"agent": agent.adapter(keep(0))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    turn = await conversation.submit("agent", "q1")
    events = [event async for event in turn.events()]
    rewritten = next(event for event in events if event.kind is EventKind.HISTORY_REWRITTEN)
    assert rewritten.data["entries_before"] == 3
    assert rewritten.data["entries_after"] == 1
