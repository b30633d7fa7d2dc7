"""Writes down what Redis and Temporal hold when a run is over, for the checker, which asks no server."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from laneway import Settings
from laneway.connect import connect_redis, connect_temporal

__all__ = ["collect", "dump_keys"]

_VISIBLE_WITHIN_S = 60.0


async def collect(folder: Path, settings: Settings, accepted: Iterable[str]) -> None:
    """Write `redis.json` and `temporal.json`.

    Args:
        folder: the run's.
        settings: where the servers are.
        accepted: ids of turns that clients were told are accepted: Temporal lists the runs of workflows with a delay,
            so they are listed again until these are found, for a while.
    """
    redis = await connect_redis(settings)
    try:
        keys = await dump_keys(redis, settings.redis_prefix)
    finally:
        await redis.aclose()
    (folder / "redis.json").write_text(json.dumps({"prefix": settings.redis_prefix, "keys": keys}))
    client = await connect_temporal(settings)
    wanted, deadline = {*accepted, *_delegated(keys)}, time.monotonic() + _VISIBLE_WITHIN_S
    known: dict[str, dict[str, Any]] = {}
    while True:
        runs = [await _run(client, run, known) async for run in client.list_workflows("WorkflowType = 'Lane'")]
        missing = wanted - {turn[0] for run in runs for turn in run["accepted"]}
        if not missing or time.monotonic() > deadline:
            break
        await asyncio.sleep(1.0)
    (folder / "temporal.json").write_text(json.dumps(sorted(runs, key=lambda run: run["started"])))


async def dump_keys(redis: Redis, prefix: str) -> dict[str, dict[str, Any]]:
    """Every key with its type, its time to live in milliseconds (negative for none) and its value, bytes in base64."""
    found: dict[str, dict[str, Any]] = {}
    client: Any = redis
    async for name in client.scan_iter(match=f"{prefix}:*", count=1000):
        kind = (await client.type(name)).decode()
        value: Any
        if kind == "hash":
            value = [[_text(k), _text(v)] for k, v in sorted((await client.hgetall(name)).items())]
        elif kind == "list":
            value = [_text(item) for item in await client.lrange(name, 0, -1)]
        elif kind == "stream":
            value = [
                [entry.decode(), [[_text(k), _text(v)] for k, v in fields.items()]]
                for entry, fields in await client.xrange(name)
            ]
        else:
            value = None
        found[name.decode()] = {"type": kind, "ttl": await client.pttl(name), "value": value}
    return dict(sorted(found.items()))


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def _delegated(keys: dict[str, dict[str, Any]]) -> set[str]:
    """The turns of children that took a step: their workflows are to be found too."""
    found: set[str] = set()
    for name, held in keys.items():
        for turn, blob in held["value"] if name.endswith("}:turns") else ():
            record = json.loads(b64decode(blob).partition(b"|")[2])
            if b64decode(turn).startswith(b"turn-") and record["t"][0] is not None:
                found.add(b64decode(turn).decode())
    return found


async def _run(client: Client, listed: WorkflowExecution, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A run's lane, and the turns that it accepted, in order: from its events as Temporal stores them.

    A child accepts the one turn that it is started with.
    """
    if (before := known.get(listed.run_id)) is not None and before["closed"]:
        return before
    handle = client.get_workflow_handle(listed.id, run_id=listed.run_id)
    lane: list[str] = []
    accepted: list[list[str]] = []
    closed, ended, parent = False, 0, ""
    try:
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                value = json.loads(started.input.payloads[0].data)
                lane = [value["c"], value["a"], value["k"]]
                parent = started.parent_workflow_execution.workflow_id
                if value.get("once"):
                    accepted.extend([turn["id"], turn["p"], "enqueue"] for turn in value["queue"])
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                request = event.workflow_execution_update_accepted_event_attributes.accepted_request
                turn = json.loads(request.input.args.payloads[0].data)
                accepted.append([turn["id"], turn["p"], turn.get("b", "enqueue")])
            else:
                closed = event.event_type in _CLOSING
                ended = event.event_time.ToMilliseconds() if closed else 0
    except RPCError as error:
        raise RuntimeError(f"the history of run {listed.run_id} of {listed.id} cannot be read: {error}") from error
    run = {
        "workflow": listed.id,
        "run": listed.run_id,
        "started": listed.start_time.timestamp(),
        "status": None if listed.status is None else listed.status.name,
        "lane": lane,
        "accepted": accepted,
        "closed": closed,
        "ended": ended,
        "parent": parent,
    }
    known[listed.run_id] = run
    return run


_CLOSING = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
)
