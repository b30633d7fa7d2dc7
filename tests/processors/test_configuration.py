"""What the stock processors take and refuse, and their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

import laneway
from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
    create_sliding_window_processor,
    create_summarization_processor,
)
from laneway.history.triggers import window_of

from tests.processors.passes import asked, passed, ten_each, user


def test_the_defaults_are_those_that_people_know() -> None:
    window = create_sliding_window_processor()
    assert (window.trigger, window.keep) == (("messages", 100), ("messages", 50))
    summary = create_summarization_processor("openai:gpt-5-mini")
    assert (summary.trigger, summary.keep) == (("tokens", 170_000), ("messages", 20))
    assert (summary.trim_tokens_to_summarize, summary.on_failure) == (4000, "raise")
    limits = LimitWarnerProcessor(10)
    assert (limits.warning_threshold, limits.critical_remaining_requests) == (0.7, 3)


def test_the_factories_and_the_classes_have_the_same_defaults() -> None:
    assert create_sliding_window_processor() == SlidingWindowProcessor()
    assert create_summarization_processor("m") == SummarizationProcessor("m")


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: SlidingWindowProcessor(("fraction", 0.8)), "0.8"),
    (lambda: SlidingWindowProcessor(keep=("fraction", 0.5)), "max_input_tokens"),
    (lambda: SlidingWindowProcessor(keep_head=("fraction", 0.5)), "max_input_tokens"),
    (lambda: SlidingWindowProcessor(("fraction", 0.8), model="nobody:knows"), "nobody:knows"),
    (lambda: SlidingWindowProcessor(("fraction", 0), max_input_tokens=9), "0"),
    (lambda: SlidingWindowProcessor(("fraction", 1.01), max_input_tokens=9), "1.01"),
    (lambda: SlidingWindowProcessor(("fraction", float("nan")), max_input_tokens=9), "nan"),
    (lambda: SlidingWindowProcessor(("fraction", True), max_input_tokens=9), "True"),
    (lambda: SlidingWindowProcessor(("messages", -1)), "-1"),
    (lambda: SlidingWindowProcessor(("messages", 1.5)), "1.5"),
    (lambda: SlidingWindowProcessor(("messages", True)), "True"),
    (lambda: SlidingWindowProcessor(("messages", "5")), "'5'"),
    (lambda: SlidingWindowProcessor(keep=("tokens", -3)), "-3"),
    (lambda: SlidingWindowProcessor(keep_head=-1), "-1"),
    (lambda: SlidingWindowProcessor(("turns", 5)), "turns"),
    (lambda: SlidingWindowProcessor(("messages",)), "messages"),
    (lambda: SlidingWindowProcessor([]), "holds no size"),
    (lambda: SlidingWindowProcessor([("messages", 5), ("tokens", -1)]), "-1"),
    (lambda: SlidingWindowProcessor(7), "7"),
    (lambda: SlidingWindowProcessor(max_input_tokens=0), "0"),
    (lambda: SlidingWindowProcessor(token_counter=5), "token_counter=5"),
    (SummarizationProcessor, "exactly one"),
    (lambda: SummarizationProcessor("m", summarizer=str), "exactly one"),
    (lambda: SummarizationProcessor("m", summary_prompt="Sum it up."), "messages"),
    (lambda: SummarizationProcessor("m", trim_tokens_to_summarize=-1), "-1"),
    (lambda: SummarizationProcessor("m", trim_tokens_to_summarize=0), "0"),
    (lambda: SummarizationProcessor("m", on_failure="ignore"), "ignore"),
    (LimitWarnerProcessor, "no limit"),
    (lambda: LimitWarnerProcessor(0), "0"),
    (lambda: LimitWarnerProcessor(max_context_tokens=-1), "-1"),
    (lambda: LimitWarnerProcessor(5, warning_threshold=0), "0"),
    (lambda: LimitWarnerProcessor(5, warning_threshold=1.2), "1.2"),
    (lambda: LimitWarnerProcessor(5, critical_remaining_requests=-1), "-1"),
    (lambda: ClearToolResultsProcessor(keep=-1), "-1"),
    (lambda: ClearToolResultsProcessor(keep=True), "True"),
    (lambda: ClearToolResultsProcessor(exclude_tools="look"), "look"),
    (lambda: ClearToolResultsProcessor(("fraction", 0.5)), "max_input_tokens"),
    (compose, "no history processor"),
]
"""What cannot work, and what the error names."""


@pytest.mark.parametrize(("make", "named"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_a_value_that_cannot_work_is_refused_by_name(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()


def test_a_known_window_makes_max_input_tokens_unnecessary() -> None:
    """From `genai-prices` for a name, from its profile for a model."""
    assert (window_of("anthropic:claude-sonnet-4-5") or 0) >= 200_000
    assert window_of("nobody:knows") is None
    assert window_of(TestModel(profile={"context_window": 32_000})) == 32_000
    SlidingWindowProcessor(("fraction", 0.8), model="anthropic:claude-sonnet-4-5")
    SummarizationProcessor(TestModel(profile={"context_window": 32_000}), trigger=("fraction", 0.8))


@pytest.mark.parametrize(("maximum", "verdict"), [(100, "accepted"), (101, "no-op")])
async def test_a_fraction_is_of_max_input_tokens(maximum: int, verdict: str) -> None:
    """Five messages of ten tokens are half of 100, and less than half of 101."""
    messages = [*asked("a"), *asked("b"), user("now")]
    window = SlidingWindowProcessor(
        ("fraction", 0.5), ("fraction", 0.1), max_input_tokens=maximum, token_counter=ten_each
    )
    assert (await passed(window, messages)).verdict == verdict


def test_processors_hold_no_state_that_runs_could_share() -> None:
    for processor in (SlidingWindowProcessor(), SummarizationProcessor("m"), LimitWarnerProcessor(5)):
        for field in dataclasses.fields(processor):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(processor, field.name, None)


def test_they_are_exported() -> None:
    names = [
        "ClearToolResultsProcessor",
        "LimitWarnerProcessor",
        "SlidingWindowProcessor",
        "SummarizationProcessor",
        "create_sliding_window_processor",
        "create_summarization_processor",
    ]
    from laneway.history import processors

    assert [getattr(laneway, name) for name in names] == [getattr(processors, name) for name in names]
    assert set(names) <= set(laneway.__all__)
