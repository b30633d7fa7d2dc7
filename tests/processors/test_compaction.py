"""Compaction on demand: what it does, what it reports, and that it is a turn like any other."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from redis.asyncio import Redis

from laneway import PydanticAdapter, Settings, SlidingWindowProcessor, SummarizationProcessor, TextWindow
from laneway.errors import InvalidInput
from laneway.history.compaction import Compaction, CompactionReport, compactor
from laneway.history.processor_chain import compose
from laneway.history.processor_summary import SUMMARY_OPENING, SUMMARY_PROMPT

from tests.adapters.scripted import Plan
from tests.editing.agents import Recorder, texts_of
from tests.editing.test_crashes import EditedLane
from tests.support.bench import Bench
from tests.support.provider import always
from tests.wire.providers import wire


async def test_the_agents_own_model_sums_up_what_is_old(bench: Bench, conversation_id: str):
    """With its cached prefix, and with the focus; the next turn goes on from the summary."""
    async with wire(always("short")) as provider:
        client = await bench.serve({"agent": provider.adapter("chat")})
        conversation = client.conversation(conversation_id)
        assert (await conversation.compact("agent")).reason == "the lane has no history yet"
        for n in range(3):
            await conversation.ask("agent", f"q{n} " + "word " * 100)
        report = await conversation.compact("agent", focus="order numbers", turn_id="c1")
        assert report.compacted
        assert report.receipt is not None
        assert (report.receipt.entries_before, report.receipt.entries_after) == (6, 2)
        assert report.usage.requests == 1
        asked = provider.server.requests[-1].body
        before = provider.server.requests[-2].body
        assert asked["messages"][:-1] == before["messages"][: len(asked["messages"]) - 1]
        assert asked["tools"] == before["tools"]
        assert "Pay particular attention to: order numbers" in str(asked["messages"][-1])
        texts = texts_of(await conversation.messages("agent"))
        assert texts[:2] == ["SystemPromptPart", f"{SUMMARY_OPENING}\n\nshort"]
        assert texts[2].startswith("q2 ")
        assert (await conversation.compact("agent", focus="order numbers", turn_id="c1")) == report, "it is done once"
        assert len(provider.server.requests) == 4
        again = await conversation.compact("agent")
        assert not again.compacted
        assert "nothing to sum up" in (again.reason or "")
        await conversation.ask("agent", "and now?")
        sent = provider.server.requests[-1].body["messages"]
        assert SUMMARY_OPENING in str(sent)
        assert "q0 " not in str(sent)
        assert (await conversation.status("agent")).epoch == 1


async def test_the_adapters_own_summaries_are_used_and_failures_reported(bench: Bench, conversation_id: str):
    answers: list[str | Exception] = [ModelHTTPError(400, "summarizer", "no"), "SUM"]

    def summarize(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse([TextPart(answer)], usage=RequestUsage(input_tokens=9, output_tokens=1))

    summary = SummarizationProcessor(FunctionModel(summarize, model_name="summarizer"))
    agent = Recorder()
    processors: Any = [SlidingWindowProcessor(), summary]
    client = await bench.serve({"agent": agent.adapter(processors)})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "q1")
    failed = await conversation.compact("agent")
    assert not failed.compacted
    assert "the summary failed, and the history is as before: ModelHTTPError" in (failed.reason or "")
    assert failed.receipt is not None
    assert [call.outcome for call in failed.receipt.calls] == ["failed"]
    assert texts_of(await conversation.messages("agent")) == ["q0", "re: q0", "q1", "re: q1"]
    done = await conversation.compact("agent")
    assert done.compacted
    assert (done.usage.requests, done.usage.input_tokens) == (1, 9)
    await conversation.ask("agent", "q2")
    assert agent.sent[-1] == [f"{SUMMARY_OPENING}\n\nSUM", "q1", "re: q1", "q2"]


async def test_a_history_that_ends_with_a_tools_output_keeps_its_end(bench: Bench, conversation_id: str):
    class Price(BaseModel):
        cents: int

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not info.output_tools:
            return ModelResponse([TextPart("SUM")])
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"cents": len(messages)}, f"o{len(messages)}")])

    model = FunctionModel(answer, model_name="pricer")
    agent = Agent(model, output_type=Price)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        other = SummarizationProcessor(FunctionModel(answer, model_name="other"))
        adapter = PydanticAdapter(agent, history_processor=other)
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    for n in range(3):
        await conversation.ask("agent", f"q{n}")
    assert (await conversation.compact("agent", keep=1)).compacted
    messages = await conversation.messages("agent")
    assert SUMMARY_OPENING in texts_of(messages)[0]
    assert "(compaction)" not in str(messages)
    assert texts_of(messages)[-1] == "Final result processed."
    assert (await conversation.ask("agent", "q3")).output.cents > 0


@pytest.mark.parametrize("arguments", [{"keep": 0}, {"keep": True}, {"focus": "  "}])
async def test_what_cannot_be_asked_for_is_refused(bench: Bench, conversation_id: str, arguments: Any):
    client = await bench.client({"agent": Recorder().adapter()})
    with pytest.raises(InvalidInput):
        await client.conversation(conversation_id).compact("agent", **arguments)


class CompactedLane(EditedLane):
    """Two turns, then a compaction whose workers die."""

    paid = 0

    def _summarize(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.paid += 1
        return ModelResponse([TextPart("SUM")])

    def adapter(self) -> PydanticAdapter[None, Any]:
        return self.recorder.adapter(SummarizationProcessor(FunctionModel(self._summarize, model_name="summarizer")))

    async def compact(self) -> CompactionReport:
        return CompactionReport.of(await self.take("compact", Compaction("x").to_bytes()))


@pytest.mark.parametrize(("death", "paid"), [((0, False), 2), ((0, True), 1), ((1, False), 1), ((1, True), 1)], ids=str)
async def test_a_compaction_whose_worker_dies_is_paid_once(redis: Redis, settings: Settings, death: Any, paid: int):
    lane = CompactedLane(redis, settings.redis_prefix, Plan("text", ()))
    await lane.ask("t0", "q0")
    await lane.ask("t1", "q1")
    lane.deaths = [death]
    report = await lane.compact()
    assert report.compacted
    assert lane.paid == paid
    assert texts_of(await lane.messages()) == [f"{SUMMARY_OPENING}\n\nSUM", "q1", "re: q1"]


async def test_a_text_window_has_nothing_to_compact(bench: Bench, conversation_id: str):
    client = await bench.serve({"agent": Recorder().adapter(history=TextWindow(2))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    assert "text window" in ((await conversation.compact("agent")).reason or "")


def test_the_summaries_of_a_chain_are_found_and_nothing_is_trimmed_without_any():
    summary = SummarizationProcessor(summarizer=str.upper, trim_tokens_to_summarize=7)
    found = compactor(compose(SlidingWindowProcessor(), summary), Compaction("numbers", 4), model="test")
    assert (found.summarizer, found.trim_tokens_to_summarize, found.keep) == (str.upper, 7, ("messages", 5))
    assert (found.focus, found.on_failure) == ("numbers", "keep")
    own = compactor(SlidingWindowProcessor(), Compaction(), model="test:own")
    assert (own.model, own.trim_tokens_to_summarize, own.summary_prompt) == ("test:own", None, SUMMARY_PROMPT)


def test_a_compaction_is_stored_and_read_as_it_was():
    for compaction in (Compaction(), Compaction('a "focus"\n数', 9)):
        assert Compaction.from_bytes(compaction.to_bytes()) == compaction
        json.loads(compaction.to_bytes())
