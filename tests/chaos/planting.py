"""Violations, as the checker's tests plant them into what is left of a good run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft
from tests.chaos.good_run import encode

__all__ = ["LANE", "TEAM", "Plant", "Plants", "again", "change", "line_of", "rewrite", "work_of"]

LANE = "talk/careful"
TEAM = "team/plain"

Plant = Callable[[Evidence, LaneLeft], None]
"""Plants one violation: in what Redis holds, what clients saw, what Temporal accepted or what workers did."""


class Plants(list[tuple[str, Plant]]):
    """Plants, each with the rule that it breaks."""

    def __call__(self, rule: str) -> Callable[[Plant], Plant]:
        def keep(plant: Plant) -> Plant:
            self.append((rule, plant))
            return plant

        return keep


def line_of(evidence: Evidence, kind: str, turn: str) -> dict[str, Any]:
    return next(line for line in evidence.callers if line["k"] == kind and line["turn"] == turn)


def work_of(evidence: Evidence, kind: str, turn: str) -> dict[str, Any]:
    return next(line for line in evidence.workers["w"] if line["k"] == kind and line["turn"] == turn)


def change(lane: LaneLeft, turn: str, **changed: Any) -> None:
    lane.records[turn] = replace(lane.records[turn], **changed)


def rewrite(lane: LaneLeft, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change stored messages, and chain them and the head anew."""
    messages = [json.loads(entry[18:]) for entry in lane.epochs[0]]
    change(messages)
    entries: list[bytes] = []
    for message in messages:
        entries.append(encode(json.dumps(message).encode(), entries[-1][:16] if entries else b""))
    lane.epochs[0] = entries
    lane.head |= {"n": str(len(entries)).encode(), "d": entries[-1][:16].hex().encode()}


def again(evidence: Evidence, kind: str, after: str) -> None:
    """A second attempt at a step makes a call once more; it began to load after a line of that kind."""
    known = work_of(evidence, kind, "t2")
    safe = next(line for line in evidence.workers["w"] if line["k"] == "staged" and line["name"].startswith(after))
    who = {"turn": "t2", "step": known["step"], "attempt": 2, "load": 1}
    evidence.workers["w2"] = [
        {"k": "load", "t": safe["t"] + 2, "begun": safe["t"] + 1, **who},
        {**known, **who, "t": safe["t"] + 3},
    ]
