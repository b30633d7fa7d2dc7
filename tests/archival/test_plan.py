"""What may be archived, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway import HistoryArchiveSettings
from laneway.activities.pydantic_editing import DIALECT, describe
from laneway.errors import ConfigurationError
from laneway.history.archival import ArchivePlan, plan_archive
from laneway.history.archives import ArchivedItem
from laneway.history.origins import EntryMetadata, HistoryOrigin

from tests.processors.passes import asked, user

TURN = "turn"


def exchange(n: int, *, size: int = 200, thinking: bool = False) -> list[ModelMessage]:
    parts: list[Any] = [ThinkingPart("hm", signature="s", provider_name="anthropic")] if thinking else []
    return [
        ModelResponse([*parts, ToolCallPart("look", {"n": n}, f"c{n}")]),
        ModelRequest([ToolReturnPart("look", "word " * size, f"c{n}")]),
    ]


def plan(
    messages: list[ModelMessage], entries: list[EntryMetadata] | None = None, **figures: int
) -> ArchivePlan | None:
    known = entries or [describe(message, TURN) for message in messages]
    return plan_archive(
        DIALECT,
        messages,
        known,
        HistoryArchiveSettings(**{"threshold_tokens": 500, "preserve_recent_tokens": 400, **figures}),
        turn_id=TURN,
        estimated_tokens=sum(entry.estimated_tokens or 0 for entry in known),
    )


SMALL = {"minimum_reduction_tokens": 100}


def test_the_oldest_exchanges_go_and_the_request_and_the_recent_stay():
    messages = [user("go"), *[m for n in range(6) for m in exchange(n)]]
    assert plan(messages, **SMALL) == ArchivePlan(1, 11, 5)
    assert plan(messages, preserve_recent_tokens=450, threshold_tokens=900, **SMALL) == ArchivePlan(1, 11, 5)
    assert plan(messages, preserve_recent_tokens=800, threshold_tokens=900, **SMALL) == ArchivePlan(1, 9, 4)


def test_nothing_goes_below_the_threshold_or_for_too_little():
    messages = [user("go"), *[m for n in range(6) for m in exchange(n)]]
    assert plan(messages, threshold_tokens=10_000, **SMALL) is None
    assert plan(messages, minimum_reduction_tokens=10_000) is None


def test_exchanges_of_other_turns_are_not_touched():
    old = [user("before"), *[m for n in range(6) for m in exchange(n)], ModelResponse([TextPart("done")])]
    messages = [*old, user("go"), *exchange(7)]
    entries = [describe(message, "earlier") for message in old] + [describe(m, TURN) for m in messages[len(old) :]]
    assert plan(messages, entries, **SMALL) is None


def test_signed_thinking_stays_and_so_do_checkpoints_and_calls_without_results():
    loop = [m for n in range(8) for m in exchange(n, thinking=n == 2)]
    assert plan([user("go"), *loop], **SMALL) == ArchivePlan(7, 15, 4)
    unanswered = [*exchange(0), exchange(1)[0], *[m for n in range(2, 7) for m in exchange(n)]]
    assert plan([user("go"), *unanswered], **SMALL) == ArchivePlan(4, 12, 4)
    messages = [user("go"), user("[Archive ar-1 …]"), *[m for n in range(4) for m in exchange(n)]]
    entries = [describe(message, TURN) for message in messages]
    entries[1] = EntryMetadata((HistoryOrigin("archive", TURN),), entries[1].estimated_tokens)
    assert plan(messages, entries, **SMALL) == ArchivePlan(2, 8, 3)


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=12)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(SIZES, st.integers(0, 3000), st.integers(1, 3000), st.integers(0, 800), st.booleans())
def test_what_is_archived_is_whole_exchanges_that_are_old(
    sizes: list[int], preserve: int, above: int, least: int, after: bool
):
    loop = [m for n, size in enumerate(sizes) for m in exchange(n, size=size)]
    messages = [*asked("before"), user("go"), *loop]
    entries = [describe(m, "earlier") for m in messages[:2]] + [describe(m, TURN) for m in messages[2:]]
    figures = {"preserve_recent_tokens": preserve, "threshold_tokens": preserve + above}
    found = plan(messages, entries, minimum_reduction_tokens=least, **figures)
    if found is None:
        return
    assert found.start >= 3
    assert (found.end - found.start) == 2 * found.exchanges
    assert isinstance(messages[found.start], ModelResponse)
    assert found.end <= len(messages) - 2, "the answer that the request is about stays"
    kept = sum(entry.estimated_tokens or 0 for entry in entries[found.end :])
    more = kept + sum(entry.estimated_tokens or 0 for entry in entries[found.end - 2 : found.end])
    assert more > preserve, "no more of the end is kept than has to be"
    assert sum(entry.estimated_tokens or 0 for entry in entries[found.start : found.end]) > least


@pytest.mark.parametrize(
    "figures",
    [
        {"threshold_tokens": -1},
        {"preserve_recent_tokens": True},
        {"minimum_reduction_tokens": 1.5},
        {"threshold_tokens": 100, "preserve_recent_tokens": 100},
    ],
)
def test_settings_that_cannot_work_are_refused(figures: dict[str, Any]):
    with pytest.raises(ConfigurationError, match="history_archive"):
        HistoryArchiveSettings(**figures)


@given(st.lists(st.binary(max_size=50), max_size=5), st.none() | st.text(max_size=5))
def test_what_is_archived_comes_back_as_it_was(payloads: list[bytes], tool: str | None):
    item = ArchivedItem("exchanges", tuple(payloads), tool)
    again = ArchivedItem.from_bytes(item.to_bytes())
    assert again == item
    assert again.reference == item.reference


def test_a_prompt_is_no_exchange():
    assert plan([user("word " * 2000), ModelRequest([UserPromptPart("go")])], **SMALL) is None
