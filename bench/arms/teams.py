"""Work that is handed on: by Laneway's agents, and by a bare workflow to bare child workflows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from temporalio.client import Client, WorkflowHandle

from laneway import Delegation, Laneway, LanewayClient, PydanticAdapter
from laneway.connect import connect_temporal
from laneway.history.records import TurnRecord

from bench.arms.base import Place, plain_worker
from bench.arms.echo import echo
from bench.arms.handing import ChildWorkflow, ParentWorkflow
from bench.script import PROMPT, answer, answer_with_calls, replies

__all__ = ["AT_A_TIME", "bare_children", "most_at_once", "team"]

AT_A_TIME = 4
"""How many children a parent runs at a time."""


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """How many of these overlap at most; one that ends where another begins does not."""
    marks = sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans])
    running = most = 0
    for _, change in marks:
        running += change
        most = max(most, running)
    return most


class Team:
    """Laneway's arm: `lead` hands as many pieces of work to `reader` as its prompt says, all in one response."""

    def __init__(self, client: LanewayClient) -> None:
        self._client = client

    async def turn(self, lane: str) -> None:
        await self._client.conversation(lane).ask("reader", PROMPT)

    async def delegating_turn(self, lane: str) -> None:
        """A request, one delegation, a request."""
        await self._client.conversation(lane).ask("lead", "1")

    async def delegation_events(self, lane: str) -> dict[str, int]:
        """The events of a turn that delegates once: those of its child, and all."""
        turn = await self._client.conversation(lane).submit("lead", "1")
        (child,) = (await turn.record()).children
        await self._client.conversation(lane).ask("lead", "0")  # what comes after the turn
        below = await self._events(self._client.workflow_id(child.lane))
        return {"child": below, "turn": below + await self._between(self._client.workflow_id(turn.lane))}

    async def _events(self, workflow_id: str) -> int:
        return len((await self._client.temporal.get_workflow_handle(workflow_id).fetch_history()).events)

    async def _between(self, workflow_id: str) -> int:
        """The events from the first accepted update up to the second."""
        history = await self._client.temporal.get_workflow_handle(workflow_id).fetch_history()
        accepted = [
            at
            for at, event in enumerate(history.events)
            if event.HasField("workflow_execution_update_accepted_event_attributes")
        ]
        return accepted[1] - accepted[0]

    async def fan_out(self, parents: int, children: int) -> dict[str, Any]:
        """So many turns at once that hand out so many pieces of work each: how long all took, how many of a turn's
        children ran at once at most by their records, and how many of all."""
        begun = time.perf_counter()
        turns = [
            await self._client.conversation(uuid4().hex[:12]).submit("lead", f"{children}") for _ in range(parents)
        ]
        records = await asyncio.gather(*(turn.record() for turn in turns))
        took = time.perf_counter() - begun
        spans = [await self._spans(record) for record in records]
        return {
            "seconds": took,
            "children": sum(map(len, spans)),
            "most": max(map(most_at_once, spans)),
            "all": most_at_once([span for some in spans for span in some]),
        }

    async def _spans(self, record: TurnRecord) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for child in record.children:
            own = await self._client.store.record(child.lane, child.turn_id)
            if own is not None and own.outcome == "committed" and own.started_at is not None:
                found.append((own.started_at, own.ended_at))
        return found


class BareChildren:
    """The floor."""

    def __init__(self, temporal: Client, queue: str) -> None:
        self._temporal, self._queue = temporal, queue
        self._handles: dict[str, asyncio.Task[WorkflowHandle[Any, Any]]] = {}
        self._texts = replies()

    async def turn(self, lane: str) -> None:
        await self._ask(lane, 0)

    async def delegating_turn(self, lane: str) -> None:
        await self._ask(lane, 1)

    async def delegation_events(self, lane: str) -> dict[str, int]:
        await self._ask(lane, 1)
        handle = await self._handle(lane)
        events = (await handle.fetch_history()).events
        child = next(
            event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
            for event in events
            if event.HasField("child_workflow_execution_started_event_attributes")
        )
        below = len((await self._temporal.get_workflow_handle(child).fetch_history()).events)
        first = next(
            at for at, e in enumerate(events) if e.HasField("workflow_execution_update_accepted_event_attributes")
        )
        return {"child": below, "turn": below + len(events) - first}

    async def fan_out(self, parents: int, children: int) -> dict[str, Any]:
        begun = time.perf_counter()
        await asyncio.gather(*(self._ask(uuid4().hex[:12], children) for _ in range(parents)))
        return {"seconds": time.perf_counter() - begun, "children": parents * children}

    async def _ask(self, lane: str, children: int) -> None:
        handle = await self._handle(lane)
        await handle.execute_update(ParentWorkflow.ask, args=[next(self._texts), children, AT_A_TIME])

    async def _handle(self, lane: str) -> WorkflowHandle[Any, Any]:
        if lane not in self._handles:
            start = self._temporal.start_workflow(
                ParentWorkflow.run, id=f"{self._queue}-{lane}", task_queue=self._queue
            )
            self._handles[lane] = asyncio.ensure_future(start)
        return await self._handles[lane]


@asynccontextmanager
async def team(place: Place) -> AsyncIterator[Team]:
    """A lead and a reader of Pydantic AI."""
    delegates = {"reader": Delegation("reader", "reads", max_concurrency=AT_A_TIME)}
    lead = Agent(FunctionModel(answer_with_calls("delegate_to_reader", "brief"), model_name="bench"))
    reader = PydanticAdapter(Agent(FunctionModel(answer(), model_name="bench")))
    app = Laneway(agents={"lead": PydanticAdapter(lead, delegates=delegates), "reader": reader})
    async with app.worker(place.settings), app.client(place.settings) as client:
        yield Team(client)


@asynccontextmanager
async def bare_children(place: Place) -> AsyncIterator[BareChildren]:
    """Workflows that run child workflows."""
    temporal = await connect_temporal(place.settings)
    queue = place.settings.task_queue
    async with plain_worker(temporal, queue, workflows=[ParentWorkflow, ChildWorkflow], activities=[echo]):
        yield BareChildren(temporal, queue)
