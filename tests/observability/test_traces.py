"""What an OTLP collector receives of turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage

from laneway import Edit, HistoryProcessorContext, Hooks, Laneway
from laneway.errors import TurnFailed

from tests.editing.agents import Recorder, keep
from tests.observability.collector import Collector, Span
from tests.support.bench import Bench


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


async def received(collector: Collector) -> None:
    await asyncio.to_thread(collector.flush)


def names_of(spans: list[Span]) -> set[str]:
    return {span.name for span in spans}


async def test_a_turn_is_one_trace_across_client_workflow_and_activities(
    bench: Bench, conversation_id: str, collector: Collector
):
    """Two turns of a lane, whose workflow lives through both: two traces, each with its steps, requests and tools."""
    agent = Recorder()
    app = Laneway(agents={"agent": agent.adapter()}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "look")
        await conversation.ask("agent", "again")
    await received(collector)
    first, second = _roots(collector)
    traces = [[span for span in collector.spans if span.trace_id == root.trace_id] for root in (first, second)]
    common = {
        "StartUpdateWithStartWorkflow:Lane",
        "HandleUpdate:submit",
        "StartActivity:step",
        "RunActivity:step",
        "step agent",
        "turn agent",
        "chat recorder",
    }
    for spans in traces:
        assert common <= names_of(spans), names_of(spans)
        ids = {span.span_id for span in spans}
        assert {span.name for span in spans if span.parent_id not in ids} == {"invoke_agent agent"}, "one root"
    assert [len([span for span in spans if span.name == "step agent"]) for spans in traces] == [3, 1]
    assert [len([span for span in spans if span.name == "chat recorder"]) for spans in traces] == [2, 1]
    assert len([span for span in traces[0] if "execute_tool" in span.name]) == 1
    (turn,) = [span for span in traces[0] if span.name == "turn agent"]
    assert turn.attributes["gen_ai.conversation.id"] == conversation_id
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["laneway.turn.outcome"] == "committed"
    assert turn.attributes["gen_ai.usage.input_tokens"] == 20
    assert turn.attributes["laneway.turn.steps"] == 3
    assert collector.metric("laneway.turns") == [
        ({"gen_ai.agent.name": "agent", "laneway.turn.outcome": "committed"}, 2)
    ]


def _roots(collector: Collector) -> list[Span]:
    """The spans with which callers' submits begin, in order."""
    return [span for span in collector.named("invoke_agent agent") if not span.parent_id]


async def test_a_submit_joins_the_trace_that_is_there(bench: Bench, conversation_id: str, collector: Collector):
    agent = Recorder()
    app = Laneway(agents={"agent": agent.adapter()}, telemetry=collector.telemetry)
    tracer = collector.telemetry.tracer_provider.get_tracer("test")  # type: ignore[union-attr]
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        with tracer.start_as_current_span("request") as span:
            await client.conversation(conversation_id).ask("agent", "hello")
            trace_id = f"{span.get_span_context().trace_id:032x}"
    await received(collector)
    assert {span.trace_id for span in collector.spans} == {trace_id}


async def test_history_processing_is_measured_where_it_happens(
    bench: Bench, conversation_id: str, collector: Collector
):
    """A condition that answers False emits nothing; a rewrite has its figures, a failure its type and not its text."""

    def trim(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
        if "fails" in str(ctx.messages[-1]):
            raise ValueError("the sesame word")
        return keep(0)(ctx)

    agent = Recorder()
    adapter = agent.adapter(trim, history_processor_condition=lambda state: state.estimated_tokens > 25)
    app = Laneway(agents={"agent": adapter}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "x")
        await received(collector)
        assert collector.named("process history") == []
        assert collector.metric("laneway.history.rewrites") == []
        await conversation.ask("agent", "a rather longer prompt than the one before: " + "much " * 30)
        with pytest.raises(TurnFailed):
            await conversation.ask("agent", "one that fails, and is long enough to be looked at")
    await received(collector)
    rewrite, failure = collector.named("process history")
    assert rewrite.attributes["laneway.history.rewritten"] is True
    before, after = (rewrite.attributes[f"laneway.history.tokens.{when}"] for when in ("before", "after"))
    assert before > after > 0
    assert "trim" in rewrite.attributes["laneway.history.processor"]
    assert failure.failed
    assert "sesame" not in failure.text
    by_name = {name: value for name, _, value in collector.points}
    assert by_name["laneway.history.rewrites"] == 1
    assert by_name["laneway.history.tokens.before"] == before
    assert by_name["laneway.history.tokens.after"] == after
    assert by_name["laneway.history.reduction"] == pytest.approx(1 - after / before)
    assert by_name["laneway.history.failures"] == 1
    assert by_name["laneway.history.compaction.duration"] > 0
    outcomes = {attributes["laneway.turn.outcome"]: value for attributes, value in collector.metric("laneway.turns")}
    assert outcomes == {"committed": 2, "failed": 1}


async def test_no_text_is_in_a_span_and_an_edited_prompt_least_of_all(
    bench: Bench, conversation_id: str, collector: Collector
):
    agent = Recorder()
    adapter = agent.adapter(hooks=Hooks(user_prompt_submit=lambda event: Edit("a redacted one")))
    app = Laneway(agents={"agent": adapter}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        await client.conversation(conversation_id).ask("agent", "sesame")
    await received(collector)
    assert collector.spans
    for span in collector.spans:
        assert "sesame" not in span.text
        assert "redacted" not in span.text, span.name


async def test_without_telemetry_there_is_none(bench: Bench, conversation_id: str, monkeypatch: pytest.MonkeyPatch):
    """Not even for a global provider, and Temporal's own part is not imported."""
    import laneway.activities.telemetry as module

    def refuse(*args: Any) -> Any:
        raise AssertionError("nothing was asked for")

    monkeypatch.setattr(module.Instruments, "__init__", refuse)
    for name in [name for name in sys.modules if name.startswith("laneway.workflows.tracing")]:
        monkeypatch.delitem(sys.modules, name)
    client = await bench.serve({"agent": Recorder().adapter()})
    await client.conversation(conversation_id).ask("agent", "hello")
    assert "laneway.workflows.tracing" not in sys.modules
