"""One test for each mistake that published processors make, with the messages of both frameworks.

docs/mistakes.md lists them all, those of other parts of the product too, with the name of each one's test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.activities import langchain_editing, pydantic_editing
from laneway.errors import HistoryProcessingError
from laneway.history.budget import estimate_request
from laneway.history.estimation import estimate_history, estimate_message
from laneway.history.processor_native import native_text
from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.history.edits import FRAMES, PYDANTIC, Frame, request_for
from tests.history.oracle import why_unsendable
from tests.processors.passes import (
    ALWAYS,
    Summarizer,
    asked,
    in_frame,
    kept,
    lines,
    looked_up,
    model,
    passed,
    retry,
    says,
    system,
    texts,
    user,
    window,
)

BOTH = pytest.mark.parametrize("frame", FRAMES, ids=str)


def summary(summarizer: Any, **options: Any) -> SummarizationProcessor:
    return SummarizationProcessor(summarizer=summarizer, **{"trigger": ALWAYS, "keep": ALWAYS, **options})


def results_of(messages: Sequence[Any]) -> list[str]:
    """The ids of the calls that are answered, in order."""
    return [
        call
        for message in messages
        for call in (
            [message.tool_call_id]
            if hasattr(message, "tool_call_id")
            else [part.tool_call_id for part in getattr(message, "parts", ()) if isinstance(part, ToolReturnPart)]
        )
    ]


def why_not(frame: Frame, messages: Sequence[Any]) -> str | None:
    """What a strict provider would refuse a history for, judged where there is a judge of its messages."""
    return why_unsendable(messages) if frame is PYDANTIC else None


# Cuts -----------------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_call_and_its_result_stay_together_however_far_apart(frame: Frame) -> None:
    """A cut inside a long exchange keeps all of it; a search in the neighbourhood would split it."""
    exchange: list[ModelMessage] = [user("old one")]
    for n in range(12):
        exchange += looked_up(f"q{n}", "found")[1:3]
    messages = in_frame(frame, [*asked("older"), *exchange, model("done"), user("now")])
    outcome = await passed(window(5), messages, frame=frame)
    assert kept(outcome, messages) == [*range(2, len(messages))]


@BOTH
async def test_a_result_that_came_long_after_its_call_stays_with_it(frame: Frame) -> None:
    """Eight calls at once, answered one by one: the first call and the last result are ten messages apart."""
    ids = [f"c{n}" for n in range(8)]
    pieces = [
        *asked("older"),
        user("all of them"),
        ModelResponse(parts=[ToolCallPart("look", {}, one) for one in ids]),
        *(ModelRequest(parts=[ToolReturnPart("look", "found", one)]) for one in ids),
        model("all seen"),
        user("now"),
    ]
    messages = in_frame(frame, pieces)
    for keep in (2, 4, 9):
        outcome = await passed(window(keep), messages, frame=frame)
        assert results_of(outcome.messages) == ids
        assert texts(outcome.messages) == texts(messages[2:])


@pytest.mark.filterwarnings("ignore:.RetryPromptPart. is deprecated")
@BOTH
async def test_a_retry_is_an_answer_to_its_call(frame: Frame) -> None:
    """Of LangChain, a result whose status is an error."""
    retried: list[ModelMessage] = [
        user("try"),
        ModelResponse(parts=[ToolCallPart("look", {}, "c1")]),
        retry("not so", "c1"),
        model("tried"),
    ]
    messages = in_frame(frame, [*asked("older"), *retried, user("now")])
    for keep, left in ((2, [2, 3, 4, 5, 6]), (4, [2, 3, 4, 5, 6]), (1, [6])):
        outcome = await passed(window(keep), messages, frame=frame)
        assert kept(outcome, messages) == left
        assert why_not(frame, outcome.messages) is None


@BOTH
@pytest.mark.parametrize("keep", range(8))
async def test_a_window_never_opens_with_an_answer(frame: Frame, keep: int) -> None:
    messages = in_frame(frame, [*asked("a"), *looked_up("b", "found"), *asked("c"), user("now")])
    outcome = await passed(window(keep), messages, frame=frame)
    assert lines(outcome.messages[0])[0].kind == "user"


@BOTH
async def test_keep_zero_keeps_what_must_be_kept(frame: Frame) -> None:
    """A slice from -0 would keep everything, or nothing."""
    messages = in_frame(frame, [system("s"), *asked("a"), user("now")])
    assert texts((await passed(window(0), messages, frame=frame)).messages) == ["system: s", "user: now"]


@pytest.mark.parametrize("make", [SlidingWindowProcessor, ClearToolResultsProcessor], ids=["window", "results"])
def test_a_fraction_that_cannot_work_is_refused_where_it_is_made(make: Any) -> None:
    """Not ignored, so that a history grows for ever: of a window that nobody knows, and outside of (0, 1]."""
    with pytest.raises(ValueError, match="max_input_tokens"):
        make(("fraction", 0.9))
    with pytest.raises(ValueError, match="max_input_tokens"):
        make(("fraction", 0.9), model="nobody:unheard-of")
    with pytest.raises(ValueError, match=r"1\.5"):
        make(("fraction", 1.5), max_input_tokens=1000)
    assert make(("fraction", 0.9), model="anthropic:claude-sonnet-4-5")


# Counting -------------------------------------------------------------------------------------------------------------


@BOTH
async def test_text_inside_a_list_counts(frame: Frame) -> None:
    """A list of text and images is not nothing: a token window that took it for 0 would keep what is before it."""
    long = ModelRequest(parts=[UserPromptPart(["word " * 3000, TextContent("word " * 3000)])])
    messages = in_frame(frame, [*asked("a"), long, model("read"), *asked("b"), user("now")])
    cut = SlidingWindowProcessor(("tokens", 5000), ("tokens", 1000))
    assert kept(await passed(cut, messages, frame=frame), messages) == [2, 3, 4, 5, 6]


@BOTH
async def test_there_is_one_estimate_of_a_message(frame: Frame) -> None:
    """What entries are stored with, what triggers and cuts count, and what budgets ask about is the same figure."""
    describe = pydantic_editing.describe if frame is PYDANTIC else langchain_editing.describe
    picture = BinaryContent(b"\x89PNG" * 99, media_type="image/png")
    pieces = [
        system("Be brief."),
        ModelRequest(parts=[UserPromptPart(["see", TextContent("this"), picture])]),
        *looked_up("naïve 数", {"n": [1.5, None, "}{"]}, calls=2)[1:],
        user("now"),
    ]
    messages = in_frame(frame, pieces)
    own = [estimate_message(frame.dialect, message) for message in messages]
    assert [describe(message, "turn").estimated_tokens for message in messages] == own
    assert estimate_request(own).input_tokens == sum(own) == request_for(messages, frame=frame).estimated_tokens
    seen: list[int] = []

    def look(ctx: Any) -> Any:
        seen.extend(native_text(ctx).tokens(message) for message in ctx.messages)
        assert ctx.estimated_tokens == estimate_history(frame.dialect, ctx.messages, ctx.entries)
        return ctx.messages

    await passed(look, messages, frame=frame)
    assert seen == own


@BOTH
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_counter_is_awaited(frame: Frame, is_async: bool) -> None:
    """An unawaited count is a coroutine, which is larger than nothing and smaller than nothing."""

    def count(messages: list[Any]) -> int:
        return 10 * len(messages)

    async def count_later(messages: list[Any]) -> int:
        await asyncio.sleep(0)
        return count(messages)

    messages = in_frame(frame, [*asked("a"), *asked("b"), user("now")])
    counter = count_later if is_async else count
    cut = SlidingWindowProcessor(("tokens", 50), ("tokens", 30), token_counter=counter)
    assert kept(await passed(cut, messages, frame=frame), messages) == [2, 3, 4]


# What has to stay -----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("processor", [window(0), summary(Summarizer())], ids=["window", "summary"])
async def test_the_system_prompt_survives(frame: Frame, processor: Any) -> None:
    """Also where it shares a request with the first prompt, which goes."""
    first = ModelRequest(parts=[*system("Be brief.").parts, UserPromptPart("a")])
    messages = in_frame(frame, [first, model("re: a"), *asked("b") * 15, user("now")])
    outcome = await passed(processor, messages, frame=frame)
    assert outcome.verdict == "accepted"
    assert texts(outcome.messages)[0] == "system: Be brief."
    assert "user: a" not in texts(outcome.messages)


@BOTH
async def test_a_history_of_only_system_messages_stays(frame: Frame) -> None:
    messages = in_frame(frame, [system("one"), system("two"), user("now")])
    for processor in (window(0), summary(Summarizer()), ClearToolResultsProcessor(ALWAYS, 0)):
        assert (await passed(processor, messages, frame=frame)).verdict == "no-op"


@BOTH
async def test_an_empty_trailing_request_stays_the_current_request(frame: Frame) -> None:
    empty: Any = ModelRequest(parts=[]) if frame is PYDANTIC else HumanMessage([])
    messages = [*in_frame(frame, [*asked("a"), *asked("b")]), empty]
    for processor in (window(0), summary(Summarizer())):
        outcome = await passed(processor, messages, frame=frame)
        assert outcome.verdict == "accepted"
        assert says(outcome.messages[-1]) == says(empty)


@BOTH
async def test_compaction_while_a_tool_loop_runs_leaves_the_loop_whole(frame: Frame) -> None:
    pieces = [user("now"), *looked_up("x", "found")[1:3], *looked_up("y", "found", calls=3)[1:3]]
    loop = in_frame(frame, pieces)
    messages = [*in_frame(frame, [*asked("a"), *looked_up("b", "found")]), *loop]
    for processor in (window(0), window(1), summary(Summarizer()), ClearToolResultsProcessor(ALWAYS, 0)):
        outcome = await passed(processor, messages, request_index=3, frame=frame)
        assert outcome.verdict == "accepted"
        assert texts(outcome.messages)[-len(texts(loop)) :] == texts(loop)


@BOTH
async def test_parallel_results_are_neither_lost_nor_doubled(frame: Frame) -> None:
    messages = in_frame(frame, [*asked("a"), *looked_up("b", "found", calls=4), *asked("c"), user("now")])
    for processor in (window(4), compose(window(6), window(4)), LimitWarnerProcessor(1)):
        outcome = await passed(processor, messages, frame=frame)
        assert outcome.verdict == "accepted"
        assert results_of(outcome.messages) == ["b-0", "b-1", "b-2", "b-3"]


@BOTH
async def test_no_message_inside_is_emptied(frame: Frame) -> None:
    messages = in_frame(frame, [*looked_up("a", "found"), *looked_up("b", "found"), *asked("c"), user("now")])
    outcome = await passed(ClearToolResultsProcessor(ALWAYS, 0), messages, frame=frame)
    assert outcome.verdict == "accepted"
    assert all(lines(message) for message in outcome.messages)
    assert all(text.strip() for text in texts(outcome.messages))


# Summaries ------------------------------------------------------------------------------------------------------------


@BOTH
async def test_text_inside_a_list_reaches_the_summary(frame: Frame) -> None:
    summarizer = Summarizer()
    told = ModelRequest(parts=[UserPromptPart(["in a list", TextContent("in a part")])])
    await passed(summary(summarizer), in_frame(frame, [told, model("read"), user("now")]), frame=frame)
    assert "in a list" in summarizer.requests[0]
    assert "in a part" in summarizer.requests[0]


@BOTH
async def test_binary_data_reaches_the_summary_as_a_description(frame: Frame) -> None:
    """Never the bytes as Python prints them, nor in base64."""
    summarizer = Summarizer()
    picture = BinaryContent(b"\x89PNG" + b"\0" * 1000, media_type="image/png")
    told = ModelRequest(parts=[UserPromptPart(["see", picture])])
    await passed(summary(summarizer), in_frame(frame, [told, model("seen"), user("now")]), frame=frame)
    (request,) = summarizer.requests
    assert "[image/png, 1004 bytes]" in request
    assert "AAAA" not in request
    assert "\\x" not in request


async def _fails(request: str) -> str:
    raise ConnectionError("the line was cut")


async def _is_cancelled(request: str) -> str:
    raise asyncio.CancelledError


async def _changes_nothing(frame: Frame, summarizer: Any) -> None:
    messages = in_frame(frame, [*asked("a"), user("now")])
    before = [says(message) for message in messages]
    with pytest.raises(HistoryProcessingError, match="is as before"):
        await passed(summary(summarizer), messages, frame=frame)
    outcome = await passed(summary(summarizer, on_failure="keep"), messages, frame=frame)
    assert outcome.verdict == "no-op"
    assert [says(message) for message in outcome.messages] == before


@BOTH
@pytest.mark.parametrize("summarizer", [_fails, lambda request: " \n", lambda request: None], ids=["fails", "", "none"])
async def test_a_summary_that_fails_changes_nothing(frame: Frame, summarizer: Any) -> None:
    """It fails, is empty, or is no text: the turn goes on with the history as it was, or fails, by choice."""
    await _changes_nothing(frame, summarizer)


@BOTH
async def test_a_summary_that_is_cancelled_changes_nothing(frame: Frame) -> None:
    """It was given up, and not the turn."""
    await _changes_nothing(frame, _is_cancelled)


@BOTH
async def test_a_turn_that_is_cancelled_while_it_summarizes_is_cancelled(frame: Frame) -> None:
    """`on_failure` is for summaries that fail, not for turns that end."""
    began = asyncio.Event()

    async def slow(request: str) -> str:
        began.set()
        await asyncio.Event().wait()
        return "late"

    messages = in_frame(frame, [*asked("a"), user("now")])
    task = asyncio.create_task(passed(summary(slow, on_failure="keep"), messages, frame=frame))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# One class for all ----------------------------------------------------------------------------------------------------


@BOTH
async def test_one_class_serves_callers_that_are_sync_and_async(frame: Frame) -> None:
    """There is no second copy of a processor to fall behind the first."""

    async def later(request: str) -> str:
        return Summarizer()(request)

    messages = in_frame(frame, [*asked("a"), *looked_up("b", "found"), user("now")])
    one = await passed(summary(Summarizer()), messages, frame=frame)
    other = await passed(summary(later), messages, frame=frame)
    assert [says(message) for message in one.messages] == [says(message) for message in other.messages]


@BOTH
async def test_runs_at_once_with_one_processor_do_not_meet(frame: Frame) -> None:
    async def echo(request: str) -> str:
        await asyncio.sleep(0.01)
        return request

    processor = compose(window(3), summary(echo, keep=("messages", 1)))

    async def one(name: str) -> list[str]:
        messages = in_frame(frame, [*asked(f"{name} a"), *asked(f"{name} b"), *asked(f"{name} c"), user("now")])
        return texts((await passed(processor, messages, frame=frame)).messages)

    for name, said in zip("xyz", await asyncio.gather(*map(one, "xyz")), strict=True):
        assert f"user: {name} c" in "\n".join(said)
        assert not any(f"user: {other} " in line for line in said for other in set("xyz") - {name})
