"""What a step reads of a long history when nothing is edited: counted, not timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from laneway import LangChainAdapter, PydanticAdapter
from laneway.activities import langchain_growth, langchain_state
from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.pydantic_messages import PydanticDialect

from tests.editing.agents import USAGE, AnyRecorder, LangChainRecorder, Recorder, keep
from tests.editing.steps import first_work_of, work_of
from tests.history.twins import twins

LONG = 2_000


@pytest.fixture(params=[Recorder, LangChainRecorder], ids=["pydantic_ai", "langchain"])
def agent(request: pytest.FixtureRequest) -> AnyRecorder:
    """The same agent in each framework."""
    recorder: AnyRecorder = request.param()
    return recorder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often messages were copied, put in canonical form, weighed, described and encoded."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, as_name: str = "") -> None:
        original = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[as_name or name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    for dialect in (PydanticDialect, LangChainDialect):
        for name in ("content", "detached", "facts", "weight", "origins"):
            count(dialect, name)
    for adapter in (PydanticAdapter, LangChainAdapter):
        count(adapter, "encode")
    for module in (langchain_growth, langchain_state):
        count(module, "detached", "handed out")
    return counted


def history() -> list[ModelMessage]:
    exchange = [ModelRequest([UserPromptPart("q")]), ModelResponse([TextPart("a")], usage=USAGE)]
    return [message for _ in range(LONG // 2) for message in exchange]


def step_on_a_long_history(agent: AnyRecorder, adapter: Any) -> Any:
    """The step that asks the model, on top of a long history."""
    if isinstance(agent, Recorder):
        messages = [*history(), ModelRequest([UserPromptPart("now")])]
        entries = [adapter.describe(message, "earlier") for message in messages]
        return work_of(messages, entries)
    earlier = twins(history())
    for number, message in enumerate(earlier):
        message.id = f"m{number}"
    return first_work_of(adapter, earlier, "now")


@pytest.mark.parametrize("condition", [None, lambda state: False], ids=["no processor", "a condition that says no"])
async def test_a_step_that_only_appends_reads_no_message_of_the_history(
    reads: Counter[str], agent: AnyRecorder, condition: Any
):
    """Only what is new is described; of what is stored nothing is put in other forms or encoded."""
    adapter = agent.adapter(None if condition is None else keep(1), history_processor_condition=condition)
    work = step_on_a_long_history(agent, adapter)
    reads.clear()
    result = await adapter.step(work)
    assert (result.rewritten, len(result.appended), result.skips) == (None, 2, int(condition is not None))
    assert reads["content"] == reads["detached"] == reads["encode"] == 0
    assert reads["weight"] <= 2
    assert reads["origins"] <= 2
    # A graph's nodes are handed messages that they may change, and a graph's request is looked through once for what
    # providers refuse: that is paid for each message, and no more than once.
    assert reads["handed out"] <= (0 if isinstance(agent, Recorder) else LONG + 4)
    assert reads["facts"] <= (0 if isinstance(agent, Recorder) else LONG + 2)


async def test_a_processor_is_what_makes_a_step_read_all_of_it(reads: Counter[str], agent: AnyRecorder):
    """The counters count: with a processor that changes nothing, each message is copied once."""
    adapter = agent.adapter(lambda ctx: ctx.messages)
    work = step_on_a_long_history(agent, adapter)
    reads.clear()
    result = await adapter.step(work)
    assert (result.rewritten, result.noops) == (None, 1)
    assert reads["detached"] == LONG + 1
