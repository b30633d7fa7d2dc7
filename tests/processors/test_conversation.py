"""A conversation of 300 turns with facts planted in it, under each processor: what is sent, and what is still known."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage

from laneway.history.estimation import estimate_history
from laneway.history.origins import EntryMetadata
from laneway.history.processors import (
    ClearToolResultsProcessor,
    LimitWarnerProcessor,
    SlidingWindowProcessor,
    SummarizationProcessor,
    compose,
)

from tests.history.edits import DIALECT, entries_of
from tests.history.oracle import why_unsendable
from tests.processors.passes import asked, looked_up, passed, texts, user

TURNS = 300
LIMIT_TOKENS = 6000
FACT = re.compile(r"FACT-\d+")


async def carry_over(request: str) -> str:
    """A summarizer that does what it is asked: it keeps every fact that it is shown."""
    return "Known: " + " ".join(sorted(set(FACT.findall(request)), key=lambda fact: int(fact[5:])))


def turn(n: int) -> list[ModelMessage]:
    """A turn of the script: every tenth plants a fact, every third reads something long with a tool."""
    said = f"turn {n}, remember FACT-{n}" if n % 10 == 0 else f"turn {n}"
    return looked_up(said, "page " * 200) if n % 3 == 0 else asked(said)


CUT: dict[str, Any] = {"trigger": ("tokens", 4000), "keep": ("tokens", 1500)}
SCRIPTS: dict[str, Any] = {
    "window": SlidingWindowProcessor(**CUT),
    "window with a head": SlidingWindowProcessor(**CUT, keep_head=2),
    "fractions": SlidingWindowProcessor(("fraction", 0.6), ("fraction", 0.2), max_input_tokens=LIMIT_TOKENS),
    "summary": SummarizationProcessor(summarizer=carry_over, **CUT),
    "cleared results, then a window": compose(
        ClearToolResultsProcessor(("tokens", 2500), 2), SlidingWindowProcessor(**CUT)
    ),
    "all, then a warning": compose(
        ClearToolResultsProcessor(("tokens", 2500), 2),
        SummarizationProcessor(summarizer=carry_over, **CUT),
        LimitWarnerProcessor(max_context_tokens=LIMIT_TOKENS),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_every_request_is_sendable_and_fits_and_what_must_be_known_is(name: str) -> None:
    history: list[ModelMessage] = []
    entries: list[EntryMetadata] = []
    edits = 0
    for n in range(TURNS):
        prompt, *rest = turn(n)
        outcome = await passed(SCRIPTS[name], [*history, prompt], [*entries, *entries_of([prompt], f"turn-{n}")])
        edits += outcome.verdict == "accepted"
        sent = outcome.messages
        assert why_unsendable(sent) is None
        assert estimate_history(DIALECT, sent, outcome.entries) < LIMIT_TOKENS
        assert f"turn {n}" in texts(sent)[-1]
        history, entries = [*sent, *rest], [*outcome.entries, *entries_of(rest, f"turn-{n}")]
    last = "\n".join(texts([*history, user("What do you know?")]))
    planted = {f"FACT-{n}" for n in range(0, TURNS, 10)}
    known = set(FACT.findall(last))
    if "summary" in name or "all" in name:
        assert known == planted, "a summary carries every fact over"
        assert last.count("Summary of the earlier conversation") == 1
    else:
        assert known < planted
        assert f"FACT-{TURNS - 10}" in known, "the newest fact is in the window"
    assert ("FACT-0" in known) == (name not in ("window", "fractions", "cleared results, then a window"))
    # The prompt cache is lost with each edit: they are few, since a cut goes well below its trigger.
    assert 1 <= edits <= TURNS // 3
