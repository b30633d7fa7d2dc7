"""What an OTLP collector receives of turns, of agents of both frameworks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from laneway import (
    Delegation,
    Deny,
    HistoryProcessorContext,
    Hooks,
    Laneway,
    SlidingWindowProcessor,
    SummarizationProcessor,
    Telemetry,
)
from laneway.errors import TurnCancelled, TurnDenied, TurnFailed

from tests.delegation.agents import Team
from tests.delegation.test_across import graph, lead
from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder, keep
from tests.langchain.graphs import ScriptedModel, said
from tests.observability.collector import Collector, Span
from tests.support.bench import Bench
from tests.support.provider import answer, call, in_order, status
from tests.wire.providers import FRAMEWORKS, Framework, wire

BOTH = pytest.mark.parametrize("agent", [Recorder, LangChainRecorder], indirect=True, ids=FRAMEWORKS)

OF_A_TURN = {
    "HandleUpdate:submit",
    "StartActivity:step",
    "RunActivity:step",
    "step agent",
    "turn agent",
    "chat recorder",
}


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> AnyRecorder:
    made: AnyRecorder = request.param()
    return made


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


async def received(collector: Collector) -> None:
    await asyncio.to_thread(collector.flush)


async def told_of(collector: Collector, turns: int) -> None:
    """Wait until so many turns have been measured: the caller may have the result before."""
    async with asyncio.timeout(30):
        while sum(value for _, value in collector.metric("laneway.turns")) < turns:
            await received(collector)


def names_of(spans: list[Span]) -> set[str]:
    return {span.name for span in spans}


def traces_of(collector: Collector, agent: str = "agent") -> list[list[Span]]:
    """The spans of each submit by a caller, in order; each trace is whole: one root, and no parent outside of it."""
    traces = []
    for root in [span for span in collector.named(f"invoke_agent {agent}") if not span.parent_id]:
        spans = [span for span in collector.spans if span.trace_id == root.trace_id]
        ids = {span.span_id for span in spans}
        assert [span.name for span in spans if span.parent_id not in ids] == [root.name], "one root"
        traces.append(spans)
    return traces


def beneath(spans: list[Span], name: str) -> set[str]:
    """The names of the spans right above those of a name."""
    by_id = {span.span_id: span for span in spans}
    return {by_id[span.parent_id].name for span in spans if span.name == name}


@BOTH
async def test_a_turn_is_one_trace_across_client_workflow_and_activities(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    """Two turns of a lane, whose workflow lives through both: two traces, each with its steps, requests and tools."""
    app = Laneway(agents={"agent": agent.adapter()}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "look")
        await conversation.ask("agent", "again")
    await received(collector)
    first, second = traces_of(collector)
    # The first turn starts the lane's workflow; the second comes to one that is known to be open.
    for spans, offer in ((first, "StartUpdateWithStartWorkflow:Lane"), (second, "StartWorkflowUpdate:submit")):
        assert names_of(spans) >= OF_A_TURN | {offer}, names_of(spans)
    assert [len([span for span in spans if span.name == "step agent"]) for spans in (first, second)] == [3, 1]
    assert [len([span for span in spans if span.name == "chat recorder"]) for spans in (first, second)] == [2, 1]
    (tool,) = [span for span in first if "execute_tool" in span.name]
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.operation.name"]) == ("look", "execute_tool")
    assert tool.attributes["gen_ai.tool.call.id"] == "look-0"
    (turn,) = [span for span in first if span.name == "turn agent"]
    (chat,) = [span for span in second if span.name == "chat recorder"]
    assert chat.attributes["gen_ai.request.model"] == "recorder"
    assert chat.attributes["gen_ai.conversation.id"] == conversation_id
    assert turn.attributes["gen_ai.conversation.id"] == conversation_id
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["laneway.turn.outcome"] == "committed"
    assert turn.attributes["laneway.turn.steps"] == 3
    used = chat.attributes["gen_ai.usage.input_tokens"]
    assert turn.attributes["gen_ai.usage.input_tokens"] == 2 * used
    assert collector.metric("laneway.turns") == [
        ({"gen_ai.agent.name": "agent", "laneway.turn.outcome": "committed"}, 2)
    ]
    tokens = {told["gen_ai.token.type"]: value for told, value in collector.metric("gen_ai.client.token.usage")}
    assert tokens["input"] == 3 * used


@BOTH
async def test_turns_that_their_lane_carries_over_stay_in_their_own_traces(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    """The workflow continues as new after each turn, and each next turn was accepted by a run before."""
    all_are_there = asyncio.Event()

    async def wait(event: Any) -> None:
        await all_are_there.wait()

    hooks = Hooks(before_model_request=wait, timeout=timedelta(minutes=2))
    app = Laneway(agents={"agent": agent.adapter(hooks=hooks)}, telemetry=collector.telemetry)
    settings = bench.settings.model_copy(update={"max_turns_per_run": 1, "min_run_time": timedelta(0)})
    async with app.worker(settings), app.client(settings) as client:
        conversation = client.conversation(conversation_id)
        turns = [await conversation.submit("agent", prompt, turn_id=prompt) for prompt in ("look", "two", "three")]
        again = await conversation.submit("agent", "two", turn_id="two")
        all_are_there.set()
        for turn in (*turns, again):
            await turn.result()
        await told_of(collector, 3)
    await received(collector)
    *traces, resubmitted = traces_of(collector)
    for spans, steps in zip(traces, (3, 1, 1), strict=True):
        for name in ("StartActivity:step", "RunActivity:step", "step agent"):
            assert len([span for span in spans if span.name == name]) == steps, name
    assert "step agent" not in names_of(resubmitted)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_delegated_work_is_in_the_trace_of_its_turn(
    bench: Bench, conversation_id: str, collector: Collector, framework: Framework
):
    """Children of both frameworks, and a child of a child."""
    read = Delegation("reader", "reads")
    agents: dict[str, Any] = dict(
        Team(
            {"reader": read, "graph": Delegation("graph", "reads"), "middle": Delegation("middle", "hands on")}
        ).agents()
    )
    agents |= {"graph": graph()}
    prompt = "reader: a | graph: b | middle: reader: c"
    if framework == "langchain":
        agents |= {"lead": lead()}
        del agents["middle"]
        prompt = "reader: a | graph: b | kept: c"
    app = Laneway(agents=agents, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        await client.conversation(conversation_id).ask("lead", prompt)
        await told_of(collector, 4 if framework == "langchain" else 5)
    await received(collector)
    (spans,) = traces_of(collector, "lead")
    stray = [span.name for span in collector.spans if span not in spans and not span.name.startswith("Query")]
    assert stray == [], "everything is of that trace"
    turns = sorted(span.name for span in spans if span.name.startswith("turn "))
    if framework == "langchain":
        assert turns == ["turn graph", "turn graph", "turn lead", "turn reader"]
    else:
        assert turns == ["turn graph", "turn lead", "turn middle", "turn reader", "turn reader"]
    assert "StartChildWorkflow:Lane" in names_of(spans)
    for name in ("step reader", "step graph", "step lead"):
        assert beneath(spans, name) == {"RunActivity:step"}
    assert {"chat reader", "chat scripted"} <= names_of(spans)


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


@BOTH
async def test_history_processing_is_measured_where_it_happens(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    """A condition that answers False emits nothing; a rewrite has its figures, a failure its type and not its text."""

    def trim(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        if "fails" in str(ctx.messages[-1]):
            raise ValueError("the sesame word")
        return keep(0)(ctx)

    adapter = agent.adapter(trim, history_processor_condition=lambda state: state.estimated_tokens > 40)
    app = Laneway(agents={"agent": adapter}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "x")
        await received(collector)
        assert collector.named("process history") == []
        assert not [name for name, _, _ in collector.points if name.startswith("laneway.history")]
        await conversation.ask("agent", "a rather longer prompt than the one before: " + "much " * 30)
        with pytest.raises(TurnFailed):
            await conversation.ask("agent", "one that fails, and is long enough to be looked at: " + "much " * 30)
        await told_of(collector, 3)
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
    for span in traces_of(collector)[1]:
        if span.name == "process history":
            assert span.trace_id == rewrite.trace_id


@BOTH
async def test_a_processor_below_its_threshold_emits_nothing(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    """A stock processor looks before each request whether there is anything to do: for nothing there is no span."""
    window = SlidingWindowProcessor(("messages", 5), ("messages", 2))
    app = Laneway(agents={"agent": agent.adapter(window)}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await conversation.ask("agent", "two")
        await received(collector)
        assert collector.named("process history") == []
        assert not [name for name, _, _ in collector.points if name.startswith("laneway.history")]
        await conversation.ask("agent", "three")
    await received(collector)
    assert len(collector.named("process history")) == 1


@BOTH
async def test_the_request_for_a_summary_has_a_span_like_any_other(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    """Of another model than the agent's, by a processor and on demand; a failed one says so, and not what it was."""
    answers: list[str | Exception] = ["All of it.", ValueError("the sesame word"), "All of it again."]

    def summed_up() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    model: Any = (
        FunctionModel(lambda messages, info: ModelResponse([TextPart(summed_up())]), model_name="summarizer")
        if isinstance(agent, Recorder)
        else ScriptedModel(answer=lambda messages: said(summed_up()), model_name="summarizer")
    )
    summary = SummarizationProcessor(model, trigger=("messages", 5), keep=("messages", 1), on_failure="keep")
    app = Laneway(agents={"agent": agent.adapter(summary)}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "three", "four", "five"):
            await conversation.ask("agent", prompt)
        assert (await conversation.compact("agent")).compacted
        await told_of(collector, 6)
    await received(collector)
    traces = traces_of(collector)
    asked = [[span for span in spans if span.name == "chat summarizer"] for spans in traces]
    assert [[span.failed for span in spans] for spans in asked] == [[], [], [False], [], [True], [False]]
    (first,) = asked[2]
    assert first.attributes["gen_ai.request.model"] == "summarizer"
    assert first.attributes["gen_ai.usage.output_tokens"] > 0
    assert "All of it" not in first.text
    assert "sesame" not in asked[4][0].text


