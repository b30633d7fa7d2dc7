"""What is left of a run, read from its files. Nothing of the product is imported, here or in what judges it.

The names of keys, the fields of a record and the form of an entry are read as `history/layout.py`, `records.py` and
`checkpoints.py` describe them in words.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.ledger import read_ledger

__all__ = ["ChildNamed", "Evidence", "LaneLeft", "Outcome", "Record", "Run", "Violation", "read_evidence"]

Line = dict[str, Any]
Outcome = str
_OUTCOMES = {"c": "committed", "f": "failed", "x": "cancelled"}


@dataclass(frozen=True, order=True)
class Violation:
    """A promise that was not kept.

    Attributes:
        rule: which, in a few words.
        where: the lane or the turn.
        detail: what was found.
    """

    rule: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.detail}"


@dataclass(frozen=True)
class ChildNamed:
    """A child as its parent's record names it: on which lane, and which run of a kept conversation it is."""

    delegate: str
    lane: str
    turn: str
    kept: str | None
    runs: int


@dataclass(frozen=True)
class Record:
    """A turn's record in Redis; `ended` is in milliseconds since 1970."""

    turn: str
    number: int
    outcome: Outcome
    prompt: str
    steps: int
    checkpoint: tuple[int, int, str] | None
    output_in_history: bool
    output: str | None
    error: str | None
    message: str | None = None
    ended: int = 0
    children: tuple[ChildNamed, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()
    into: str | None = None


@dataclass(frozen=True)
class Run:
    """A run of a lane's workflow.

    Attributes:
        workflow: the workflow's id.
        lane: whose it is.
        ended: when it was closed, in milliseconds since 1970; 0 where it is open.
        parent: the id of the workflow that started it as a child; empty for none.
    """

    workflow: str
    lane: str
    ended: int = 0
    parent: str = ""


@dataclass
class LaneLeft:
    """What Redis holds of a lane, and Temporal knows of it.

    Attributes:
        name: `conversation/agent`.
        agent: the agent.
        head: the head's fields; empty where the lane has committed nothing.
        epochs: the entries of each cache epoch that is there.
        records: by turn id.
        events: the stream, oldest first: kind, turn, step, attempt and so on.
        unfinished: turn ids that have a key of staged data or of an input.
        stages: names of lists of staged entries.
        ttl: each key's time to live in milliseconds, negative for none.
        accepted: turn id, prompt digest and busy policy of each update that its workflow accepted, in order.
    """

    name: str
    agent: str
    head: dict[str, bytes] = field(default_factory=dict[str, bytes])
    epochs: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    events: list[list[Any]] = field(default_factory=list[list[Any]])
    unfinished: list[str] = field(default_factory=list[str])
    stages: list[str] = field(default_factory=list[str])
    ttl: dict[str, int] = field(default_factory=dict[str, int])
    accepted: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    @property
    def is_child(self) -> bool:
        """Whether it does delegated work."""
        return self.name.startswith("child-")

    @property
    def committed(self) -> list[Record]:
        """The records of committed turns, in the order of their ends, without messages that steered others."""
        found = [one for one in self.records.values() if one.outcome == "committed" and one.into is None]
        return sorted(found, key=lambda record: record.number)


@dataclass
class Evidence:
    """Everything that the judges look at.

    Attributes:
        lanes: by `conversation/agent`.
        callers: what clients did and saw, by time.
        answers: what was answered to turns that wait, and what was said of that.
        workers: what each worker process did, by process.
        runs: the runs of workflows.
    """

    lanes: dict[str, LaneLeft] = field(default_factory=dict[str, LaneLeft])
    callers: list[Line] = field(default_factory=list[Line])
    answers: list[Line] = field(default_factory=list[Line])
    workers: dict[str, list[Line]] = field(default_factory=dict[str, list[Line]])
    runs: list[Run] = field(default_factory=list[Run])


def read_evidence(folder: Path) -> Evidence:
    """Read a run's files."""
    found = Evidence()
    stored = json.loads((folder / "redis.json").read_text())
    _read_redis(found, stored["prefix"], stored["keys"])
    runs = json.loads((folder / "temporal.json").read_text())
    for run in runs:
        conversation, agent, _ = run["lane"]
        lane = found.lanes.setdefault(f"{conversation}/{agent}", LaneLeft(f"{conversation}/{agent}", agent))
        found.runs.append(Run(run.get("workflow", ""), lane.name, run.get("ended", 0), run.get("parent", "")))
        lane.accepted.extend((turn, prompt, busy) for turn, prompt, busy in run["accepted"])
    for path in sorted(folder.glob("callers/*.jsonl")):
        found.callers.extend(read_ledger(path))
    found.callers.sort(key=lambda line: line["t"])
    for path in sorted(folder.glob("answerers/*.jsonl")):
        found.answers.extend(read_ledger(path))
    for path in sorted(folder.glob("workers/*.jsonl")):
        found.workers[path.stem] = list(read_ledger(path))
    return found


def _read_redis(found: Evidence, prefix: str, keys: dict[str, dict[str, Any]]) -> None:
    names: dict[str, str] = {}
    # The lanes of children are listed only by their conversations.
    indexes = [
        held for key, held in keys.items() if key == f"{prefix}:lanes" or key.startswith(f"{prefix}:conversation:")
    ]
    for lane_id, text in (pair for held in indexes for pair in _pairs(held["value"])):
        conversation, agent, _ = json.loads(text)
        names[lane_id] = f"{conversation}/{agent}"
        found.lanes.setdefault(names[lane_id], LaneLeft(names[lane_id], agent))
    for key, held in keys.items():
        rest = key.removeprefix(f"{prefix}:")
        if not rest.startswith("{"):
            continue
        lane_id, _, what = rest[1:].partition("}:")
        name = names.get(lane_id, lane_id)
        lane = found.lanes.setdefault(name, LaneLeft(name, ""))
        lane.ttl[what] = held["ttl"]
        _read_key(lane, what, held["value"])


def _read_key(lane: LaneLeft, what: str, value: Any) -> None:
    kind, _, rest = what.partition(":")
    if what == "head":
        lane.head = dict(_pairs(value))
    elif what == "turns":
        lane.records = {turn: _record(turn, blob) for turn, blob in _pairs(value)}
    elif what == "events":
        lane.events = [json.loads(dict(_pairs(fields))["e"]) for _, fields in value]
    elif kind == "epoch":
        lane.epochs[int(rest)] = [b64decode(item) for item in value]
    elif kind == "turn":
        lane.unfinished.append(rest)
    elif kind == "stage":
        lane.stages.append(rest)


def _pairs(value: Iterable[tuple[str, str]]) -> Iterable[tuple[str, bytes]]:
    return ((b64decode(name).decode(), b64decode(blob)) for name, blob in value)


def _record(turn: str, blob: bytes) -> Record:
    number, _, body = blob.partition(b"|")
    data = json.loads(body)
    checkpoint = None
    if "c" in data:
        epoch, length, digest = data["c"].split(":")
        checkpoint = (int(epoch), int(length), digest)
    return Record(
        turn=turn,
        number=int(number),
        outcome=_OUTCOMES[data["o"]],
        prompt=data["p"],
        steps=data["s"],
        checkpoint=checkpoint,
        output_in_history=bool(data.get("h")),
        output=data.get("r"),
        error=data["e"][0] if "e" in data else None,
        message=data["e"][1] if "e" in data else None,
        ended=data.get("t", (0, 0))[1],
        children=tuple(
            ChildNamed(delegate, f"{conversation}/{agent}", turn, kept, runs)
            for delegate, conversation, agent, _, turn, kept, runs in data.get("k", ())
        ),
        taken=tuple((turn, prompt) for turn, prompt in data.get("m", ())),
        into=data.get("j"),
    )
