"""Random histories, triggers and keeps: what comes out may be sent, more keep keeps more, and what is at rest stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage

from laneway.history.processors import (
    ClearToolResultsProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.history.histories import MadeHistory, histories
from tests.history.oracle import why_unsendable
from tests.processors.generated import OPTIONS, amounts, processors, sizes, summarize
from tests.processors.passes import ALWAYS, TEXT, Outcome, run, says

NUMBERED = re.compile(rb"\b(?:prompt|answer|thought|call|result|invalid|nonsense|system|try again)[ -]\d+\b")
"""The texts of made messages: each is in one message only, but for the name of a call, which its result has too."""


def once(made: MadeHistory, processor: Any) -> Outcome:
    return run(processor, made.native, request_index=made.request_index)


def said_in(messages: Sequence[ModelMessage]) -> set[bytes]:
    return {text for message in messages for text in NUMBERED.findall(says(message))}


@given(histories(max_cycles=6), processors())
def test_what_comes_out_is_accepted_and_can_be_sent(made: MadeHistory, processor: Any) -> None:
    """Whatever the history, trigger and keep: the edit is never refused, and protected groups and the end are there."""
    outcome = once(made, processor)
    assert outcome.messages
    assert why_unsendable(outcome.messages) is None
    protected = [message for group in made.groups if group.protected for message in group.messages]
    assert said_in(protected) <= said_in(outcome.messages)


@given(histories(max_cycles=6), processors())
def test_what_is_at_rest_stays_as_it_is(made: MadeHistory, processor: Any) -> None:
    """A second pass over what came out changes nothing."""
    outcome = once(made, processor)
    again = run(processor, outcome.messages, entries=outcome.entries, request_index=made.request_index)
    assert again.verdict == "no-op"


Make = Callable[[Any, Any, Any], Any]
"""A processor of a trigger, what it keeps at the end, and what it keeps of the beginning."""

KEEPING: dict[str, Make] = {
    "window": lambda trigger, keep, head: SlidingWindowProcessor(trigger, keep, keep_head=head, **OPTIONS),
    "summary": lambda trigger, keep, head: SummarizationProcessor(
        summarizer=summarize, trigger=trigger, keep=keep, keep_head=head, **OPTIONS
    ),
    # Of several that each wait for a trigger, a first one that keeps more lets a second one cut that else had nothing
    # to do. So these cut each time.
    "summary, then a window": lambda _, keep, head: compose(
        SummarizationProcessor(summarizer=summarize, trigger=ALWAYS, keep=keep, **OPTIONS),
        SlidingWindowProcessor(ALWAYS, ("messages", 5), **OPTIONS),
    ),
    "a window, then a window": lambda _, keep, head: compose(
        SlidingWindowProcessor(ALWAYS, ("messages", 7), **OPTIONS),
        SlidingWindowProcessor(ALWAYS, keep, keep_head=head, **OPTIONS),
    ),
}


@pytest.mark.parametrize("name", KEEPING)
def test_more_keep_keeps_more(name: str) -> None:
    """At the end and at the beginning, in messages, tokens and fractions."""

    @settings(max_examples=25)
    @given(histories(max_cycles=6), sizes(), st.data())
    def check(made: MadeHistory, trigger: tuple[str, Any], data: st.DataObject) -> None:
        less, more = sorted([data.draw(amounts), data.draw(amounts)])
        keeps: list[Any] = [
            *data.draw(
                st.sampled_from(
                    [
                        [("messages", less), ("messages", more)],
                        [("tokens", 10 * less), ("tokens", 10 * more)],
                        [("fraction", (less + 1) / 15), ("fraction", (more + 1) / 15)],
                    ]
                )
            )
        ]
        heads = sorted([data.draw(amounts), data.draw(amounts)])

        def left(keep: Any, head: int) -> set[bytes]:
            return said_in(once(made, KEEPING[name](trigger, keep, head)).messages)

        assert left(keeps[0], heads[0]) <= left(keeps[1], heads[0])
        assert left(keeps[0], heads[0]) <= left(keeps[0], heads[1])

    check()


@given(histories(max_cycles=6), st.integers(0, 5), st.integers(0, 5))
def test_more_results_kept_clears_less(made: MadeHistory, one: int, other: int) -> None:
    def left(keep: int) -> set[bytes]:
        return said_in(once(made, ClearToolResultsProcessor(ALWAYS, keep, **OPTIONS)).messages)

    assert left(min(one, other)) <= left(max(one, other))


@given(histories(max_cycles=6), amounts)
def test_an_estimate_and_a_counter_that_agrees_with_it_cut_alike(made: MadeHistory, tens: int) -> None:
    def counter(messages: Sequence[ModelMessage]) -> int:
        return sum(TEXT.tokens(message) for message in messages)

    size: Any = ("tokens", 40 * tens)
    estimated = once(made, SlidingWindowProcessor(("messages", 0), size))
    counted = once(made, SlidingWindowProcessor(("messages", 0), size, token_counter=counter))
    assert [says(m) for m in estimated.messages] == [says(m) for m in counted.messages]
