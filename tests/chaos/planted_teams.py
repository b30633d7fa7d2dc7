"""What is planted in delegated work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft
from tests.chaos.planting import TEAM, Plants, change, line_of

__all__ = ["plants"]

plants = Plants()


def _child(evidence: Evidence, call: str) -> LaneLeft:
    return next(lane for name, lane in evidence.lanes.items() if name.startswith(f"child-{call}/"))


def _name(lane: LaneLeft, turn: str, place: int, **changed: Any) -> None:
    """Have a parent's record name one of its children otherwise."""
    children = list(lane.records[turn].children)
    children[place] = replace(children[place], **changed)
    change(lane, turn, children=tuple(children))


def _run_of(evidence: Evidence, call: str) -> int:
    return next(at for at, run in enumerate(evidence.runs) if run.lane.startswith(f"child-{call}/"))


@plants("child without a parent")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    change(team, "u1", children=team.records["u1"].children[1:])


@plants("child of two parents")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    change(team, "u3", children=(*team.records["u3"].children, team.records["u1"].children[0]))


@plants("child twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """One piece of work, done on two lanes."""
    team, child = evidence.lanes[TEAM], _child(evidence, "u1.0.0")
    turn = replace(child.records["turn-u1.0.0"], turn="again")
    evidence.lanes["child-again/reader"] = replace(child, name="child-again/reader", records={"again": turn})
    named = replace(team.records["u1"].children[0], lane="child-again/reader", turn="again")
    change(team, "u1", children=(*team.records["u1"].children, named))


@plants("child twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    child = _child(evidence, "u1.0.0")
    child.records["more"] = replace(child.records["turn-u1.0.0"], turn="more", number=2)


@plants("child started twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.runs.append(evidence.runs[_run_of(evidence, "u1.0.0")])


@plants("child without a workflow")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del evidence.runs[_run_of(evidence, "u1.0.0")]


@plants("child of another workflow")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    at = _run_of(evidence, "u1.0.0")
    evidence.runs[at] = replace(evidence.runs[at], parent="talk")


@plants("child left running")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    at = _run_of(evidence, "u3.0.0")
    evidence.runs[at] = replace(evidence.runs[at], ended=0)


@plants("child outlived its parent's turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    at = _run_of(evidence, "u3.0.0")
    evidence.runs[at] = replace(evidence.runs[at], ended=evidence.lanes[TEAM].records["u3"].ended + 100)


@plants("child without an end")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _child(evidence, "u1.0.0").records.clear()


@plants("child that nobody asked for")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(_child(evidence, "u1.0.0"), "turn-u1.0.0", prompt="0")


@plants("child of another turn's work")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    first, second = team.records["u1"].children, team.records["u2"].children
    change(team, "u1", children=(second[0], *first[1:]))
    change(team, "u2", children=(first[0], *second[1:]))


@plants("child of another delegate")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _name(evidence.lanes[TEAM], "u1", 0, delegate="scribe")


@plants("child of another delegate")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _name(evidence.lanes[TEAM], "u1", 0, kept="reader-1")


@plants("child cancelled by nobody")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(_child(evidence, "u2.0.0"), "turn-u2.0.0", outcome="cancelled")


@plants("failed without a reason")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """For want of a budget that nobody set."""
    change(_child(evidence, "u1.0.0"), "turn-u1.0.0", outcome="failed", error="BudgetExceeded")


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(_child(evidence, "u2.0.0"), "turn-u2.0.0", outcome="committed")


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A turn whose work failed that was to fail with it."""
    submit = line_of(evidence, "submit", "u2")
    submit["prompt"] = submit["prompt"].replace("delegate_to_reader", "delegate_to_strict")


@plants("child's outcome is not what was told")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(_child(evidence, "u2.0.0"), "turn-u2.0.0", message="another")


@plants("child's outcome is not what was told")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A child that was stopped is nothing to go on with."""
    change(_child(evidence, "u1.0.0"), "turn-u1.0.0", outcome="cancelled")


@plants("budget exceeded")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Two requests of the turn's own, and one of each child."""
    line_of(evidence, "submit", "u2")["budget"] = 3


@plants("child's history left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _child(evidence, "u3.0.0").head["v"] = b"1"


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _child(evidence, "u3.0.0").ttl["turns"] = -1


@plants("committed data with a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """The kept conversation stands there."""
    _child(evidence, "u2.0.1").ttl["head"] = 1000


@plants("kept conversation's runs")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _name(evidence.lanes[TEAM], "u2", 1, runs=1)


@plants("kept conversations of the head")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """It stands where it stood before the last turn."""
    head = evidence.lanes[TEAM].head
    head["x"] = head["x"].replace(b"turn-u2.0.1", b"turn-u1.0.1")


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A kept conversation that goes on without its first run."""
    child = _child(evidence, "u2.0.1")
    child.epochs[0] = child.epochs[0][2:]


@plants("lost turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del _child(evidence, "u1.0.0").records["turn-u1.0.0"]
