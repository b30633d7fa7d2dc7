"""A conversation costs Temporal as much at its end as at its beginning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import LanewayClient, PydanticAdapter, TextWindow
from laneway.history.lanes import LaneKey

from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder
from tests.support.bench import Bench

TURNS = 2000
WINDOW = 500
"""Turns that are compared: over many runs of the lane's workflow, each of which pays for what it hands on."""
REPLY = "x" * 2048


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    # Usage is reported, or the framework counts the words of the whole history.
    return ModelResponse([TextPart(REPLY)], usage=RequestUsage(input_tokens=len(messages), output_tokens=1))


async def _sizes_by_turn(client: LanewayClient, lane: LaneKey) -> list[tuple[int, int]]:
    """Events and bytes of Temporal history a turn, over all runs of the lane's workflow.

    A turn's events are those from its acceptance up to the next one's; a run's own opening goes to its first turn.
    """
    runs = [run async for run in client.temporal.list_workflows(f"WorkflowId = '{client.workflow_id(lane)}'")]
    sizes: list[tuple[int, int]] = []
    for run in sorted(runs, key=lambda run: run.start_time):
        handle = client.temporal.get_workflow_handle(client.workflow_id(lane), run_id=run.run_id)
        history = await handle.fetch_history()
        events: Sequence = history.events
        starts = [i for i, e in enumerate(events) if e.HasField("workflow_execution_update_accepted_event_attributes")]
        for first, last in pairwise([*starts, len(events)]):  # none where a run has only just begun
            turn = events[first:last]
            sizes.append((len(turn), sum(event.ByteSize() for event in turn)))
    return sizes


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_2000_turns_cost_temporal_the_same_each(bench: Bench, conversation_id: str):
    """At most 12 events and 2.5 KB a turn at turn 10 and at turn 2,000, across continue-as-new.

    The lane keeps all of its history, and the agent is shown the last texts: what a framework does with 4,000 messages
    is no cost of Temporal's, and took most of the time of this test.
    """
    agent = Agent(FunctionModel(_model, model_name="flat"))
    client = await bench.serve({"agent": PydanticAdapter(agent, history=TextWindow(2))})
    conversation = client.conversation(conversation_id)
    for number in range(TURNS):
        result = await conversation.ask("agent", f"question {number}")
        assert result.steps == 1
    status = await conversation.status("agent")
    assert (status.version, status.head.length) == (TURNS, 2 * TURNS)
    sizes = await _sizes_by_turn(client, conversation.lane("agent"))
    assert len(sizes) == TURNS
    first, last = sizes[:WINDOW], sizes[-WINDOW:]
    for window in (sizes[:10], first, last):
        assert sum(events for events, _ in window) / len(window) <= 12
        assert sum(size for _, size in window) / len(window) <= 2500
    # A turn whose acceptance falls into the workflow task that ended the one before has fewer events, and how many do
    # is chance: turns with as many events are compared.
    counts = [Counter(events for events, _ in window) for window in (first, last)]
    common = [events for events, count in (counts[0] & counts[1]).items() if count >= 10]
    assert common
    for kind in common:
        grown = [median(size for events, size in window if events == kind) for window in (first, last)]
        assert abs(grown[1] - grown[0]) <= 50, f"of turns with {kind} events"
    # What is carried into the next run is with a turn too, and is bounded.
    assert max(size for _, size in last) <= 4500


@pytest.mark.parametrize("kind", [Recorder, LangChainRecorder], ids=["pydantic", "langchain"])
async def test_nothing_that_was_said_is_in_temporals_history(
    bench: Bench, conversation_id: str, kind: type[AnyRecorder]
):
    """Neither as workflow state nor as an activity's input or result: turns are there by their ids alone."""
    agent = kind()
    client = await bench.serve({"agent": agent.adapter()})
    conversation = client.conversation(conversation_id)
    for number in range(3):
        turn = await conversation.submit("agent", f"plugh look {number}", turn_id=f"xyzzy-{number}")
        assert (await turn.result()).output == f"re: plugh look {number}"
    assert "plugh" in str(agent.sent)
    assert "seen" in str(agent.sent)
    handle = client.temporal.get_workflow_handle(client.workflow_id(turn.lane))
    events = b"".join([event.SerializeToString() async for event in handle.fetch_history_events()])
    assert all(f"xyzzy-{number}".encode() in events for number in range(3))
    assert b"plugh" not in events
    assert b"seen" not in events
