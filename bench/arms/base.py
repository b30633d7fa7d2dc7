"""What an arm is, and the list of them. An arm runs in a process of its own, and plays turns when it is told to."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from temporalio.client import Client
from temporalio.worker import Worker

from laneway import Settings
from laneway.worker import workflow_runner

__all__ = ["ARMS", "Arm", "ArmName", "MakeArm", "Place", "label", "load", "plain_worker"]


@dataclass(frozen=True)
class Place:
    """Where an arm works.

    Attributes:
        settings: the servers that all arms share, on a task queue and with a key prefix of the arm's own.
        folder: an empty folder of its own.
    """

    settings: Settings
    folder: Path


class Arm(Protocol):
    """Plays turns of conversations. What else it can tell (`stored`, `history`, …) are methods that some arms have."""

    async def turn(self, lane: str) -> None:
        """One prompt and its reply, in the conversation that `lane` names: new, or going on."""
        ...


MakeArm = Callable[[Place], AbstractAsyncContextManager[Arm]]


@dataclass(frozen=True)
class ArmName:
    """An arm, before it is imported.

    Attributes:
        label: what it is called in tables.
        home: `module:function`, which makes it.
        kind: what it is measured among.
    """

    label: str
    home: str
    kind: str


FLOOR, LANEWAY, LANEWAY_GRAPH = "floor", "laneway", "laneway-graph"
TEAM_FLOOR, TEAM = "team-floor", "team"

ARMS = {
    FLOOR: ArmName("floor: an update with one activity", "bench.arms.floor:floor", "floor"),
    LANEWAY: ArmName("Laneway, Pydantic AI", "bench.arms.lanes:pydantic_lanes", "pydantic"),
    "durability": ArmName(
        "TemporalDurability, history in the workflow", "bench.arms.durability:in_workflow", "pydantic"
    ),
    "durability-continued": ArmName(
        "TemporalDurability, continue-as-new", "bench.arms.durability:continued", "pydantic"
    ),
    "dbos": ArmName("Pydantic AI on DBOS, history by reference", "bench.arms.dbos:by_reference", "pydantic"),
    "plain": ArmName("Pydantic AI, history in Valkey", "bench.arms.plain:plain", "pydantic"),
    TEAM_FLOOR: ArmName("floor: an update with a child workflow", "bench.arms.teams:bare_children", "floor"),
    TEAM: ArmName("Laneway, a delegation", "bench.arms.teams:team", "team"),
    LANEWAY_GRAPH: ArmName("Laneway, LangGraph", "bench.arms.lanes:graph_lanes", "langgraph"),
    "saver-laneway": ArmName("LangGraph, Laneway's RedisSaver", "bench.arms.savers:laneway_saver", "langgraph"),
    "saver-memory": ArmName("LangGraph, InMemorySaver", "bench.arms.savers:memory_saver", "langgraph"),
    "saver-sqlite": ArmName("LangGraph, sqlite saver", "bench.arms.savers:sqlite_saver", "langgraph"),
    "saver-plainredis": ArmName("LangGraph, plain-redis saver", "bench.arms.savers:plainredis_saver", "langgraph"),
}


def label(name: str) -> str:
    """What an arm is called in tables."""
    return ARMS[name].label


def load(name: str) -> MakeArm:
    """Import what makes an arm."""
    module, _, function = ARMS[name].home.partition(":")
    make: MakeArm = getattr(importlib.import_module(module), function)
    return make


def plain_worker(temporal: Client, queue: str, **options: Any) -> Worker:
    """A worker tuned as Laneway's is, for the arms that have none of their own."""
    interval = timedelta(seconds=0.5)
    make: Any = Worker  # whose options are too many to name here again
    return make(
        temporal,
        task_queue=queue,
        **({"workflow_runner": workflow_runner()} | options),
        max_concurrent_activities=200,
        max_heartbeat_throttle_interval=interval,
        default_heartbeat_throttle_interval=interval,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