@BOTH
async def test_turns_are_counted_by_how_they_end(
    bench: Bench, conversation_id: str, collector: Collector, agent: AnyRecorder
):
    reached = asyncio.Event()

    async def wait_or_deny(event: Any) -> Deny | None:
        if event.prompt == "wait":
            reached.set()
            await asyncio.Event().wait()
        return Deny("no") if event.prompt == "denied" else None

    agent.fails.add("bad")
    adapter = agent.adapter(hooks=Hooks(user_prompt_submit=wait_or_deny))
    app = Laneway(agents={"agent": adapter}, telemetry=collector.telemetry)
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "good")
        with pytest.raises(TurnFailed, match="cannot answer"):
            await conversation.ask("agent", "bad")
        with pytest.raises(TurnDenied):
            await conversation.ask("agent", "denied")
        turn = await conversation.submit("agent", "wait")
        await reached.wait()
        assert await turn.cancel() == "cancelled"
        with pytest.raises(TurnCancelled):
            await turn.result()
        await told_of(collector, 4)
    ended = {
        (told["laneway.turn.outcome"], told.get("error.type")): value
        for told, value in collector.metric("laneway.turns")
    }
    assert ended == {
        ("committed", None): 1,
        ("failed", "ValueError"): 1,
        ("failed", "TurnDenied"): 1,
        ("cancelled", None): 1,
    }
    assert [len([span for span in spans if span.name == "turn agent"]) for spans in traces_of(collector)] == [1] * 4
    (failed,) = [span for span in collector.named("chat recorder") if span.failed]
    assert "cannot answer" not in failed.text


