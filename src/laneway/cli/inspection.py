"""`laneway show`: what a lane holds and does, read without its application."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.edits import RECEIPT_COLUMNS, receipt_row, repair_line, was_processed
from laneway.cli.failures import code_of, describe, report
from laneway.cli.lanes import check_lane, choose_lane, find_lanes
from laneway.cli.output import as_duration, as_time, note, one_line, safe, table, write, write_json
from laneway.cli.places import Place, locate, open_client, open_store
from laneway.cli.previews import preview
from laneway.errors import LanewayError, StoreError

if TYPE_CHECKING:
    from laneway.activities.agents import Agents
    from laneway.client import LaneStatus
    from laneway.history.accounts import LaneSpending
    from laneway.history.checkpoints import StoredEntry
    from laneway.history.delegation import ChildRef
    from laneway.history.heads import Head
    from laneway.history.lanes import LaneKey
    from laneway.history.records import TurnRecord
from laneway.history.store import HistoryStore

__all__ = ["show_lane"]


@dataclass(frozen=True)
class _View:
    """All that is shown of a lane.

    Attributes:
        lane: which.
        workflow_id: its workflow's.
        others: the contracts of the same conversation and agent that are not shown.
        head: its committed state.
        status: what it is doing, or the error that keeps it from telling.
        spending: what it has spent, and may spend.
        turns: the turns that have ended.
        messages: its entries, or the error that keeps them from being read.
    """

    lane: LaneKey
    workflow_id: str
    others: Sequence[str]
    head: Head
    status: LaneStatus | LanewayError
    spending: LaneSpending
    turns: Sequence[TurnRecord]
    messages: Sequence[StoredEntry] | LanewayError


async def show_lane(
    conversation: str,
    agent: str,
    *,
    app: str | None,
    contract: str | None,
    data_dir: Path,
    as_json: bool,
    tree: bool = False,
) -> int:
    """Write a lane's turns, messages, checkpoint, epoch, and what it is doing."""
    from laneway.activities.agents import Agents

    check_lane(conversation, agent)
    agents = Agents(load_app(AppTarget.parse(app)).agents if app is not None else {})
    if app is not None:
        agents[agent]  # an unknown agent is told before anything is connected
    place = await locate(data_dir)
    async with open_store(place) as store:
        lanes = await find_lanes(store, conversation, agent)
        lane = await choose_lane(store, lanes, None if app is None else agents, contract)
        if tree:
            from laneway.cli.tree import show_tree

            await show_tree(store, lane, as_json=as_json)
            return 0
        others = [other.contract for other in lanes if other != lane]
        head, status = await store.head(lane), await _status(place, lane)
        turn = None if isinstance(status, LanewayError) else status.turn
        view = _View(
            lane,
            store.workflow_id(lane),
            others,
            head,
            status,
            await store.accounts.spending(lane, turn),
            await store.records(lane),
            await _messages(store, lane, head, None if app is None else agents),
        )
    if as_json:
        write_json(_to_json(view))
    else:
        _write(view)
    if isinstance(view.messages, LanewayError):
        return code_of(view.messages) if as_json else report(view.messages, as_json=False)
    return 0


async def _status(place: Place, lane: LaneKey) -> LaneStatus | LanewayError:
    """What the lane is doing. Without Temporal or a worker nobody can tell, and all the rest can be shown."""
    from laneway.activities.agents import Agents

    try:
        async with open_client(Agents({}), place) as client:
            return await client.status(lane)
    except LanewayError as error:
        return error


async def _messages(
    store: HistoryStore, lane: LaneKey, head: Head, agents: Agents | None
) -> Sequence[StoredEntry] | LanewayError:
    """The lane's entries; with the application, checked to be messages of its framework."""
    try:
        entries = await store.history(lane, head.checkpoint)
    except StoreError as error:
        return error
    if agents is not None:
        adapter = agents[lane.agent]
        for entry in entries:
            adapter.decode(entry.payload)
    return entries


def _to_json(view: _View) -> dict[str, object]:
    lane, head, checkpoint = view.lane, view.head, view.head.checkpoint
    messages = view.messages
    found: dict[str, object] = {
        "conversation": lane.conversation,
        "agent": lane.agent,
        "contract": lane.contract,
        "other_contracts": list(view.others),
        "workflow_id": view.workflow_id,
        "version": head.version,
        "epoch": checkpoint.epoch,
        "checkpoint": asdict(checkpoint),
        "status": _status_json(view.status),
        "spent": asdict(view.spending.total),
        "headroom": [asdict(one) | {"remaining": one.remaining} for one in view.spending.headroom],
        "turns": [_turn_json(turn) for turn in view.turns],
        "messages": None if isinstance(messages, LanewayError) else [_message_json(entry) for entry in messages],
    }
    if isinstance(messages, LanewayError):
        found |= describe(messages)
    return found


def _status_json(status: LaneStatus | LanewayError) -> dict[str, object]:
    if isinstance(status, LanewayError):
        return {"state": "unknown", "message": str(status)}
    return {
        "state": "open" if status.running else "idle",
        "turn": status.turn,
        "step": status.step,
        "queue": list(status.queue),
        "cancelling": status.cancelling,
        "waiting": list(status.waiting),
        "steering": list(status.steering),
    }


