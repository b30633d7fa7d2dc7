"""Judges delegated work: each child has one parent and one end, within the tree's budget, and none outlives it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.evidence import Evidence, LaneLeft, Run, Violation
from tests.chaos.judge_histories import Serial
from tests.chaos.script import Plan, play, told_of_kept
from tests.chaos.tree import Child, Tree

__all__ = ["expected_of", "judge_teams"]

_CLOCK_MS = 5
"""Temporal and the workers read one clock, and round."""


def judge_teams(evidence: Evidence, tree: Tree, played: Serial) -> Iterator[Violation]:
    budgets = _budgets(evidence)
    seen: Counter[tuple[str, str]] = Counter()
    parents: Counter[str] = Counter()
    for child in tree.named:
        parents[child.named.lane] += 1
        seen[child.parent.turn, child.call or ""] += 1
        yield from _is_what_was_asked(child, tree)
        yield from _ended(child, tree, budgets)
        yield from _kept(child, tree)
    for lane, count in parents.items():
        if count > 1:
            yield Violation("child of two parents", lane, f"{count} records name it")
    for (turn, call), count in seen.items():
        if call and count > 1:
            yield Violation("child twice", turn, f"{count} children for {call}")
    for lane in evidence.lanes.values():
        if lane.is_child and lane.name not in parents:
            yield Violation("child without a parent", lane.name, "no turn's record names it")
        if lane.is_child and len(lane.records) > 1:
            yield Violation("child twice", lane.name, f"it has turns {sorted(lane.records)}")
        yield from _kept_of_head(lane, tree)
    yield from _workflows(evidence, tree)
    yield from _spending(evidence, tree, budgets)


def _budgets(evidence: Evidence) -> dict[str, int]:
    """The model requests that a turn and all below it may make."""
    submits = [line for line in evidence.callers if line["k"] == "submit" and line.get("budget") is not None]
    return {line["turn"]: line["budget"] for line in submits}


def _is_what_was_asked(child: Child, tree: Tree) -> Iterator[Violation]:
    turn, named = child.named.turn, child.named
    if child.record is None:
        yield Violation("child without an end", turn, f"{child.parent.turn} names it, and it has no record")
        return
    if (child.record.outcome, child.record.prompt, child.parent.outcome == "committed") == ("cancelled", "", False):
        return  # its parent ended before it had been given its prompt
    if child.call is None:
        yield Violation("child that nobody asked for", turn, f"its prompt is in no plan; parent {child.parent.turn}")
        return
    above = tree.turn_prompts.get(child.parent.turn)
    if above is None or child.call.rsplit(".", 2)[0] != Plan.from_prompt(above).id:
        yield Violation("child of another turn's work", turn, f"{child.call}, under {child.parent.turn}")
    asked = tree.delegate_of(child)
    if asked is None or named.delegate != child.delegate or child.lane.agent != asked.agent:
        yield Violation("child of another delegate", turn, f"{named.delegate} on {named.lane} for {child.call}")
    elif asked.keep != (named.kept is not None):
        yield Violation("child of another delegate", turn, f"kept as {named.kept}")


def _ended(child: Child, tree: Tree, budgets: dict[str, int]) -> Iterator[Violation]:
    """As its plan says, or its parent's end; and the parent has ended as that allows."""
    record, turn = child.record, child.named.turn
    if record is None or child.prompt is None:
        return
    failed = play(child.prompt, after="", validates=False).failed
    is_limited = any(one in budgets for one in tree.above(turn))
    if record.outcome == "cancelled" and child.parent.outcome == "committed":
        yield Violation("child cancelled by nobody", turn, f"{child.parent.turn} is committed")
    if record.outcome == "committed" and failed is not None:
        yield Violation("committed though it fails", turn, failed)
    if record.outcome == "failed" and record.error not in ({failed, "BudgetExceeded"} if is_limited else {failed}):
        yield Violation("failed without a reason", turn, f"{record.error}, of a child")
    asked = tree.delegate_of(child)
    if asked is not None and asked.fails_turn and record.outcome == "failed" and child.parent.outcome == "committed":
        yield Violation("committed though it fails", child.parent.turn, f"{turn} failed")


def _kept(child: Child, tree: Tree) -> Iterator[Violation]:
    """What it committed stays with its parent's turn, or is gone; a kept conversation's runs are counted."""
    if not tree.is_kept(child) and (child.lane.head or child.lane.epochs):
        yield Violation("child's history left behind", child.named.turn, f"{child.parent.turn} came to nothing")
    runs = len(tree.kept_before(child)) + 1
    if child.named.runs != runs:
        yield Violation("kept conversation's runs", child.named.turn, f"it is run {child.named.runs}, serially {runs}")


def _kept_of_head(lane: LaneLeft, tree: Tree) -> Iterator[Violation]:
    """Where kept conversations stand is what the committed turns left."""
    if lane.is_child:
        return
    expected = {
        named.kept: named.turn
        for record in lane.committed
        for named in record.children
        if named.kept is not None and _has_committed(tree.children[named.turn])
    }
    stands = json.loads(lane.head["x"]).get("kept", {}) if lane.head else {}
    found = {name: data[4] for name, data in stands.items()}
    if found != expected:
        yield Violation("kept conversations of the head", lane.name, f"{found}, serially {expected}")


def _has_committed(child: Child) -> bool:
    return child.record is not None and child.record.outcome == "committed"


def _workflows(evidence: Evidence, tree: Tree) -> Iterator[Violation]:
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in evidence.runs:
        runs[run.lane].append(run)
    for child in tree.named:
        turn, own = child.named.turn, runs[child.named.lane]
        if len(own) > 1:
            yield Violation("child started twice", turn, f"{len(own)} runs of its workflow")
        if not own and child.record is not None and child.record.outcome == "committed":
            yield Violation("child without a workflow", turn, "Temporal has no run of it")
        above = {run.workflow for run in runs[child.parent_lane.name]}
        for run in own:
            if run.parent not in above:
                yield Violation("child of another workflow", turn, f"{run.parent} started it")
            if not run.ended:
                yield Violation("child left running", turn, f"{child.parent.turn} has ended")
            elif run.ended > child.parent.ended + _CLOCK_MS:
                late = run.ended - child.parent.ended
                yield Violation("child outlived its parent's turn", turn, f"by {late} ms")


def _spending(evidence: Evidence, tree: Tree, budgets: dict[str, int]) -> Iterator[Violation]:
    """Each request is counted before it is sent, so those that were sent are within the budget."""
    asked: Counter[str] = Counter()
    for line in (line for lines in evidence.workers.values() for line in lines):
        if line["k"] == "model" and "turn" in line:
            asked.update(one for one in tree.above(line["turn"]) if one in budgets)
    for turn, count in asked.items():
        if count > budgets[turn]:
            yield Violation("budget exceeded", turn, f"{count} requests in its tree, {budgets[turn]} allowed")


def expected_of(child: Child, played: Serial) -> list[str] | None:
    """What a child's parent is to be told, outcome and content of the tool call; None where it is told nothing."""
    record = child.record
    if record is None or record.outcome == "cancelled":
        return None
    if record.outcome == "failed":
        return ["failed", f"{child.named.delegate} failed: {record.error}: {record.message}"]
    output = played.outputs.get(record.turn, "")
    return ["success", output if child.named.kept is None else told_of_kept(child.named.kept, output)]