LONG = "tell me more of it " * 14_000
"""More than 50,000 tokens, which is the least that Anthropic compacts from."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_compaction_by_the_provider_has_a_span_and_figures(
    bench: Bench, conversation_id: str, collector: Collector, framework: Framework
):
    """None where there was none; in the turn's trace, beneath its step."""
    async with wire(in_order("Hello.", "Long.", "Bye.")) as provider:
        app = Laneway(
            agents={"agent": provider.adapter("responses", framework=framework)}, telemetry=collector.telemetry
        )
        async with (
            app.worker(bench.settings),
            app.client(bench.settings) as client,
            client.history(conversation_id, compaction_mode="native", compaction_threshold=50_000),
        ):
            await client.ask("agent", "hello")
            await received(collector)
            assert collector.named("compact history") == []
            assert not [name for name, _, _ in collector.points if name.startswith("laneway.history")]
            await client.ask("agent", LONG)
            await client.ask("agent", "bye")
    await received(collector)
    (span,) = collector.named("compact history")
    second = traces_of(collector)[1]
    assert span.span_id in {one.span_id for one in second}
    assert beneath(second, "compact history") == {"step agent"}
    assert span.attributes["laneway.history.tokens.before"] > 50_000 > span.attributes["laneway.history.tokens.after"]
    by_name = {name: value for name, _, value in collector.points}
    assert by_name["laneway.history.rewrites"] == 1
    assert by_name["laneway.history.reduction"] > 0.5
    assert by_name["laneway.history.compaction.duration"] > 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("content", [False, True], ids=["by default", "with content"])
