"""Pydantic AI's own `TemporalDurability`: the conversation is the workflow's state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client, WorkflowHandle
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from bench.arms.base import Place, plain_worker
from bench.arms.talks import Talk, TalkContinued
from bench.script import PROMPT

__all__ = ["continued", "in_workflow"]


class Durability:
    def __init__(self, temporal: Client, queue: str, workflow: type[Talk] | type[TalkContinued]) -> None:
        self._temporal, self._queue, self._workflow = temporal, queue, workflow
        self._handles: dict[str, asyncio.Task[WorkflowHandle[Any, Any]]] = {}

    async def turn(self, lane: str) -> None:
        handle = await self._handle(lane)
        await handle.execute_update("ask", PROMPT, id=uuid4().hex)

    async def _handle(self, lane: str) -> WorkflowHandle[Any, Any]:
        if lane not in self._handles:
            start = self._temporal.start_workflow(
                self._workflow.__name__, id=f"{self._queue}-{lane}", task_queue=self._queue, args=[[]]
            )
            self._handles[lane] = asyncio.ensure_future(start)
        return await self._handles[lane]


@asynccontextmanager
async def _running(place: Place, workflow: type[Talk] | type[TalkContinued]) -> AsyncIterator[Durability]:
    temporal = await Client.connect(place.settings.temporal_address, plugins=[PydanticAIPlugin()])
    queue = place.settings.task_queue
    async with plain_worker(temporal, queue, workflows=[workflow], workflow_runner=SandboxedWorkflowRunner()):
        yield Durability(temporal, queue, workflow)


@asynccontextmanager
async def in_workflow(place: Place) -> AsyncIterator[Durability]:
    """The history is in one workflow, for as long as Temporal lets it be."""
    async with _running(place, Talk) as arm:
        yield arm


@asynccontextmanager
async def continued(place: Place) -> AsyncIterator[Durability]:
    """The workflow continues as new with the history when Temporal suggests it."""
    async with _running(place, TalkContinued) as arm:
        yield arm
