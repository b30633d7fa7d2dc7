"""Stock processors in turns: what the model is sent, and what the lane has afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import SlidingWindowProcessor, SummarizationProcessor
from laneway.errors import TurnFailed
from laneway.history.processor_summary import SUMMARY_OPENING

from tests.editing.agents import Recorder, texts_of
from tests.support.bench import Bench


def summarizer(*answers: str | Exception) -> FunctionModel:
    left = list(answers)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        following = left.pop(0)
        if isinstance(following, Exception):
            raise following
        return ModelResponse(parts=[TextPart(following)])

    return FunctionModel(answer, model_name="summarizer")


async def test_a_summary_replaces_the_history_and_is_summarized_later(bench: Bench, conversation_id: str):
    """A list of processors, as an adapter takes them; the summary is committed with its turn."""
    agent = Recorder()
    summary = SummarizationProcessor(
        summarizer("SUM-1", "SUM-2"), trigger=("messages", 5), keep=("messages", 3), token_counter=len
    )
    processors: Any = [summary, SlidingWindowProcessor()]
    client = await bench.serve({"agent": agent.adapter(processors)})
    conversation = client.conversation(conversation_id)
    for n in range(4):
        await conversation.ask("agent", f"q{n}")
    first, second = f"{SUMMARY_OPENING}\n\nSUM-1", f"{SUMMARY_OPENING}\n\nSUM-2"
    assert agent.sent == [
        ["q0"],
        ["q0", "re: q0", "q1"],
        [first, "q1", "re: q1", "q2"],
        [second, "q2", "re: q2", "q3"],
    ]
    assert texts_of(await conversation.messages("agent")) == [second, "q2", "re: q2", "q3", "re: q3"]
    records = await client.turns(conversation.lane("agent"))
    assert [len(record.tally.edits) for record in records] == [0, 0, 1, 1]


@pytest.mark.parametrize("on_failure", ["keep", "raise"])
async def test_a_summary_that_fails_leaves_the_history(bench: Bench, conversation_id: str, on_failure: Any):
    agent = Recorder()
    summary = SummarizationProcessor(
        summarizer(ModelHTTPError(400, "summarizer", "no"), "later"),
        trigger=("messages", 3),
        keep=("messages", 1),
        on_failure=on_failure,
    )
    client = await bench.serve({"agent": agent.adapter(summary)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    if on_failure == "raise":
        with pytest.raises(TurnFailed) as failed:
            await conversation.ask("agent", "q1")
        assert failed.value.error_type == "HistoryProcessingError"
        assert texts_of(await conversation.messages("agent")) == ["q0", "re: q0"]
    else:
        await conversation.ask("agent", "q1")
        assert agent.sent[-1] == ["q0", "re: q0", "q1"]
    assert (await conversation.status("agent")).epoch == 0
