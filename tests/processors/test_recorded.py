"""The summary call as a model call of the turn: recorded, paid once, counted, told on the receipt, and cancelled."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from redis.asyncio import Redis

from laneway import EventKind, PydanticAdapter, RequestBudget, RetryPolicy, Settings, SummarizationProcessor
from laneway.history.model_calls import CallUsage

from tests.adapters.scripted import Plan
from tests.editing.agents import Recorder, texts_of
from tests.editing.test_crashes import EditedLane
from tests.support.bench import Bench
from tests.support.provider import always, reply, stall
from tests.wire.providers import wire


@dataclass
class SummarizedLane(EditedLane):
    """A lane that is summarized from its second turn on, each step by a worker of its own."""

    paid: list[str] = field(default_factory=list[str])

    def _summarize(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.paid.append(texts_of(messages)[-1])
        usage = RequestUsage(input_tokens=100, output_tokens=20)
        return ModelResponse([TextPart(f"summary {len(self.paid)}")], usage=usage)

    def adapter(self) -> PydanticAdapter[None, Any]:
        summary = SummarizationProcessor(
            FunctionModel(self._summarize, model_name="summarizer"), trigger=("messages", 3), keep=("messages", 1)
        )
        return self.recorder.adapter(summary)


# A worker that dies before the answer is journaled has paid for what nobody has; after that, nobody pays again.
@pytest.mark.parametrize(
    ("deaths", "paid"), [(((0, False),), 2), (((0, True),), 1), (((1, False),), 1), (((1, True),), 1)], ids=str
)
async def test_a_summary_is_paid_once(redis: Redis, settings: Settings, deaths: Any, paid: int):
    lane = SummarizedLane(redis, settings.redis_prefix, Plan("text", ()))
    await lane.ask("t0", "q0")
    lane.deaths = list(deaths)
    record = await lane.ask("t1", "q1")
    assert len(lane.paid) == paid
    assert (record.usage.requests, record.usage.input_tokens, record.usage.output_tokens) == (2, 110, 25)
    (edit,) = record.tally.edits
    (call,) = edit.calls
    assert (call.purpose, call.model, call.usage) == ("summary", "function:summarizer", CallUsage(1, 100, 20))
    assert call.outcome == ("recorded" if deaths in (((0, True),), ((1, False),)) else "answered")
    assert f"summary {paid}" in texts_of(await lane.messages())[0]


async def test_a_failed_request_after_the_summary_does_not_pay_it_again(bench: Bench, conversation_id: str):
    """The turn's own request is tried again; the summary is found."""
    asked: list[str] = []

    def summarize(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append("summary")
        return ModelResponse([TextPart("SUM")])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(texts_of(messages)[-1])
        if asked.count("q1") == 1 and asked[-1] == "q1":
            raise ModelHTTPError(503, "shaky")
        return ModelResponse([TextPart("re")])

    summary = SummarizationProcessor(
        FunctionModel(summarize, model_name="summarizer"), trigger=("messages", 3), keep=("messages", 1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        adapter = PydanticAdapter(
            Agent(FunctionModel(answer, model_name="shaky")),
            history_processor=summary,
            retry_policy=RetryPolicy(first_delay=timedelta(milliseconds=10)),
        )
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "q1")
    assert asked == ["q0", "summary", "q1", "q1"]


async def test_a_summary_that_is_kept_back_is_on_the_receipt_and_on_the_stream(bench: Bench, conversation_id: str):
    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(400, "summarizer", "no")

    summary = SummarizationProcessor(
        FunctionModel(fail, model_name="summarizer"), trigger=("messages", 3), keep=("messages", 1), on_failure="keep"
    )
    client = await bench.serve({"agent": Recorder().adapter(summary)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    turn = await conversation.submit("agent", "q1")
    events = [event async for event in turn.events()]
    (told,) = [event for event in events if event.kind is EventKind.HISTORY_KEPT]
    assert not [event for event in events if event.kind is EventKind.HISTORY_REWRITTEN]
    record = await turn.committed()
    (receipt,) = record.tally.edits
    assert not receipt.is_rewrite
    assert (receipt.entries_before, receipt.entries_after, receipt.epoch_after) == (3, 3, 0)
    (call,) = receipt.calls
    assert call.outcome == "failed"
    assert "ModelHTTPError" in (call.error or "")
    assert told.data["calls"] is not None
    assert record.tally.noops == 1
    assert record.usage.requests == 2, "the request was made, and is counted"


async def test_a_summary_of_the_conversations_own_model_reuses_its_cached_prefix(bench: Bench, conversation_id: str):
    """The same tools and messages, byte for byte, and an instruction after them; the provider reads them from cache."""
    async with wire(always("word " * 300)) as provider:
        agent = provider.agent("chat")
        assert agent.model is not None
        summary = SummarizationProcessor(agent.model, trigger=("messages", 5), keep=("messages", 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            adapter = PydanticAdapter(agent, history_processor=summary, stream=False)
        client = await bench.serve({"agent": adapter})
        conversation = client.conversation(conversation_id)
        for n in range(3):
            turn = await conversation.submit("agent", f"q{n} " + "word " * 300)
            record = await turn.committed()
        _, second, asked, _ = provider.server.requests
        sent = second.body["messages"]
        assert asked.body["messages"][: len(sent)] == sent
        assert asked.body["tools"] == second.body["tools"]
        assert asked.body["messages"][-1]["role"] == "user"
        assert "It is the conversation above." in str(asked.body["messages"][-1]["content"])
        (call,) = record.tally.edits[0].calls
        assert call.usage.cache_read_tokens > 0.5 * call.usage.input_tokens
        assert record.usage.requests == 2


async def test_the_budget_counts_summaries(bench: Bench, conversation_id: str):
    def summarize(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("SUM")])

    agent = Recorder()
    summary = SummarizationProcessor(
        FunctionModel(summarize, model_name="summarizer"), trigger=("messages", 3), keep=("messages", 1)
    )
    client = await bench.serve({"agent": agent.adapter(summary)})
    conversation = client.conversation(conversation_id, budget=RequestBudget(request_limit=3))
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "q1")
    (left,) = (await conversation.status("agent")).headroom
    assert left.consumed == 3


async def test_cancelling_a_turn_that_summarizes_closes_the_summary_s_request(bench: Bench, conversation_id: str):
    async with wire(lambda request: reply("fine")) as provider:
        agent = provider.agent("chat")
        assert agent.model is not None
        summary = SummarizationProcessor(agent.model, trigger=("messages", 3), keep=("messages", 1), on_failure="keep")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            adapter = PydanticAdapter(agent, history_processor=summary, stream=False)
        client = await bench.serve({"agent": adapter})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "first")
        provider.server.fail(stall(), times=1)
        turn = await conversation.submit("agent", "second")
        request = await provider.server.wait_for_request(2)
        assert await turn.cancel() == "cancelled"
        await request.closed()
        assert len(provider.server.requests) == 2
        assert len(await conversation.messages("agent")) == 2
