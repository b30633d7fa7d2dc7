"""The workflow as it is now goes the way that every recorded history went: running lanes survive a deploy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from laneway.worker import workflow_runner
from laneway.workflows.lane import LaneWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))
# Workers do without the sandbox; here it stops whatever is not deterministic.
SANDBOX = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("laneway"))


@pytest.mark.parametrize("runner", [workflow_runner(), SANDBOX], ids=["as workers do", "in the sandbox"])
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path, runner: WorkflowRunner):
    history = WorkflowHistory.from_json("lane", path.read_text())
    await Replayer(workflows=[LaneWorkflow], workflow_runner=runner).replay_workflow(history)


def test_each_shape_has_all_scenes():
    scenes: dict[str, set[str]] = {}
    for path in HISTORIES:
        shape, scene, _ = path.stem.rsplit("-", 2)
        scenes.setdefault(shape, set()).add(scene)
    assert scenes.pop("0.1") == {"turns", "endings", "endless"}
    assert all(found == {"turns", "endings", "endless", "waiting", "team", "steering"} for found in scenes.values())


@pytest.mark.parametrize("suggested", [True, False])
async def test_a_workflow_that_waits_continues_as_new_when_temporal_suggests_it(suggested: bool):
    """A recorded history, up to a task in which nothing happened to a turn that waits: with the suggestion put into it
    the workflow has to continue as new there, and without it may not."""
    history = json.loads(next(path for path in HISTORIES if "-waiting-" in path.stem).read_text())
    events = history["events"]
    signalled = next(i for i, e in enumerate(events) if "workflowExecutionSignaledEventAttributes" in e)
    completed = next(i for i in range(signalled, len(events)) if "workflowTaskCompletedEventAttributes" in events[i])
    started = next(e for e in reversed(events[:completed]) if "workflowTaskStartedEventAttributes" in e)
    started["workflowTaskStartedEventAttributes"]["suggestContinueAsNew"] = suggested
    begun, task = events[0]["workflowExecutionStartedEventAttributes"], events[completed]["eventId"]
    idle = next(e for e in events if "timerStartedEventAttributes" in e)
    stopped = {
        "eventId": str(int(task) + 1),
        "eventTime": events[completed]["eventTime"],
        "eventType": "EVENT_TYPE_TIMER_CANCELED",
        "timerCanceledEventAttributes": {
            "timerId": idle["timerStartedEventAttributes"]["timerId"],
            "startedEventId": idle["eventId"],
            "workflowTaskCompletedEventId": task,
        },
    }
    continued = {
        "eventId": str(int(task) + 2),
        "eventTime": events[completed]["eventTime"],
        "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
        "workflowExecutionContinuedAsNewEventAttributes": {
            "newExecutionRunId": "00000000-0000-0000-0000-000000000000",
            "workflowType": begun["workflowType"],
            "taskQueue": begun["taskQueue"],
            "workflowTaskCompletedEventId": task,
        },
    }
    history["events"] = [*events[: completed + 1], stopped, continued]
    replayer = Replayer(workflows=[LaneWorkflow], workflow_runner=workflow_runner())
    replay = replayer.replay_workflow(WorkflowHistory.from_json("lane", json.dumps(history)))
    if suggested:
        await replay
    else:
        with pytest.raises(Exception, match="[Nn]ondeterminism"):
            await replay


async def test_a_history_that_went_another_way_is_found_out():
    """The test can fail: with an activity that the workflow would not ask for, the replay does."""
    path = next(path for path in HISTORIES if "-turns-" in path.stem)
    history = json.loads(path.read_text())
    scheduled = next(e for e in history["events"] if "activityTaskScheduledEventAttributes" in e)
    scheduled["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "another"
    replayer = Replayer(workflows=[LaneWorkflow], workflow_runner=workflow_runner())
    with pytest.raises(Exception, match="[Nn]ondeterminism"):
        await replayer.replay_workflow(WorkflowHistory.from_json("lane", history))
