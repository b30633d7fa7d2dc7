"""The least that a durable turn can cost on Temporal, with the servers and worker settings that Laneway has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowHandle

from laneway.connect import connect_temporal

from bench.arms.base import Place, plain_worker
from bench.arms.echo import EchoWorkflow, echo
from bench.script import replies

__all__ = ["floor"]


class Floor:
    def __init__(self, temporal: Client, queue: str) -> None:
        self._temporal, self._queue = temporal, queue
        self._handles: dict[str, asyncio.Task[WorkflowHandle[Any, Any]]] = {}
        self._texts = replies()

    async def turn(self, lane: str) -> None:
        await (await self._handle(lane)).execute_update(EchoWorkflow.ask, next(self._texts))

    async def tool_turn(self, lane: str) -> None:
        """Three activities, one after the other: a request, a batch of tools, a request."""
        await (await self._handle(lane)).execute_update(EchoWorkflow.ask_thrice, next(self._texts))

    async def _handle(self, lane: str) -> WorkflowHandle[Any, Any]:
        if lane not in self._handles:
            start = self._temporal.start_workflow(EchoWorkflow.run, id=f"{self._queue}-{lane}", task_queue=self._queue)
            self._handles[lane] = asyncio.ensure_future(start)
        return await self._handles[lane]


@asynccontextmanager
async def floor(place: Place) -> AsyncIterator[Floor]:
    """Workflows that echo."""
    temporal = await connect_temporal(place.settings)
    queue = place.settings.task_queue
    async with plain_worker(temporal, queue, workflows=[EchoWorkflow], activities=[echo]):
        yield Floor(temporal, queue)