async def test_no_text_is_in_a_span_unless_it_is_asked_for(
    bench: Bench, conversation_id: str, collector: Collector, framework: Framework, content: bool
):
    """Nor is what a provider says of a refusal, which may repeat what it was sent."""
    given = collector.telemetry
    telemetry = Telemetry(given.tracer_provider, given.meter_provider, include_content=content)
    script = in_order(answer("Let me add. ", call("add", {"a": 71_234_567, "b": 11_111_111})), "a secret sum")
    async with wire(script) as provider:
        adapter = provider.adapter("messages", framework=framework)
        app = Laneway(agents={"agent": adapter}, telemetry=telemetry)
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id)
            await conversation.ask("agent", "sesame")
            provider.server.fail(status(400, message="I do not like sesame"))
            with pytest.raises(TurnFailed, match="do not like"):
                await conversation.ask("agent", "more sesame")
        await received(collector)
    requests = [span for span in collector.spans if span.name.startswith("chat ")]
    assert [span.failed for span in requests] == [False, False, True]
    assert requests[0].attributes["gen_ai.provider.name"] == "anthropic"
    assert requests[0].attributes["gen_ai.response.finish_reasons"]
    everything = "".join(span.text for span in collector.spans)
    for word in ("sesame", "71234567", "a secret sum", "82345678"):
        assert (word in everything) is content, word
    assert "do not like" not in everything or content


@BOTH
async def test_without_telemetry_there_is_none(
    bench: Bench, conversation_id: str, monkeypatch: pytest.MonkeyPatch, agent: AnyRecorder
):
    """Not even for a global provider, and Temporal's own part is not imported."""
    import laneway.activities.telemetry as module

    def refuse(*args: Any) -> Any:
        raise AssertionError("nothing was asked for")

    monkeypatch.setattr(module.Instruments, "__init__", refuse)
    for name in [name for name in sys.modules if name.startswith("laneway.workflows.tracing")]:
        monkeypatch.delitem(sys.modules, name)
    client = await bench.serve({"agent": agent.adapter()})
    await client.conversation(conversation_id).ask("agent", "look")
    assert "laneway.workflows.tracing" not in sys.modules
