"""The estimate of a message counts everything in it; the estimate of a request uses what a provider has measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.errors import RequestTooLarge
from laneway.history.budget import Framing, RequestEstimate, UsageCheckpoint, estimate_request, refuse_over_budget
from laneway.history.estimation import MESSAGE_TOKENS, estimate_history, estimate_message, estimate_text
from laneway.history.origins import EntryMetadata

from tests.history.edits import DIALECT

LONG = "every word of this counts " * 20


def tokens(message: ModelMessage) -> int:
    return estimate_message(DIALECT, message)


@pytest.mark.parametrize(
    "part",
    [
        SystemPromptPart(LONG),
        UserPromptPart(LONG),
        UserPromptPart([LONG]),
        UserPromptPart(["short", TextContent(LONG), CachePoint()]),
        ToolReturnPart("stock", LONG, "a"),
        ToolReturnPart("stock", {"left": [LONG]}, "a"),
        ToolReturnPart("stock", LONG, "a", outcome="retried"),
        RetryFeedbackPart(LONG, retry=RetryInfo(cause="model_retry")),
    ],
)
def test_every_kind_of_text_in_a_request_is_counted(part: ModelRequestPart) -> None:
    assert tokens(ModelRequest(parts=[part])) >= estimate_text(LONG)


@pytest.mark.parametrize(
    "part",
    [
        TextPart(LONG),
        ThinkingPart(LONG),
        ThinkingPart("", signature=LONG, provider_name="anthropic"),
        ToolCallPart("stock", {"q": LONG}, "a"),
        ToolCallPart("stock", f'{{"q": "{LONG}"}}', "a"),
    ],
)
def test_every_kind_of_text_in_a_response_is_counted(part: ModelResponsePart) -> None:
    assert tokens(ModelResponse(parts=[part])) >= estimate_text(LONG)


def test_files_are_counted_by_a_stated_rule_and_not_by_their_text() -> None:
    image = BinaryContent(b"x" * 3_000_000, media_type="image/png")
    document = BinaryContent(b"x" * 1_000_000, media_type="application/pdf")
    assert 5_000 <= tokens(ModelRequest(parts=[UserPromptPart(["see", image])])) < 5_100
    assert 5_000 <= tokens(ModelRequest(parts=[UserPromptPart([ImageUrl("https://images.test/a.png")])])) < 5_100
    assert 5_000 <= tokens(ModelRequest(parts=[ToolReturnPart("photo", ["taken", image], "a")])) < 5_100
    assert 5_000 <= tokens(ModelResponse(parts=[FilePart(image)])) < 5_100
    assert 50_000 <= tokens(ModelRequest(parts=[UserPromptPart([document])])) < 50_100
    assert 30_000 <= tokens(ModelRequest(parts=[UserPromptPart([DocumentUrl("https://files.test/a.pdf")])])) < 30_100


def test_an_empty_message_still_takes_its_frame() -> None:
    assert tokens(ModelRequest(parts=[])) == MESSAGE_TOKENS


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_longer_text_never_takes_less(one: str, other: str) -> None:
    assert estimate_text(one + other) >= max(estimate_text(one), estimate_text(other))
    assert (estimate_text(one) == 0) == (one == "")


def test_dense_text_counts_for_more_than_prose() -> None:
    assert estimate_text('{"a":1,"b":[2,3]}') > estimate_text("abcdefghijklmnopq")
    assert estimate_text("数据库连接失败") >= 7


def test_what_is_known_of_an_entry_is_not_estimated_again() -> None:
    messages: list[ModelMessage] = [ModelResponse(parts=[TextPart("a")]), ModelResponse(parts=[TextPart("b")])]
    known = [EntryMetadata(estimated_tokens=1_000), EntryMetadata()]
    assert estimate_history(DIALECT, messages, known) == 1_000 + tokens(messages[1])


def test_a_measured_prefix_is_used_for_exactly_that_history() -> None:
    usage = UsageCheckpoint(digest="d", length=2, input_tokens=900, output_tokens=100)
    entries = [10, 20, 30]
    measured = estimate_request(entries, usage=usage, digest_of_prefix="d")
    assert measured == RequestEstimate(1_000, 30)
    assert (measured.history_tokens, measured.total_tokens) == (1_030, 1_030)
    whole = RequestEstimate(0, 60)
    assert estimate_request(entries, usage=usage, digest_of_prefix="rewritten") == whole
    assert estimate_request(entries, usage=usage) == whole
    assert estimate_request(entries) == whole
    assert estimate_request(entries[:1], usage=usage, digest_of_prefix="d") == RequestEstimate(0, 10)
    silent = UsageCheckpoint(digest="d", length=2, input_tokens=0, output_tokens=0)
    assert estimate_request(entries, usage=silent, digest_of_prefix="d") == whole


def test_a_request_over_the_budget_says_what_takes_how_much() -> None:
    estimate = RequestEstimate(0, 1_000).framed(
        Framing(3, 4, 5), new_tokens=30, measured_framing_tokens=0, reserved_tokens=100
    )
    refuse_over_budget(estimate, max_request_tokens=1_112)
    with pytest.raises(RequestTooLarge) as refused:
        refuse_over_budget(estimate, max_request_tokens=1_111)
    assert refused.value.code == "fit-overflow"
    for words in (
        "would take 1112 tokens",
        "max_request_tokens is 1111",
        "0 measured and 970 estimated of history",
        "30 of new content",
        "3 of instructions",
        "4 of tool schemas",
        "5 of output schemas",
        "100 reserved for the output",
    ):
        assert words in str(refused.value)


def test_what_a_measured_prefix_contains_is_not_added_again() -> None:
    """The provider has counted the instructions and schemas that it was sent; only what came since is added."""
    framing = Framing(instructions_tokens=50, tools_tokens=150)
    for before, added in ((0, 200), (120, 80), (200, 0), (300, 0)):
        estimate = RequestEstimate(1_000, 40).framed(
            framing, new_tokens=40, measured_framing_tokens=before, reserved_tokens=0
        )
        assert estimate.total_tokens == 1_040 + added
