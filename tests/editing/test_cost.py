"""What a step reads of a long history when nothing is edited: counted, not timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from laneway import PydanticAdapter
from laneway.activities.pydantic_editing import describe
from laneway.activities.pydantic_messages import PydanticDialect

from tests.editing.agents import USAGE, Recorder, keep
from tests.editing.steps import work_of

LONG = 2_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often messages were copied, put in canonical form, weighed, described and encoded."""
    counted: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    for name in ("content", "detached", "facts", "weight", "origins"):
        count(PydanticDialect, name)
    count(PydanticAdapter, "encode")
    return counted


def history() -> list[ModelMessage]:
    exchange = [ModelRequest([UserPromptPart("q")]), ModelResponse([TextPart("a")], usage=USAGE)]
    return [message for _ in range(LONG // 2) for message in exchange]


@pytest.mark.parametrize("condition", [None, lambda state: False], ids=["no processor", "a condition that says no"])
async def test_a_step_that_only_appends_reads_no_message_of_the_history(reads: Counter[str], condition: Any):
    """Only what is new is described; of what is stored nothing is copied, encoded or looked into."""
    messages = [*history(), ModelRequest([UserPromptPart("now")])]
    entries = [describe(message, "earlier") for message in messages]
    adapter = Recorder().adapter(None if condition is None else keep(1), history_processor_condition=condition)
    reads.clear()
    result = await adapter.step(work_of(messages, entries))
    assert (result.rewritten, len(result.appended), result.skips) == (None, 2, int(condition is not None))
    assert reads["content"] == reads["detached"] == reads["facts"] == reads["encode"] == 0
    assert reads["weight"] <= 1
    assert reads["origins"] <= 1


async def test_a_processor_is_what_makes_a_step_read_all_of_it(reads: Counter[str]):
    """The counters count: with a processor that changes nothing, each message is copied once."""
    messages = [*history(), ModelRequest([UserPromptPart("now")])]
    entries = [describe(message, "earlier") for message in messages]
    adapter = Recorder().adapter(lambda ctx: ctx.messages)
    reads.clear()
    result = await adapter.step(work_of(messages, entries))
    assert (result.rewritten, result.noops) == (None, 1)
    assert reads["detached"] == len(messages)
