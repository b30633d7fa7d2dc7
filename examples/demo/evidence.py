"""What the demo claims, worked out from evidence: the ledger, Temporal's own history, and the raw lists in Redis.

Nothing here asks Laneway how it went. The chain of digests is recomputed from the documented format of an entry
(`laneway.history.checkpoints`), with none of the product's code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

from redis.asyncio import Redis
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from examples.demo.ledger import Line, LineKind

__all__ = ["Chain", "Tally", "TurnCost", "costs_by_turn", "costs_of", "read_chain", "tally", "texts_in", "verify_chain"]

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Tally:
    """What the ledger says of the calls.

    Attributes:
        model_calls: model requests that began.
        model_repeated: those of them that had begun before.
        model_repeated_after_staged: those that began although the answer was staged.
        model_unfinished: requests whose process died before the answer was whole: what a repetition is for.
        tools_finished: tool calls that finished.
        tools_repeated: tool calls that began again.
        tools_finished_repeated: tool calls that began again although they had finished.
    """

    model_calls: int = 0
    model_repeated: int = 0
    model_repeated_after_staged: int = 0
    model_unfinished: int = 0
    tools_finished: int = 0
    tools_repeated: int = 0
    tools_finished_repeated: int = 0


def tally(lines: Iterable[Line]) -> Tally:
    """Count the ledger's lines."""
    seen: Counter[tuple[str, str, LineKind]] = Counter()
    counts: Counter[str] = Counter()
    for line in lines:
        match line.kind:
            case LineKind.MODEL_STARTED:
                counts["model_calls"] += 1
                counts["model_repeated"] += seen[line.turn, line.call, line.kind] > 0
                counts["model_repeated_after_staged"] += seen[line.turn, line.call, LineKind.MODEL_STAGED] > 0
            case LineKind.MODEL_FINISHED:
                counts["model_finished"] += 1
            case LineKind.TOOL_STARTED:
                counts["tools_repeated"] += seen[line.turn, line.call, line.kind] > 0
                counts["tools_finished_repeated"] += seen[line.turn, line.call, LineKind.TOOL_FINISHED] > 0
            case LineKind.TOOL_FINISHED:
                counts["tools_finished"] += 1
            case LineKind.MODEL_STAGED | LineKind.TOOL_KEPT:
                pass
        seen[line.turn, line.call, line.kind] += 1
    counts["model_unfinished"] = counts["model_calls"] - counts.pop("model_finished", 0)
    return Tally(**counts)


@dataclass(frozen=True)
class Chain:
    """What a lane's keys in Redis hold, raw.

    Attributes:
        entries: the entries of the head's epoch.
        length: how many of them the head names.
        digest: the digest that the head names, in hexadecimal.
        epoch: the head's epoch.
        checkpoints: the checkpoint of each committed turn, as its record names it, by turn id.
    """

    entries: Sequence[bytes]
    length: int
    digest: str
    epoch: int
    checkpoints: Mapping[str, str]


async def read_chain(redis: Redis, base: str) -> Chain:
    """Read a lane's keys, whose names all begin with `base`."""
    head = cast("dict[bytes, bytes]", await redis.hgetall(f"{base}head"))
    records = cast("dict[bytes, bytes]", await redis.hgetall(f"{base}turns"))
    epoch = int(head[b"e"])
    entries = cast("list[bytes]", await redis.lrange(f"{base}epoch:{epoch}", 0, -1))
    bodies = {turn.decode(): json.loads(record.partition(b"|")[2]) for turn, record in records.items()}
    checkpoints = {turn: body["c"] for turn, body in bodies.items() if body["o"] == "c"}
    return Chain(entries, int(head[b"n"]), head[b"d"].decode(), epoch, checkpoints)


def verify_chain(chain: Chain) -> tuple[int, list[str]]:
    """Recompute every digest.

    Returns:
        how many digests are right (each entry's, each turn's checkpoint's and the head's), and what is wrong.
    """
    wrong: list[str] = []
    digest = b""
    digests = {0: ""}
    verified = 0
    for index, entry in enumerate(chain.entries):
        digest = blake2b(entry[_DIGEST_BYTES:], digest_size=_DIGEST_BYTES, key=digest).digest()
        digests[index + 1] = digest.hex()
        if entry[:_DIGEST_BYTES] != digest:
            return verified, [f"entry {index} of {len(chain.entries)} is not what its digest says"]
        verified += 1
    if (len(chain.entries), digest.hex()) == (chain.length, chain.digest):
        verified += 1
    else:
        wrong.append(f"the head names {chain.length} entries ending in {chain.digest}")
    for turn, checkpoint in sorted(chain.checkpoints.items()):
        epoch, length, named = checkpoint.split(":")
        if int(epoch) == chain.epoch and digests.get(int(length)) == named:
            verified += 1
        else:
            wrong.append(f"the checkpoint of turn {turn} is not on the chain")
    return verified, wrong


@dataclass(frozen=True)
class TurnCost:
    """What a turn wrote into Temporal's history.

    Attributes:
        late: whether Temporal heard late of the worker in it, as of a busy machine's: it gave up waiting and asked
            again, or the turn was accepted before the activity of the one before it was reported. Either takes
            further workflow tasks.
    """

    turn: str
    events: int
    size_bytes: int
    late: bool = False


async def costs_of(temporal: Client, workflow_id: str) -> tuple[list[TurnCost], bytes]:
    """What each turn of a lane cost, and everything that its workflow's history holds."""
    history = await temporal.get_workflow_handle(workflow_id).fetch_history()
    return costs_by_turn(history.events), b"".join(event.SerializeToString() for event in history.events)


def costs_by_turn(events: Sequence[HistoryEvent]) -> list[TurnCost]:
    """Share a history out among its turns: each one's begins with the workflow task that accepted it."""
    starts: list[tuple[int, str]] = []
    scheduled = 0
    for index, event in enumerate(events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
            scheduled = index
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            accepted = event.workflow_execution_update_accepted_event_attributes
            starts.append((scheduled if starts else 0, accepted.accepted_request.meta.update_id))
    ends = [start for start, _ in starts[1:]] + [len(events)]
    return [
        TurnCost(
            turn,
            end - start,
            sum(event.ByteSize() for event in events[start:end]),
            any(_late(event, events[start].event_id) for event in events[start:end]),
        )
        for (start, turn), end in zip(starts, ends, strict=True)
    ]


def _late(event: HistoryEvent, start: int) -> bool:
    completed = event.activity_task_completed_event_attributes
    return event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT or (
        event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED and completed.scheduled_event_id < start
    )


def texts_in(history: bytes, texts: Iterable[str]) -> list[str]:
    """Those of the texts that the history holds, as far as their longest plain stretch tells."""
    found: list[str] = []
    for text in texts:
        plain = max(re.findall(r"[A-Za-z0-9 .,?_-]+", text), key=len, default="")
        if len(plain) >= 12 and plain.encode() in history:
            found.append(text)
    return found
