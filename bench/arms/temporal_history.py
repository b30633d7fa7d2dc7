"""What turns write to the history of a workflow, told from the history itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

__all__ = ["TurnWrites", "writes_of"]

_ACCEPTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED


class TurnWrites(NamedTuple):
    """What one turn wrote: events, and their bytes as the history is serialized."""

    events: int
    size_bytes: int


async def writes_of(temporal: Client, workflow_id: str) -> list[TurnWrites]:
    """What each turn wrote, oldest first, over all runs of a workflow that were continued as new.

    A turn's events are those from one accepted update up to the next: each turn gets the two of the workflow task that
    brings the next one. The last turn of each run is left out, since it has not got them, or has the run's end instead.
    """
    runs: list[list[TurnWrites]] = []
    run_id: str | None = None
    while True:
        history = await temporal.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        runs.append(_turns(history.events))
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
        if not run_id:
            return [turn for run in reversed(runs) for turn in run]


def _turns(events: Any) -> list[TurnWrites]:
    starts = [at for at, event in enumerate(events) if event.event_type == _ACCEPTED]
    turns = [events[start:end] for start, end in pairwise(starts)]
    return [TurnWrites(len(turn), sum(event.ByteSize() for event in turn)) for turn in turns]
