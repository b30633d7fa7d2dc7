"""What one pass of history editing does, one behaviour a test."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.errors import ConfigurationError, HistoryProcessingError, HistoryProcessingValidationError
from laneway.history.context import HistoryProcessorState
from laneway.history.editing import EditOutcome
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.scopes import HistoryProcessingSettings, in_force

from tests.history.edits import DIALECT, Context, edit, entries_of, request_for, says


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def model(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def call(name: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("stock", {"q": name}, name)])


def result(name: str, text: str = "412 left") -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("stock", text, name)])


def chat(cycles: int) -> list[ModelMessage]:
    """Closed cycles, and a prompt."""
    closed = [message for n in range(cycles) for message in (user(f"question {n}"), model(f"answer {n}"))]
    return [*closed, user("now")]


def loop() -> list[ModelMessage]:
    """Two closed cycles, and a turn in the middle of its tool loop."""
    return [*chat(2)[:4], user("order"), call("a"), result("a"), call("b"), result("b")]


def part_of(message: ModelMessage, index: int = 0) -> Any:
    """A part of a message, whatever it is."""
    return message.parts[index]


async def rule_of(request: Any, processor: Any) -> tuple[str, int | None]:
    with pytest.raises(HistoryProcessingValidationError) as refused:
        await edit(request, processor)
    return refused.value.rule, refused.value.index


# What it costs


async def test_without_a_processor_nothing_is_read_or_copied() -> None:
    class Unreadable(list[ModelMessage]):
        def __iter__(self) -> Any:
            raise AssertionError("the history was read")

        def __len__(self) -> int:
            raise AssertionError("the history was read")

        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("the history was read")

    messages = chat(1)
    request = request_for(messages)
    unreadable = Unreadable()
    object.__setattr__(request, "messages", unreadable)
    outcome = await edit(request, None)
    assert (outcome.verdict, outcome.messages is unreadable) == ("unprocessed", True)
    skipped = await edit(request, lambda ctx: ctx.messages, lambda _: False)
    assert (skipped.verdict, skipped.messages is unreadable) == ("skipped", True)


# Conditions


async def test_a_condition_is_given_the_state_and_no_messages() -> None:
    seen: list[HistoryProcessorState] = []
    request = request_for(loop(), request_index=3)

    def condition(state: HistoryProcessorState) -> bool:
        seen.append(state)
        return False

    await edit(request, lambda ctx: ctx.messages, condition)
    assert seen == [
        HistoryProcessorState(
            adapter_shortname="pydantic_ai",
            model_id="test:model",
            request_index=3,
            cache_epoch=3,
            estimated_tokens=request.estimated_tokens,
            history_version="v1",
        )
    ]
    assert not hasattr(seen[0], "messages")


async def test_a_condition_is_asked_at_every_request() -> None:
    answers = [True, True, False, True]
    ran = 0

    def processor(ctx: Context) -> list[ModelMessage]:
        nonlocal ran
        ran += 1
        return ctx.messages

    for answer in answers:
        await edit(request_for(chat(1)), processor, lambda _, answer=answer: answer)
    assert ran == 3


@pytest.mark.parametrize("answer", [1, 0, None, "true", [], object()])
async def test_anything_but_a_bool_stops_the_request(answer: object) -> None:
    with pytest.raises(HistoryProcessingError, match="exactly True or False"):
        await edit(request_for(chat(1)), lambda ctx: ctx.messages, cast("Any", lambda _: answer))


async def test_an_async_condition_stops_the_request_and_leaves_no_warning() -> None:
    async def condition(state: HistoryProcessorState) -> bool:
        return True

    with pytest.raises(HistoryProcessingError, match="exactly True or False"):
        await edit(request_for(chat(1)), lambda ctx: ctx.messages, cast("Any", condition))


async def test_a_condition_that_raises_stops_the_request() -> None:
    def condition(state: HistoryProcessorState) -> bool:
        raise ValueError("no idea")

    with pytest.raises(HistoryProcessingError, match="ValueError: no idea") as failed:
        await edit(request_for(chat(1)), lambda ctx: ctx.messages, condition)
    assert isinstance(failed.value.__cause__, ValueError)


# Processors


async def test_a_sync_processor_runs_in_a_worker_thread_and_an_async_one_does_not() -> None:
    threads: list[bool] = []

    def sync(ctx: Context) -> list[ModelMessage]:
        threads.append(threading.current_thread() is threading.main_thread())
        return ctx.messages

    async def asynchronous(ctx: Context) -> list[ModelMessage]:
        threads.append(threading.current_thread() is threading.main_thread())
        return ctx.messages

    class Callback:
        async def __call__(self, ctx: Context) -> list[ModelMessage]:
            return await asynchronous(ctx)

    for processor in (sync, asynchronous, Callback()):
        await edit(request_for(chat(1)), processor)
    assert threads == [False, True, True]


async def test_a_late_result_of_a_cancelled_sync_processor_is_discarded() -> None:
    started, release, returned = threading.Event(), threading.Event(), threading.Event()

    def processor(ctx: Context) -> list[ModelMessage]:
        started.set()
        release.wait(10)
        returned.set()
        return ctx.keep_recent_groups(0)

    task = asyncio.create_task(edit(request_for(chat(3)), processor))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not returned.is_set()
    release.set()
    await asyncio.to_thread(returned.wait, 10)


async def test_a_processor_that_swallows_its_cancellation_changes_nothing() -> None:
    started = asyncio.Event()

    async def processor(ctx: Context) -> list[ModelMessage]:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return ctx.keep_recent_groups(0)
        return ctx.messages

    task = asyncio.create_task(edit(request_for(chat(3)), processor))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_processor() -> None:
    async def processor(ctx: Context) -> list[ModelMessage]:
        raise asyncio.CancelledError

    with pytest.raises(HistoryProcessingError, match="CancelledError"):
        await edit(request_for(chat(1)), processor)


async def test_calling_the_same_adapter_from_inside_its_processor_is_an_error() -> None:
    adapter, other = object(), object()
    outcomes: list[EditOutcome[ModelMessage]] = []

    async def nested(ctx: Context) -> list[ModelMessage]:
        outcomes.append(await edit(request_for(chat(1), owner=other), lambda inner: inner.messages))
        await edit(request_for(chat(1), owner=adapter), lambda inner: inner.messages)
        return ctx.messages

    def nested_in_thread(ctx: Context) -> list[ModelMessage]:
        asyncio.run(edit(request_for(chat(1), owner=adapter), lambda inner: inner.messages))
        return ctx.messages

    for processor in (nested, nested_in_thread):
        with pytest.raises(HistoryProcessingError, match="its own history processor"):
            await edit(request_for(chat(1), owner=adapter), processor)
    assert [outcome.verdict for outcome in outcomes] == ["no-op"], "another adapter may be used"
    await edit(request_for(chat(1), owner=adapter), lambda ctx: ctx.messages)


async def test_edits_in_place_do_not_reach_the_stored_history() -> None:
    messages = loop()
    before = [says(message) for message in messages]

    def processor(ctx: Context) -> list[ModelMessage]:
        for message in ctx.messages:
            part_of(message).content = "gone"
        ctx.messages.clear()
        raise RuntimeError

    with pytest.raises(HistoryProcessingError):
        await edit(request_for(messages, request_index=3), processor)
    assert [says(message) for message in messages] == before


async def test_what_a_processor_does_later_to_what_it_returned_is_not_seen() -> None:
    note = user("summary")
    outcome = await edit(request_for(chat(2)), lambda ctx: [note, *ctx.keep_recent_groups(0)])
    part_of(note).content = "changed"
    assert b"changed" not in b"".join(map(says, outcome.messages))


# keep_recent_groups


async def test_keep_recent_counts_closed_unprotected_groups_only() -> None:
    messages = [ModelRequest(parts=[SystemPromptPart("rules")]), *chat(3)]
    kept: list[int] = []

    def processor(ctx: Context) -> list[ModelMessage]:
        kept.extend(len(ctx.keep_recent_groups(n)) for n in (0, 1, 2, 3, 99))
        before = list(ctx.messages)
        assert ctx.messages == before
        return ctx.messages

    await edit(request_for(messages), processor)
    assert kept == [2, 4, 6, 8, 8]


@pytest.mark.parametrize(("n", "error"), [(True, TypeError), (False, TypeError), (1.0, TypeError), (-1, ValueError)])
async def test_keep_recent_takes_a_nonnegative_int(n: Any, error: type[Exception]) -> None:
    with pytest.raises(HistoryProcessingError) as failed:
        await edit(request_for(chat(1)), lambda ctx: ctx.keep_recent_groups(n))
    assert isinstance(failed.value.__cause__, error)


# Edits


async def test_changed_metadata_is_no_edit_and_changes_no_origin() -> None:
    entries = entries_of(chat(1), "run-1")

    def processor(ctx: Context) -> list[ModelMessage]:
        for message in ctx.messages:
            message.metadata = {"origin": "forged"}
            message.run_id = "forged"
        return ctx.messages

    outcome = await edit(request_for(chat(1), entries), processor)
    assert outcome.verdict == "no-op"
    assert outcome.entries is entries


async def test_an_accepted_edit_has_a_receipt_and_keeps_origins_with_their_messages() -> None:
    messages = [*loop()[:4], user("order"), call("a"), result("a")]
    origins = [EntryMetadata((HistoryOrigin("user", run_id=f"run-{n}"),), estimated_tokens=50) for n in range(7)]

    def summarize(ctx: Context) -> list[ModelMessage]:
        return [user("question?"), model("summary"), *ctx.messages[ctx.groups[1].entry_start :]]

    request = request_for(messages, origins, request_index=2)
    outcome = await edit(request, summarize)
    assert outcome.verdict == "accepted"
    name = f"{__name__}:{summarize.__qualname__}"
    added = HistoryOrigin("processor", run_id="turn-9", source_location=name)
    assert [entry.origins for entry in outcome.entries] == [(added,), (added,), *(e.origins for e in origins[2:])]
    assert [entry.estimated_tokens for entry in outcome.entries[2:]] == [50] * 5
    assert outcome.messages[2:] == messages[2:]
    assert all(kept is given for kept, given in zip(outcome.messages[2:], messages[2:], strict=True))
    receipt = outcome.receipt
    assert receipt is not None
    assert (receipt.request_index, receipt.processor) == (2, name)
    assert (receipt.groups_before, receipt.groups_after, receipt.entries_before, receipt.entries_after) == (3, 3, 7, 7)
    assert (receipt.epoch_before, receipt.epoch_after) == (3, 4)
    assert receipt.tokens_before == 350
    assert receipt.tokens_after == sum(entry.estimated_tokens or 0 for entry in outcome.entries)


async def test_a_rewrite_then_the_same_processor_again_is_a_no_op() -> None:
    def processor(ctx: Context) -> list[ModelMessage]:
        return ctx.keep_recent_groups(1)

    first = await edit(request_for(chat(4)), processor)
    assert first.verdict == "accepted"
    again = await edit(request_for(first.messages, first.entries), processor)
    assert (again.verdict, again.messages is first.messages) == ("no-op", True)


async def test_neighbours_change_places_but_never_across_a_protected_group() -> None:
    messages = [*chat(2)[:4], ModelRequest(parts=[SystemPromptPart("from here on: brief")]), *chat(1)]

    def order(*numbers: int) -> Any:
        return lambda ctx: [
            message
            for number in numbers
            for message in ctx.messages[ctx.groups[number].entry_start : ctx.groups[number].entry_end]
        ]

    assert (await edit(request_for(messages), order(1, 0, 2, 3, 4))).verdict == "accepted"
    assert await rule_of(request_for(messages), order(0, 2, 1, 3, 4)) == ("crossed_protected", 2)
    assert await rule_of(request_for(messages), order(3, 0, 1, 2, 4)) == ("crossed_protected", 5)
    assert await rule_of(request_for(messages), order(0, 1, 3, 2, 4)) == ("crossed_protected", 5)


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (lambda m: [*m[:4], *m[5:]], ("current_request_missing", 4)),
        (lambda m: [*m[:5], *m[7:]], ("protected_removed", 5)),
        (lambda m: m[:8], ("current_request_missing", 8)),
        (lambda m: [*m[:6], result("a", "[cleared]"), *m[7:]], ("protected_changed", 6)),
        (lambda m: [*m, user("and one more thing")], ("current_request_missing", 9)),
        (lambda m: [*m[:4], user("altered"), *m[5:]], ("protected_changed", 4)),
        (lambda m: [*m[:5], user("inside"), *m[5:]], ("partial_group", 5)),
    ],
)
async def test_the_running_turn_stays_as_it_is(processor: Any, expected: tuple[str, int]) -> None:
    request = request_for(loop(), request_index=3)
    assert await rule_of(request, lambda ctx: processor(ctx.messages)) == expected


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (lambda m: [m[1], m[0], *m[2:]], ("order_changed", 0)),
        (lambda m: [m[0], m[2], m[3], m[1], m[4]], ("partial_group", 1)),
        (lambda m: [m[0], *m[2:]], ("partial_group", 1)),
        (lambda m: m[1:], ("partial_group", 1)),
        (lambda m: [*m[:4], *m[:2], m[4]], ("duplicate_group", 4)),
        (lambda m: [model("I begin"), *m], ("opens_with_model", 0)),
        (lambda m: [user("  "), *m], ("empty_text", 0)),
        (lambda m: [ModelRequest(parts=[SystemPromptPart("be brief")]), *m[2:]], ("system_replaced", 0)),
        (lambda m: [*m[:2], call("x"), *m[2:]], ("orphan_call", 2)),
        (lambda m: [*m[:2], user("x"), call("x"), result("x"), *m[2:]], ("fabricated_record", 3)),
        (lambda m: [*m[:2], ModelRequest(parts=[]), *m[2:]], ("empty_text", 2)),
    ],
)
async def test_closed_groups_go_whole_or_not_at_all(processor: Any, expected: tuple[str, int]) -> None:
    assert await rule_of(request_for(chat(2)), lambda ctx: processor(ctx.messages)) == expected


async def test_equal_groups_are_told_apart() -> None:
    cycle = [user("yes?"), model("ok"), user("yes?"), model("sure"), user("now")]
    outcome = await edit(request_for(cycle), lambda ctx: [user("yes?"), model("sure"), *ctx.messages[4:]])
    assert outcome.verdict == "accepted"
    assert outcome.messages[0] is cycle[2]


# Shared native messages


async def test_system_text_stays_when_the_cycle_that_it_shares_a_message_with_goes() -> None:
    first = ModelRequest(parts=[SystemPromptPart("rules"), UserPromptPart("question")], instructions="be brief")
    messages: list[ModelMessage] = [first, model("answer"), user("now")]
    seen: list[list[str]] = []

    def processor(ctx: Context) -> list[ModelMessage]:
        seen.append([part.part_kind for message in ctx.messages for part in message.parts])
        return ctx.keep_recent_groups(0)

    outcome = await edit(request_for(messages, entries_of(messages, "run-1")), processor)
    assert seen == [["system-prompt", "user-prompt", "text", "user-prompt"]]
    assert [part.part_kind for part in outcome.messages[0].parts] == ["system-prompt", "user-prompt"]
    assert [part_of(outcome.messages[0], n).content for n in (0, 1)] == ["rules", "now"]
    assert [origin.kind for origin in outcome.entries[0].origins] == ["system", "user"]
    assert len(outcome.messages) == 1


async def test_a_shared_message_that_is_kept_whole_is_the_stored_one() -> None:
    first = ModelRequest(parts=[SystemPromptPart("rules"), UserPromptPart("question")], instructions="be brief")
    messages: list[ModelMessage] = [first, model("answer"), *chat(1)]
    outcome = await edit(request_for(messages), lambda ctx: [m for m in ctx.messages if m not in ctx.messages[3:5]])
    assert outcome.verdict == "accepted"
    assert outcome.messages[0] is first


async def test_the_results_that_end_a_turn_belong_to_it_and_not_to_the_prompt_they_are_merged_with() -> None:
    ended = ModelRequest(parts=[ToolReturnPart("final_result", "Final result processed.", "f"), UserPromptPart("next")])
    messages: list[ModelMessage] = [user("first"), ModelResponse(parts=[ToolCallPart("final_result", {}, "f")]), ended]
    outcome = await edit(request_for(messages), lambda ctx: ctx.keep_recent_groups(0))
    assert [says(message) for message in outcome.messages] == [says(user("next"))]


async def test_text_that_a_tool_returned_beside_its_result_is_no_prompt() -> None:
    beside = ModelRequest(parts=[ToolReturnPart("photo", "taken", "a"), UserPromptPart("here it is")])
    running: list[ModelMessage] = [*chat(1)[:2], user("take a photo"), call("a"), beside, call("b"), result("b")]
    request = request_for(running, request_index=3)
    assert await rule_of(request, lambda ctx: [*ctx.messages[:2], *ctx.messages[5:]]) == ("current_request_missing", 2)
    finished = [*running, model("done"), user("now")]
    entries = [*entries_of(chat(1)[:2], "run-1"), *entries_of([*running[2:], model("done")], "run-2")]
    seen: list[int] = []

    def processor(ctx: Context) -> list[ModelMessage]:
        seen.extend(len(group) for group in ctx.groups)
        return ctx.messages

    await edit(request_for(finished, [*entries, *entries_of([user("now")], "run-3")]), processor)
    assert seen == [2, 7, 1]


# Scopes


def test_a_scope_is_never_changed_by_what_is_resolved_from_it() -> None:
    def first(ctx: Context) -> list[ModelMessage]:
        return ctx.messages

    def second(ctx: Context) -> list[ModelMessage]:
        return ctx.messages

    def condition(state: HistoryProcessorState) -> bool:
        return True

    adapter = HistoryProcessingSettings(first, condition)
    assert in_force([adapter, HistoryProcessingSettings(second)]).condition is None
    assert in_force([adapter, HistoryProcessingSettings(condition=None)]).processor is first
    assert in_force([adapter, HistoryProcessingSettings(condition=None)]).condition is None
    assert in_force([adapter]).condition is condition
    with pytest.raises(ConfigurationError):
        in_force([adapter, HistoryProcessingSettings(processor=None, condition=condition)])
    with pytest.raises(ConfigurationError):
        in_force([HistoryProcessingSettings[ModelMessage](condition=condition)])


def test_a_detached_copy_shares_nothing_that_can_change() -> None:
    message = ModelResponse(parts=[ToolCallPart("stock", {"q": {"deep": [1]}}, "a")], provider_details={"x": [1]})
    copied = DIALECT.detached(message)
    assert copied == message
    part_of(copied).args["q"]["deep"].append(2)
    cast("Any", copied).provider_details["x"].append(2)
    assert part_of(message).args == {"q": {"deep": [1]}}
    assert message.provider_details == {"x": [1]}
