"""`laneway show --tree`: turns, and those that they handed work to, with what each took and said."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.cli.output import as_duration, as_time, one_line, safe, write, write_json
from laneway.cli.previews import preview
from laneway.errors import StoreError

if TYPE_CHECKING:
    from laneway.history.checkpoints import StoredEntry
    from laneway.history.lanes import LaneKey
    from laneway.history.records import TurnRecord
    from laneway.history.store import HistoryStore

__all__ = ["show_tree"]


@dataclass
class _Node:
    """A turn, and the turns below it.

    Attributes:
        delegate: the name by which it was handed the work; empty for a turn that a caller submitted.
        status: how it ended, or what it does.
        record: how it ended; None where it has not.
        started: when it began, in seconds since 1970; None where it did not.
        messages: of a child, its lane's history.
    """

    lane: LaneKey
    turn_id: str
    delegate: str
    status: str
    record: TurnRecord | None
    started: float | None
    messages: Sequence[StoredEntry] = ()
    children: list[_Node] = field(default_factory=list["_Node"])


async def show_tree(store: HistoryStore, lane: LaneKey, *, as_json: bool) -> None:
    """Write the trees of a lane's turns: those that have ended, and one that waits."""
    nodes = [node async for node in _roots(store, lane)]
    if as_json:
        write_json({"conversation": lane.conversation, "agent": lane.agent, "turns": [_json(one) for one in nodes]})
        return
    write(f"conversation {safe(lane.conversation)}, agent {safe(lane.agent)}\n")
    for node in nodes:
        _write(node, "", "")


async def _roots(store: HistoryStore, lane: LaneKey) -> AsyncIterator[_Node]:
    for record in await store.records(lane):
        yield await _node(store, lane, record.turn_id, "")
    running = await store.waits.turn_of(lane)
    if running is not None:
        yield await _node(store, lane, running, "")


async def _node(store: HistoryStore, lane: LaneKey, turn_id: str, delegate: str) -> _Node:
    record = await store.record(lane, turn_id)
    if record is not None:
        node = _Node(lane, turn_id, delegate, record.outcome, record, record.started_at)
        children = record.children
    else:
        fields = await store.turns.unfinished(lane, turn_id)
        requests = await store.waits.requests(lane, turn_id)
        waits = any(answer is None for _, answer in requests)
        status = "waiting" if waits else "running" if "b" in fields else "not started" if fields else "no longer kept"
        started = int(fields["b"]) / 1000 if "b" in fields else None
        node = _Node(lane, turn_id, delegate, status, None, started)
        children = tuple(stored.child for stored, _ in requests if stored.child is not None)
    if delegate:
        try:
            node.messages = await store.history(lane, (await store.head(lane)).checkpoint)
        except StoreError:
            node.messages = ()  # it is being dropped with its parent's turn
    for child in children:
        node.children.append(await _node(store, child.lane, child.turn_id, child.delegate))
    return node


def _took(node: _Node) -> float | None:
    if node.started is None:
        return None
    return (time.time() if node.record is None else node.record.ended_at) - node.started


def _json(node: _Node) -> dict[str, object]:
    record = node.record
    return {
        "delegate": node.delegate or None,
        "conversation": node.lane.conversation,
        "agent": node.lane.agent,
        "contract": node.lane.contract,
        "turn_id": node.turn_id,
        "status": node.status,
        "started_at": as_time(node.started),
        "seconds": _took(node),
        "usage": None if record is None else asdict(record.usage),
        "error": None
        if record is None or record.error_type is None
        else {"type": record.error_type, "message": record.error_message},
        "messages": [json.loads(entry.payload) for entry in node.messages],
        "children": [_json(child) for child in node.children],
    }


def _write(node: _Node, first: str, rest: str) -> None:
    took = _took(node)
    parts = [f"{node.delegate} ({node.lane.agent})" if node.delegate else node.turn_id, node.status]
    if took is not None:
        parts.append(as_duration(timedelta(seconds=took)))
    if node.record is not None:
        usage = node.record.usage
        parts.append(f"{usage.requests} requests, {usage.input_tokens} tokens in, {usage.output_tokens} out")
        if node.record.error_type is not None:
            parts.append(one_line(f"{node.record.error_type}: {node.record.error_message}", limit=80))
    if node.delegate:
        parts.append(node.lane.conversation)
    write(f"{first}{safe('  '.join(parts))}\n")
    for entry in node.messages:
        for line in preview(json.loads(entry.payload)):
            said = f"{line.tool}: {line.text}" if line.tool else line.text
            write(f"{rest}{'│  ' if node.children else '   '}{safe(f'{line.role}: {one_line(said, limit=80)}')}\n")
    for number, child in enumerate(node.children, 1):
        last = number == len(node.children)
        _write(child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")
