"""Random histories, triggers and keeps: what comes out may be sent, more keep keeps more, and what is at rest stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage

from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.history.edits import says
from tests.history.histories import MadeHistory, histories
from tests.history.oracle import why_unsendable
from tests.processors.passes import Outcome, run, ten_each

amounts = st.integers(0, 14)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[str, int | float]:
    """A size for histories of a few messages of ten tokens, of 100 that fit."""
    match draw(st.sampled_from(["messages", "tokens", "fraction"])):
        case "messages":
            return ("messages", draw(amounts))
        case "tokens":
            return ("tokens", 10 * draw(amounts))
        case _:
            return ("fraction", draw(st.sampled_from([0.05, 0.3, 0.5, 1.0])))


def summarize(request: str) -> str:
    return "They spoke."


@st.composite
def processors(draw: st.DrawFn) -> Any:
    options: dict[str, Any] = {"max_input_tokens": 100, "token_counter": ten_each}
    trigger = draw(st.lists(sizes(), min_size=1, max_size=2))
    cut = {"trigger": trigger, "keep": draw(sizes()), "keep_head": draw(st.none() | sizes()), **options}
    match draw(st.sampled_from(["window", "summary", "warner", "results", "several"])):
        case "window":
            return SlidingWindowProcessor(**cut)
        case "summary":
            return SummarizationProcessor(summarizer=summarize, **cut)
        case "warner":
            return LimitWarnerProcessor(draw(st.integers(1, 4)), 10 * draw(st.integers(1, 9)), token_counter=ten_each)
        case "results":
            return ClearToolResultsProcessor(trigger, draw(st.integers(0, 3)), **options)
        case _:
            clear = ClearToolResultsProcessor(trigger, draw(st.integers(0, 3)), **options)
            return compose(
                clear,
                SummarizationProcessor(summarizer=summarize, **cut),
                SlidingWindowProcessor(**cut),
                LimitWarnerProcessor(3),
            )


def once(made: MadeHistory, processor: Any) -> Outcome:
    return run(processor, made.native, request_index=made.request_index)


@given(histories(max_cycles=6), processors())
def test_what_comes_out_is_accepted_and_can_be_sent(made: MadeHistory, processor: Any) -> None:
    """Whatever the history, trigger and keep: the edit is never refused, and protected groups and the end are there."""
    outcome = once(made, processor)
    assert why_unsendable(outcome.messages) is None
    left = b"\n".join(says(message) for message in outcome.messages)
    for group in made.groups:
        for message in group.messages if group.protected else ():
            assert all(text in left for text in _texts_of(message))


@given(histories(max_cycles=6), processors())
def test_what_is_at_rest_stays_as_it_is(made: MadeHistory, processor: Any) -> None:
    """A second pass over what came out changes nothing."""
    outcome = once(made, processor)
    again = run(processor, outcome.messages, entries=outcome.entries, request_index=made.request_index)
    assert again.verdict == "no-op"


@given(histories(max_cycles=6), sizes(), st.data())
def test_more_keep_keeps_more(made: MadeHistory, trigger: tuple[str, Any], data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(["messages", "tokens"]))
    scale = 10 if unit == "tokens" else 1
    less, more = sorted([data.draw(amounts), data.draw(amounts)])
    heads = sorted([data.draw(amounts), data.draw(amounts)])

    def left(keep: int, head: int) -> set[bytes]:
        window = SlidingWindowProcessor(
            trigger,  # type: ignore[arg-type]
            (unit, scale * keep),  # type: ignore[arg-type]
            keep_head=head,
            max_input_tokens=100,
            token_counter=ten_each,
        )
        return {text for message in once(made, window).messages for text in _texts_of(message)}

    assert left(less, heads[0]) <= left(more, heads[0])
    assert left(less, heads[0]) <= left(less, heads[1])


@given(histories(max_cycles=6), amounts)
def test_an_estimate_and_a_counter_that_agrees_with_it_cut_alike(made: MadeHistory, tens: int) -> None:
    from tests.processors.passes import TEXT

    def counter(messages: Sequence[ModelMessage]) -> int:
        return sum(TEXT.tokens(message) for message in messages)

    size: Any = ("tokens", 40 * tens)
    estimated = once(made, SlidingWindowProcessor(("messages", 0), size))
    counted = once(made, SlidingWindowProcessor(("messages", 0), size, token_counter=counter))
    assert [says(m) for m in estimated.messages] == [says(m) for m in counted.messages]


def _texts_of(message: ModelMessage) -> list[bytes]:
    """The numbered texts of a made message, which no other message has."""
    from tests.processors.passes import TEXT

    numbered = [line.text for line in TEXT.lines(message) if line.text[-1:].isdigit()]
    return [text.encode() for text in numbered if '"' not in text]
