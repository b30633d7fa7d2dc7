"""`diagnose`: whether Temporal and Redis, as the settings name them, can carry conversations without losing any.

Every check is one that Laneway's promises rest on, and is made by doing what Laneway does: an update-with-start that a
worker answers, and a script that writes. Nothing is left behind in Redis; Temporal keeps one closed workflow until its
namespace's retention ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from uuid import uuid4

from temporalio import workflow
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import FailureError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from laneway.connect import connect_temporal
from laneway.diagnosis import Check, Report, Status
from laneway.errors import LanewayError
from laneway.redis_checks import check_redis_server
from laneway.settings import ENV_PREFIX, Settings

__all__ = ["Check", "Report", "Status", "diagnose"]

_ROUND_TRIP_TIMEOUT = timedelta(seconds=15)
_FOREIGN_VARIABLES = (f"{ENV_PREFIX}DEBUG", f"{ENV_PREFIX}DEMO_")


async def diagnose(settings: Settings) -> Report:
    """Look at the environment, Temporal and Redis. Takes a second, or some seconds where a server does not answer."""
    temporal, redis = await asyncio.gather(_diagnose_temporal(settings), check_redis_server(settings))
    return Report((*_check_environment(os.environ), *temporal, *redis))


def _check_environment(environ: Mapping[str, str]) -> Iterator[Check]:
    known = [f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields]
    given = [name for name in environ if name.startswith(ENV_PREFIX) and not name.startswith(_FOREIGN_VARIABLES)]
    for name in sorted(set(given) - set(known)):
        close = get_close_matches(name, known, n=1)
        advice = f"write {close[0]}" if close else "remove it"
        yield Check("environment", "warn", f"{name} is no setting of Laneway and has no effect", advice)


@workflow.defn(name="laneway-doctor", sandboxed=False)
class _Echo:
    """Ends once it was asked; what a lane needs of a server, in the smallest form."""

    def __init__(self) -> None:
        self._asked = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._asked)

    @workflow.update
    def ask(self, word: str) -> str:
        self._asked = True
        return word


async def _diagnose_temporal(settings: Settings) -> list[Check]:
    try:
        client = await connect_temporal(settings)
        system = await client.workflow_service.get_system_info(GetSystemInfoRequest())
        namespace = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
    except (LanewayError, RPCError) as error:
        return [Check.from_error("temporal", error)]
    retention = timedelta(seconds=namespace.config.workflow_execution_retention_ttl.seconds)
    reached = f"server {system.server_version} at {settings.temporal_address}, namespace {client.namespace!r}"
    return [
        Check("temporal", "ok", f"{reached}, retention {retention}"),
        await _check_round_trip(client),
        await _check_workers(client, settings),
    ]


async def _check_round_trip(client: Client) -> Check:
    name = "temporal.round_trip"
    run = f"laneway-doctor-{uuid4()}"
    operation = WithStartWorkflowOperation(
        _Echo.run,
        id=run,
        task_queue=run,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        execution_timeout=_ROUND_TRIP_TIMEOUT,
    )
    worker = Worker(client, task_queue=run, workflows=[_Echo], workflow_runner=UnsandboxedWorkflowRunner())
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_ROUND_TRIP_TIMEOUT.total_seconds()), worker:
            started = time.perf_counter()
            await client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]
                _Echo.ask, run, start_workflow_operation=operation
            )
            await (await operation.workflow_handle()).result()
            elapsed = time.perf_counter() - started
    except TimeoutError:
        waited = f"a workflow with an update did not end within {_ROUND_TRIP_TIMEOUT.total_seconds():g} s"
        return Check(name, "fail", waited, "look at the server's load and logs")
    except RPCError as error:
        old = error.status is RPCStatusCode.UNIMPLEMENTED
        advice = "Laneway needs update-with-start: use Temporal server 1.28 or later" if old else "see the message"
        return Check(name, "fail", f"a workflow with an update was refused: {error.message}", advice)
    except (FailureError, RuntimeError) as error:
        return Check(name, "fail", f"a workflow with an update failed: {error}", "look at the server's logs")
    return Check(name, "ok", f"a workflow started, updated and ended in {elapsed * 1000:.0f} ms")


async def _check_workers(client: Client, settings: Settings) -> Check:
    name = "temporal.workers"
    kinds = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    try:
        answers = [
            await client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=client.namespace, task_queue=TaskQueue(name=settings.task_queue), task_queue_type=kind
                )
            )
            for kind in kinds
        ]
    except RPCError as error:
        return Check(name, "warn", f"the task queue {settings.task_queue!r} cannot be described: {error.message}")
    workers = {poller.identity for answer in answers for poller in answer.pollers}
    if not all(answer.pollers for answer in answers):
        advice = f"start one with `laneway worker APP`, or set {ENV_PREFIX}TASK_QUEUE to the queue of yours"
        return Check(name, "warn", f"no worker has polled {settings.task_queue!r} in the last minutes", advice)
    return Check(name, "ok", f"{len(workers)} on {settings.task_queue!r}: {', '.join(sorted(workers))}")
