"""Random stock processors and compositions of them, for histories of a few messages of ten tokens, of 100 that fit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.processors.passes import ten_each

amounts = st.integers(0, 14)
OPTIONS: dict[str, Any] = {"max_input_tokens": 100, "token_counter": ten_each}


@st.composite
def sizes(draw: st.DrawFn) -> tuple[str, int | float]:
    """A size."""
    match draw(st.sampled_from(["messages", "tokens", "fraction"])):
        case "messages":
            return ("messages", draw(amounts))
        case "tokens":
            return ("tokens", 10 * draw(amounts))
        case _:
            return ("fraction", draw(st.sampled_from([0.05, 0.3, 0.5, 1.0])))


def summarize(request: str) -> str:
    """A summary without anything in it that a history here says."""
    return "They spoke."


@st.composite
def processors(draw: st.DrawFn) -> Any:
    """One of the four, or all of them one after the other."""
    trigger = draw(st.lists(sizes(), min_size=1, max_size=2))
    cut = {"trigger": trigger, "keep": draw(sizes()), "keep_head": draw(st.none() | sizes()), **OPTIONS}
    match draw(st.sampled_from(["window", "summary", "warner", "results", "several"])):
        case "window":
            return SlidingWindowProcessor(**cut)
        case "summary":
            return SummarizationProcessor(summarizer=summarize, **cut)
        case "warner":
            return LimitWarnerProcessor(draw(st.integers(1, 4)), 10 * draw(st.integers(1, 9)), token_counter=ten_each)
        case "results":
            return ClearToolResultsProcessor(trigger, draw(st.integers(0, 3)), **OPTIONS)
        case _:
            return compose(
                ClearToolResultsProcessor(trigger, draw(st.integers(0, 3)), **OPTIONS),
                SummarizationProcessor(summarizer=summarize, **cut),
                SlidingWindowProcessor(**cut),
                LimitWarnerProcessor(3),
            )