def _turn_json(turn: TurnRecord) -> dict[str, object]:
    failed = turn.error_type is not None
    return {
        "number": turn.number,
        "turn_id": turn.turn_id,
        "outcome": turn.outcome,
        "started_at": as_time(turn.started_at),
        "ended_at": as_time(turn.ended_at),
        "steps": turn.steps,
        "usage": asdict(turn.usage),
        "checkpoint": None if turn.checkpoint is None else asdict(turn.checkpoint),
        "output": None if turn.output is None else json.loads(turn.output),
        "output_in_history": turn.output_in_history,
        "error": {"type": turn.error_type, "message": turn.error_message} if failed else None,
        "attempts": [asdict(attempt) for attempt in turn.attempts],
        "edits": [asdict(edit) for edit in turn.tally.edits],
        "noops": turn.tally.noops,
        "skips": turn.tally.skips,
        "repairs": [asdict(repair) for repair in turn.repairs],
        "uncertain": [asdict(call) for call in turn.uncertain],
        "steered_into": turn.steered_into,
        "children": [_child_json(child) for child in turn.children],
    }


def _child_json(child: ChildRef) -> dict[str, object]:
    lane = child.lane
    return {
        "delegate": child.delegate,
        "conversation": lane.conversation,
        "agent": lane.agent,
        "contract": lane.contract,
        "turn_id": child.turn_id,
        "kept": child.kept,
    }


def _message_json(entry: StoredEntry) -> dict[str, object]:
    return {"message": _payload(entry), "metadata": dict(entry.metadata)}


def _payload(entry: StoredEntry) -> object:
    try:
        return json.loads(entry.payload)
    except ValueError:
        return entry.payload.decode(errors="replace")


def _write(view: _View) -> None:
    lane, checkpoint = view.lane, view.head.checkpoint
    write(f"conversation  {lane.conversation}\n")
    write(f"agent         {lane.agent}, contract {lane.contract}\n")
    write(f"checkpoint    epoch {checkpoint.epoch}, {checkpoint.length} messages, {checkpoint.digest or 'empty'}\n")
    write(f"version       {view.head.version}\n")
    write(f"state         {_state(view.status)}\n")
    for position, one in enumerate(view.spending.headroom):
        opening = "budget" if position == 0 else ""
        write(f"{opening:14}{one.scope}: {one.remaining} left of {one.dimension} {one.limit}\n")
    write("\n")
    if view.turns:
        table(
            ("#", "turn", "outcome", "steps", "requests", "tools", "tokens in", "out", "took", ""),
            [_turn_row(turn) for turn in view.turns],
            right=("#", "steps", "requests", "tools", "tokens in", "out", "took"),
        )
        write("\n")
    _write_edits(view.turns)
    if not isinstance(view.messages, LanewayError):
        table(
            ("#", "role", "text"),
            [
                (str(index), line.role, one_line(f"{line.tool}: {line.text}" if line.tool else line.text))
                for index, entry in enumerate(view.messages)
                for line in preview(_payload(entry))
            ],
            right=("#",),
        )
    if view.others:
        note(f"there are lanes of other contracts too, see --contract: {', '.join(view.others)}")


def _write_edits(turns: Sequence[TurnRecord]) -> None:
    """Write what was done to the history beside adding to it, where anything was."""
    if processed := [turn for turn in turns if was_processed(turn)]:
        columns = ("#", "edits", "no-ops", "skipped")
        table(
            columns,
            [
                tuple(
                    map(
                        str,
                        (
                            turn.number,
                            sum(edit.is_rewrite for edit in turn.tally.edits),
                            turn.tally.noops,
                            turn.tally.skips,
                        ),
                    )
                )
                for turn in processed
            ],
            right=columns,
        )
        write("\n")
    if edits := [receipt_row(turn.number, edit) for turn in processed for edit in turn.tally.edits]:
        table(RECEIPT_COLUMNS, edits, right=("#", "request", "groups", "messages", "tokens", "epoch"))
        write("\n")
    if repairs := [(turn.number, repair) for turn in turns for repair in turn.repairs]:
        table(
            ("#", "message", "repair"),
            [(str(number), str(repair.index), repair_line(repair)) for number, repair in repairs],
            right=("#", "message"),
        )
        write("\n")


def _state(status: LaneStatus | LanewayError) -> str:
    if isinstance(status, LanewayError):
        return f"unknown ({one_line(str(status), limit=200)})"
    if status.turn is None:
        return "idle" if not status.queue else f"{len(status.queue)} turns wait"
    doing = "is being cancelled" if status.cancelling else "runs"
    if status.waiting and not status.cancelling:
        doing = f"waits for {', '.join(status.waiting)} (see `laneway pending`)"
    steering = f", steered by {', '.join(status.steering)}" if status.steering else ""
    waiting = f"; then {', '.join(status.queue)}" if status.queue else ""
    return safe(f"turn {status.turn} {doing}, step {status.step}{steering}{waiting}")


def _turn_row(turn: TurnRecord) -> tuple[str, ...]:
    took = "" if turn.started_at is None else as_duration(timedelta(seconds=turn.ended_at - turn.started_at))
    said = turn.output or ""
    if turn.error_type is not None:
        said = f"{turn.error_type}: {turn.error_message}"
    elif turn.steered_into is not None:
        said = f"into turn {turn.steered_into}"
    elif turn.attempts:
        said = f"after {len(turn.attempts)} failed attempts"
    usage = turn.usage
    numbers = (turn.steps, usage.requests, usage.tool_calls, usage.input_tokens, usage.output_tokens)
    return (str(turn.number), turn.turn_id, turn.outcome, *map(str, numbers), took, one_line(said, limit=80))
