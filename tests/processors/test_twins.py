"""The stock processors on both frameworks: of equivalent histories they leave the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from langchain_core.messages import AIMessage, HumanMessage

from laneway.history.processors import ClearToolResultsProcessor, SlidingWindowProcessor

from tests.history.edits import LANGCHAIN
from tests.history.histories import MadeHistory, histories
from tests.history.twins import has_feedback, lines_of, pieces_of, twins
from tests.processors.generated import processors
from tests.processors.passes import looked_up, passed, run, user


def counts_alike(made: MadeHistory) -> bool:
    """Whether both frameworks have as many messages: LangChain has one for each result."""
    return not has_feedback(made.pieces) and all(
        len([part for part in piece.parts if part.part_kind == "tool-return"]) < 2 for piece in made.pieces
    )


@settings(max_examples=50)
@given(histories(max_cycles=6).filter(counts_alike), processors())
def test_a_processor_leaves_the_same(made: MadeHistory, processor: Any) -> None:
    one = run(processor, made.native, request_index=made.request_index)
    other = run(processor, twins(made.pieces), request_index=made.request_index, frame=LANGCHAIN)
    assert other.verdict == one.verdict
    assert lines_of(other.messages) == lines_of(twins(pieces_of(one.messages)))


@given(histories(max_cycles=6).filter(lambda made: not has_feedback(made.pieces)), processors())
def test_what_is_at_rest_stays_as_it_is(made: MadeHistory, processor: Any) -> None:
    """Parallel results included, which only LangChain counts one by one.

    A warning is a message of its own there, so a window that stands before the warner counts it from then on: what
    comes to rest does so with the second pass.
    """

    def again(outcome: Any) -> Any:
        entries, index = outcome.entries, made.request_index
        return run(processor, outcome.messages, entries=entries, request_index=index, frame=LANGCHAIN)

    first = run(processor, twins(made.pieces), request_index=made.request_index, frame=LANGCHAIN)
    second = again(first)
    has_warned = any("imit warning" in line for line in lines_of(first.messages))
    assert second.verdict == "no-op" or has_warned
    assert again(second).verdict == "no-op"


async def test_a_window_is_counted_in_each_frameworks_own_messages() -> None:
    """Two results are one message of Pydantic AI's and two of LangChain's."""
    pieces = [*looked_up("one", "seen", calls=2), *looked_up("two", "seen", calls=2), user("three")]
    window = SlidingWindowProcessor(("messages", 0), ("messages", 5))
    kept = await passed(window, pieces)
    assert [len(kept.messages), len((await passed(window, twins(pieces), frame=LANGCHAIN)).messages)] == [5, 6]


async def test_the_text_of_an_exchange_is_the_same() -> None:
    pieces = [*looked_up("one", "seen", calls=2), *looked_up("two", "seen"), user("three")]
    clear = ClearToolResultsProcessor(("messages", 0), 1)
    one = await passed(clear, pieces)
    other = await passed(clear, twins(pieces), frame=LANGCHAIN)
    assert lines_of(other.messages) == lines_of(twins(pieces_of(one.messages)))
    assert "(cleared)" in lines_of(other.messages)[0]


async def test_a_processor_may_add_what_a_model_said() -> None:
    """A chat model's answer is a message like another, and is plain text with all that its provider says of it."""
    answer = AIMessage(
        "They spoke.",
        id="run--1",
        response_metadata={"id": "chatcmpl-1", "finish_reason": "stop", "model_provider": "openai"},
        usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    )
    messages = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
    outcome = await passed(lambda ctx: [HumanMessage("So far?"), answer, ctx.messages[-1]], messages, frame=LANGCHAIN)
    assert outcome.verdict == "accepted"
