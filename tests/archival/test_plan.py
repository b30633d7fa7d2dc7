"""What may be archived, and what never is: the same of both frameworks' messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
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
from laneway.activities.archive import TurnArchive, put_exchanges
from laneway.errors import ConfigurationError, StoreFull
from laneway.history.archival import ArchivePlan, plan_archive
from laneway.history.archives import ArchivedItem
from laneway.history.estimation import estimate_message
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.store import HistoryStore

from tests.history.edits import FRAMES, LANGCHAIN, PYDANTIC, Frame, request_for
from tests.history.twins import twins
from tests.processors.passes import asked, user

TURN = "turn-9"


def exchange(n: int, *, size: int = 200, thinking: bool = False) -> list[ModelMessage]:
    parts: list[Any] = [ThinkingPart("hm", signature="s", provider_name="anthropic")] if thinking else []
    return [
        ModelResponse([*parts, ToolCallPart("look", {"n": n}, f"c{n}")], provider_name="anthropic"),
        ModelRequest([ToolReturnPart("look", "word " * size, f"c{n}")]),
    ]


def of(frame: Frame, messages: Sequence[ModelMessage]) -> list[Any]:
    """The messages in a framework's form: one for one, where each exchange has one result."""
    return list(messages) if frame is PYDANTIC else twins(messages)


def described(frame: Frame, messages: Sequence[Any], turn_id: str = TURN) -> list[EntryMetadata]:
    origins, dialect = frame.dialect.origins, frame.dialect
    return [
        EntryMetadata(origins(message, run_id=turn_id, source_location=None), estimate_message(dialect, message))
        for message in messages
    ]


def plan(
    frame: Frame,
    messages: list[Any],
    entries: list[EntryMetadata] | None = None,
    *,
    given: int = 1,
    **figures: int,
) -> ArchivePlan | None:
    known = entries or described(frame, messages)
    return plan_archive(
        frame.dialect,
        messages,
        known,
        HistoryArchiveSettings(**{"threshold_tokens": 500, "preserve_recent_tokens": 400, **figures}),
        turn_id=TURN,
        estimated_tokens=sum(entry.estimated_tokens or 0 for entry in known),
        given=given,
    )


SMALL = {"minimum_reduction_tokens": 100}
frames = pytest.mark.parametrize("frame", FRAMES, ids=str)


@frames
def test_the_oldest_exchanges_go_and_the_request_and_the_recent_stay(frame: Frame):
    messages = of(frame, [user("go"), *[m for n in range(6) for m in exchange(n)]])
    assert plan(frame, messages, **SMALL) == ArchivePlan(1, 11, 5)
    assert plan(frame, messages, preserve_recent_tokens=450, threshold_tokens=900, **SMALL) == ArchivePlan(1, 11, 5)
    assert plan(frame, messages, preserve_recent_tokens=800, threshold_tokens=900, **SMALL) == ArchivePlan(1, 9, 4)


@frames
def test_nothing_goes_below_the_threshold_or_for_too_little(frame: Frame):
    messages = of(frame, [user("go"), *[m for n in range(6) for m in exchange(n)]])
    assert plan(frame, messages, threshold_tokens=10_000, **SMALL) is None
    assert plan(frame, messages, minimum_reduction_tokens=10_000) is None


@frames
def test_exchanges_of_other_turns_are_not_touched(frame: Frame):
    """Not either where a processor has put a text of this turn's before them."""
    old = of(frame, [user("before"), *[m for n in range(6) for m in exchange(n)], ModelResponse([TextPart("done")])])
    now = of(frame, [user("go"), *exchange(7), *exchange(8)])
    (summary,) = of(frame, [user("So far: little.")])
    written = EntryMetadata((HistoryOrigin("processor", TURN, "sums up"),), 10)
    for before, known in (([], []), ([summary], [written])):
        messages = [*before, *old, *now]
        entries = [*known, *described(frame, old, "earlier"), *described(frame, now)]
        assert plan(frame, messages[:-2], entries[:-2], **SMALL) is None
        start = len(messages) - 4
        assert plan(frame, messages, entries, **SMALL) == ArchivePlan(start, start + 2, 1)


@frames
def test_signed_thinking_stays_and_so_do_checkpoints_and_calls_without_results(frame: Frame):
    loop = [m for n in range(8) for m in exchange(n, thinking=n == 2)]
    assert plan(frame, of(frame, [user("go"), *loop]), **SMALL) == ArchivePlan(7, 15, 4)
    unanswered = [*exchange(0), exchange(1)[0], *[m for n in range(2, 7) for m in exchange(n)]]
    assert plan(frame, of(frame, [user("go"), *unanswered]), **SMALL) == ArchivePlan(4, 12, 4)
    messages = of(frame, [user("go"), user("[Archive ar-1 …]"), *[m for n in range(4) for m in exchange(n)]])
    entries = described(frame, messages)
    entries[1] = EntryMetadata((HistoryOrigin("archive", TURN),), entries[1].estimated_tokens)
    assert plan(frame, messages, entries, **SMALL) == ArchivePlan(2, 8, 3)


