"""What a summary is made of, where it stands, and what happens when it cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    FinishReason,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway.activities.adapter import RetryPolicy
from laneway.activities.pydantic_summary import PydanticSummarizer
from laneway.history.model_calls import CallFailed
from laneway.history.processor_native import SummaryRequest
from laneway.history.processor_summary import SUMMARY_OPENING
from laneway.history.processors import SummarizationProcessor

from tests.history.edits import entries_of
from tests.processors.passes import (
    ALWAYS,
    Summarizer,
    asked,
    looked_up,
    model,
    passed,
    retry,
    ten_each,
    texts,
    user,
)


def summarization(summarizer: Callable[[str], Any], keep: int = 1, **options: Any) -> SummarizationProcessor:
    return SummarizationProcessor(summarizer=summarizer, trigger=ALWAYS, keep=("messages", keep), **options)


@pytest.mark.filterwarnings("ignore:.RetryPromptPart. is deprecated")
async def test_everything_that_was_said_and_done_reaches_the_summary() -> None:
    """Text in lists, thinking, calls, results, retries; files as a description, never as their bytes."""
    picture = BinaryContent(b"\x89PNG" + b"\0" * 1000, media_type="image/png")
    old: list[ModelMessage] = [
        ModelRequest(
            parts=[UserPromptPart(["in a list", TextContent("in a part"), picture, ImageUrl("https://images.test/a")])]
        ),
        ModelResponse(parts=[ThinkingPart("a thought"), ToolCallPart("look", {"where": "here"}, "c1")]),
        retry("not there", "c1"),
        *looked_up("q", ["a result", picture, {"inner": picture, "raw": b"\xff\xfe"}])[1:],
    ]
    summarizer = Summarizer()
    await passed(summarization(summarizer), [*old, user("now")])
    (request,) = summarizer.requests
    for text in ("in a list", "in a part", "a thought", '{"where":"here"}', "not there", "a result", "re: q"):
        assert text in request, text
    assert request.count("[image/png, 1004 bytes]") == 3
    assert "[binary data, 2 bytes]" in request
    assert "https://images.test/a" in request
    assert "AAAA" not in request
    assert "\\x" not in request
    assert "user: now" not in request


async def test_a_summary_is_summarized_with_what_followed_and_never_nested() -> None:
    first, second = Summarizer("ONE"), Summarizer("TWO")
    outcome = await passed(summarization(first), [*asked("a"), *asked("b"), user("c")])
    messages = [*outcome.messages, model("re: c"), *asked("d"), user("now")]
    entries = [*outcome.entries, *entries_of(messages[len(outcome.messages) :])]
    again = await passed(summarization(second), messages, entries)
    said = texts(again.messages)
    assert "ONE" in second.requests[0]
    assert "user: c" in second.requests[0]
    assert "user: Summary" not in second.requests[0], "a summary is not something that the user said"
    assert sum(SUMMARY_OPENING in line for line in said) == 1
    assert said == [f"user: {SUMMARY_OPENING}\n\nTWO", "user: now"]


async def test_an_earlier_summary_is_never_trimmed_away() -> None:
    """What it holds is nowhere else. The newest of the rest is kept."""
    summarizer = Summarizer("FACT")
    outcome = await passed(summarization(summarizer), [*asked("a"), user("b")])
    messages = [*outcome.messages, model("re: b"), *[m for n in range(30) for m in asked(f"q{n}")], user("now")]
    entries = [*outcome.entries, *entries_of(messages[len(outcome.messages) :])]
    await passed(summarization(summarizer, trim_tokens_to_summarize=40), messages, entries)
    request = summarizer.requests[1]
    assert "FACT" in request
    assert "user: q29" in request
    assert "user: q1\n" not in request
    assert "earlier messages are left out" in request


@pytest.mark.parametrize(("trim", "shown"), [(None, 6), (60, 6), (30, 3), (10, 1)])
async def test_trimming_keeps_the_newest_by_the_callers_own_count(trim: int | None, shown: int) -> None:
    summarizer = Summarizer()
    messages = [*asked("a"), *asked("b"), *asked("c"), user("now")]
    processor = summarization(summarizer, trim_tokens_to_summarize=trim, token_counter=ten_each)
    await passed(processor, messages)
    lines = ["user: a", "assistant: re: a", "user: b", "assistant: re: b", "user: c", "assistant: re: c"]
    assert [line for line in lines if line in summarizer.requests[0]] == lines[-shown:]


async def test_a_message_that_is_too_long_by_itself_is_shown_by_its_end() -> None:
    summarizer = Summarizer()
    messages = [user("read"), model("word " * 4000 + "THE END"), user("now")]
    await passed(summarization(summarizer, trim_tokens_to_summarize=50), messages)
    assert "THE END" in summarizer.requests[0]
    assert len(summarizer.requests[0]) < 2000


async def test_braces_in_the_prompt_and_in_the_messages_are_harmless() -> None:
    summarizer = Summarizer()
    processor = summarization(summarizer, summary_prompt='As {"json": {}}: {messages} {0} {')
    await passed(processor, [*asked("{messages} {x}"), user("now")])
    assert summarizer.requests[0].startswith('As {"json": {}}: user: {messages} {x}')
    assert summarizer.requests[0].endswith(" {0} {")


async def test_a_summary_alone_is_not_summarized_again() -> None:
    summarizer = Summarizer()
    messages = [*asked("a"), user("now")]
    outcome = await passed(summarization(summarizer), messages)
    assert (await passed(summarization(summarizer), outcome.messages, outcome.entries)).verdict == "no-op"
    assert len(summarizer.requests) == 1


def _answering(answers: list[Exception | ModelResponse]) -> FunctionModel:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        following = answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    return FunctionModel(answer, model_name="summarizer")


QUICKLY = RetryPolicy(max_attempts=3, first_delay=timedelta(milliseconds=1))


async def test_a_summary_request_that_fails_on_its_way_is_tried_again() -> None:
    answers: list[Exception | ModelResponse] = [
        ModelHTTPError(503, "summarizer"),
        ModelHTTPError(429, "summarizer"),
        model("at last"),
    ]
    answer = await PydanticSummarizer(_answering(answers), QUICKLY).summarize(SummaryRequest("sum up"), None)
    assert answer.text == "at last"
    assert answer.usage.requests == 3


@pytest.mark.parametrize("status", [400, 503])
async def test_a_summary_request_that_is_refused_or_keeps_failing_fails(status: int) -> None:
    answers: list[Exception | ModelResponse] = [ModelHTTPError(status, "summarizer") for _ in range(3)]
    with pytest.raises(CallFailed) as failed:
        await PydanticSummarizer(_answering(answers), QUICKLY).summarize(SummaryRequest("sum up"), None)
    assert isinstance(failed.value.cause, ModelHTTPError)
    assert failed.value.usage.requests == (1 if status == 400 else 3)
    assert len(answers) == (2 if status == 400 else 0)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_summary_that_was_cut_off_is_none_and_was_paid_all_the_same(reason: FinishReason) -> None:
    usage = RequestUsage(input_tokens=70, output_tokens=9)
    cut = ModelResponse(parts=[TextPart("They sp")], finish_reason=reason, usage=usage)
    with pytest.raises(CallFailed, match=reason) as failed:
        await PydanticSummarizer(_answering([cut]), QUICKLY).summarize(SummaryRequest("sum up"), None)
    assert (failed.value.usage.input_tokens, failed.value.usage.output_tokens) == (70, 9)
