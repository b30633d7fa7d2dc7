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
    scenes = {path.stem.rsplit("-", 2)[1] for path in HISTORIES}
    assert scenes == {"turns", "endings", "endless"}


async def test_a_history_that_went_another_way_is_found_out():
    """The test can fail: with an activity that the workflow would not ask for, the replay does."""
    path = next(path for path in HISTORIES if "-turns-" in path.stem)
    history = json.loads(path.read_text())
    scheduled = next(e for e in history["events"] if "activityTaskScheduledEventAttributes" in e)
    scheduled["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "another"
    replayer = Replayer(workflows=[LaneWorkflow], workflow_runner=workflow_runner())
    with pytest.raises(Exception, match="[Nn]ondeterminism"):
        await replayer.replay_workflow(WorkflowHistory.from_json("lane", history))