def test_results_that_are_messages_of_their_own_stay_together():
    """In LangChain parallel results are: an exchange goes with all of them, and the newest one stays with all."""

    def parallel(n: int) -> list[Any]:
        ids = [f"{n}-{m}" for m in range(3)]
        calls: Any = [{"name": "look", "args": {}, "id": one} for one in ids]
        return [AIMessage("", tool_calls=calls), *(ToolMessage("word " * 200, tool_call_id=one) for one in ids)]

    messages = [HumanMessage("go"), *parallel(0), *parallel(1), *parallel(2)]
    assert plan(LANGCHAIN, messages, preserve_recent_tokens=0, **SMALL) == ArchivePlan(1, 9, 2)
    # One of the second exchange's results fits into the recent tail: then all of it stays.
    recent = sum(one.estimated_tokens or 0 for one in described(LANGCHAIN, messages[8:]))
    assert plan(LANGCHAIN, messages, preserve_recent_tokens=recent, threshold_tokens=recent + 1, **SMALL) == (
        ArchivePlan(1, 5, 1)
    )
    steered = [*messages, HumanMessage("and"), HumanMessage("quickly")]
    assert plan(LANGCHAIN, steered, preserve_recent_tokens=0, **SMALL) == ArchivePlan(1, 9, 2), "what runs stays"


def test_exchanges_in_the_turns_own_prompt_stay():
    """A graph can be given messages, finished exchanges among them: they are the request."""
    prompt = twins([user("see"), *exchange(0), *exchange(1), user("go")])
    messages = [*prompt, *twins([m for n in range(2, 6) for m in exchange(n)])]
    assert plan(LANGCHAIN, messages, given=len(prompt), **SMALL) == ArchivePlan(6, 12, 3)


class FullArchive(TurnArchive):
    """An archive whose Redis has no memory left."""

    async def put(self, item: ArchivedItem) -> str:
        raise StoreFull("Redis refused a write")


@frames
async def test_a_store_that_is_full_leaves_the_history(store: HistoryStore, frame: Frame):
    """Nothing is archived, and the request is sent as it is."""
    messages = of(frame, [user("go"), *[m for n in range(30) for m in exchange(n)]])
    request = request_for(messages, described(frame, messages), frame=frame)
    some = HistoryArchiveSettings(threshold_tokens=3_000, preserve_recent_tokens=700, minimum_reduction_tokens=1_000)
    fence = Fence(LaneKey("c", "a", "k"), TURN)
    encoded: list[Any] = []

    def encode(message: Any) -> bytes:
        encoded.append(message)
        return b"{}"

    full = FullArchive(store.archives, fence)
    assert await put_exchanges(full, frame.dialect, request, some, encode=encode) is None
    assert len(encoded) == 58, "it was about to archive"


@frames
async def test_nothing_is_archived_under_reasoning_that_is_bound_to_it(store: HistoryStore, frame: Frame):
    loop = [m for n in range(8) for m in exchange(n, thinking=n == 7)]
    messages = of(frame, [user("go"), *loop])
    some = HistoryArchiveSettings(threshold_tokens=500, preserve_recent_tokens=400, minimum_reduction_tokens=100)
    archive = FullArchive(store.archives, Fence(LaneKey("c", "a", "k"), TURN))
    request = request_for(messages, described(frame, messages), frame=frame, binds_reasoning=True)
    encoded: list[Any] = []
    assert await put_exchanges(archive, frame.dialect, request, some, encode=encoded.append) is None  # type: ignore[func-returns-value]
    assert encoded == []


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=12)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sampled_from(FRAMES), SIZES, st.integers(0, 3000), st.integers(1, 3000), st.integers(0, 800))
def test_what_is_archived_is_whole_exchanges_that_are_old(
    frame: Frame, sizes: list[int], preserve: int, above: int, least: int
):
    loop = of(frame, [m for n, size in enumerate(sizes) for m in exchange(n, size=size)])
    before, now = of(frame, asked("before")), of(frame, [user("go")])
    messages = [*before, *now, *loop]
    entries = described(frame, before, "earlier") + described(frame, [*now, *loop])
    figures = {"preserve_recent_tokens": preserve, "threshold_tokens": preserve + above}
    found = plan(frame, messages, entries, minimum_reduction_tokens=least, **figures)
    if found is None:
        return
    assert found.start >= 3
    assert (found.end - found.start) == 2 * found.exchanges
    assert isinstance(messages[found.start], ModelResponse | AIMessage)
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
    assert plan(PYDANTIC, [user("word " * 2000), ModelRequest([UserPromptPart("go")])], **SMALL) is None
