"""A worker: the one place where store, adapters, activities and the lane workflow are put together."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner

from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.connect import connect_redis, connect_temporal, interceptors_of
from laneway.history.cache import HistoryCache
from laneway.history.garbage import set_aside
from laneway.history.patience import Patience
from laneway.history.store import HistoryStore
from laneway.settings import Settings
from laneway.workflows.lane import LaneWorkflow

__all__ = ["open_store", "run_worker", "workflow_runner"]

_MAX_STEPS = 200
# Python computes in one thread at a time, and a lane's task is a millisecond; Temporal's default is up to 500 threads,
# which are never given back.
_WORKFLOW_THREADS = 8
_SHUTDOWN_GRACE = timedelta(seconds=5)
# A killed worker's lanes go to another one after this long; Temporal's default of 10 s would be felt.
_STICKY_TIMEOUT = timedelta(seconds=1)


def workflow_runner() -> WorkflowRunner:
    """Runs the lane workflow without Temporal's sandbox.

    The sandbox finds code that is not deterministic, and costs a millisecond of each turn and several of each lane's
    start. Nobody's code but this package's runs in the workflow, and the tests replay it in the sandbox.
    """
    return UnsandboxedWorkflowRunner()


@asynccontextmanager
async def open_store(settings: Settings, *, patience: Patience | None = None) -> AsyncGenerator[HistoryStore]:
    """Connect to Redis."""
    redis = await connect_redis(settings)
    try:
        yield HistoryStore(
            redis,
            prefix=settings.redis_prefix,
            stage_ttl=settings.stage_ttl,
            events_max_length=settings.events_max_length,
            events_turns=settings.events_turns,
            durability=settings.redis_durability,
            patience=patience,
        )
    finally:
        await redis.aclose()


@asynccontextmanager
async def run_worker(agents: Agents, settings: Settings) -> AsyncGenerator[None]:
    """Run the lane workflow and its activities while the context is open."""
    async with open_store(settings, patience=Patience()) as store:
        temporal = await connect_temporal(settings, interceptors=interceptors_of(agents.instruments))
        interval = min(settings.heartbeat_interval, settings.heartbeat_timeout / 2)
        steps = Steps(store, agents, cache=HistoryCache(settings.history_cache_bytes), heartbeat_interval=interval)
        threads = ThreadPoolExecutor(_WORKFLOW_THREADS, thread_name_prefix="laneway-workflow")
        worker = Worker(
            temporal,
            task_queue=settings.task_queue,
            workflows=[LaneWorkflow],
            activities=[steps.step, steps.abort],
            workflow_runner=workflow_runner(),
            workflow_task_executor=threads,
            max_concurrent_activities=_MAX_STEPS,
            max_heartbeat_throttle_interval=interval,
            default_heartbeat_throttle_interval=interval,
            sticky_queue_schedule_to_start_timeout=_STICKY_TIMEOUT,
            graceful_shutdown_timeout=_SHUTDOWN_GRACE,
        )
        set_aside()
        try:
            async with worker:
                yield
        finally:
            threads.shutdown(wait=False)
            await agents.close()
