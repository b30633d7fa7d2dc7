"""What a run came to: counts, the longest unavailability after each kind of fault, and the verdict."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.evidence import Evidence, Violation, read_evidence
from tests.chaos.judge_calls import judge_calls
from tests.chaos.judge_histories import judge_histories, serial
from tests.chaos.judge_outside import judge_outside
from tests.chaos.judge_teams import judge_teams
from tests.chaos.judge_turns import judge_turns, seen_turns
from tests.chaos.ledger import read_ledger
from tests.chaos.tree import Tree

__all__ = ["Report", "check", "judge", "table"]


@dataclass
class Report:
    """The figures of a run.

    Attributes:
        seed, seconds: of the run.
        faults: how many of each kind.
        unavailable: for each kind, the longest time in seconds from such a fault, or from the last commit before it was
            mended, to the next commit on any lane.
        turns: how many turns clients submitted, and what became of them.
        calls: model requests and tool calls, and how many attempts at steps were refused a write.
        slowest_answer: the longest that a client waited from a turn's acceptance to its answer, in seconds.
        violations: what was not kept.
    """

    seed: int
    seconds: float
    faults: dict[str, int] = field(default_factory=dict[str, int])
    unavailable: dict[str, float] = field(default_factory=dict[str, float])
    turns: dict[str, int] = field(default_factory=dict[str, int])
    calls: dict[str, int] = field(default_factory=dict[str, int])
    slowest_answer: float = 0.0
    violations: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def judge(evidence: Evidence) -> list[Violation]:
    """All that was not kept."""
    tree = Tree(evidence)
    played = serial(evidence, tree)
    found = {
        *judge_turns(evidence),
        *judge_histories(evidence, tree, played),
        *judge_calls(evidence, tree, played),
        *judge_teams(evidence, tree, played),
        *judge_outside(evidence, tree, played),
    }
    return sorted(found)


def check(folder: Path, *, seed: int, seconds: float) -> Report:
    """Judge a run by its files."""
    evidence = read_evidence(folder)
    report = Report(seed, seconds, violations=[str(violation) for violation in judge(evidence)])
    _count_turns(report, evidence)
    faults = folder / "faults.jsonl"
    if faults.exists():
        _count_faults(report, evidence, faults)
    return report


def _count_turns(report: Report, evidence: Evidence) -> None:
    turns = seen_turns(evidence)
    outcomes = Counter(record.outcome for lane in evidence.lanes.values() for record in lane.records.values())
    lines = Counter(line["k"] for line in evidence.callers)
    report.turns = {
        "submitted": len(turns),
        **{name: outcomes[name] for name in ("committed", "failed", "cancelled")},
        "refused as busy": sum(
            1 for turn in turns.values() if any(e["k"] == "busy" for ends in turn.ends.values() for e in ends)
        ),
        "submitted again": lines["submit"] - len(turns),
        "conflicts": lines["conflict"],
        "cancels": lines["cancel"],
        "outages met": lines["unavailable"],
        "lanes": len(evidence.lanes),
        "workflow runs": len(evidence.runs),
        "children": sum(lane.is_child for lane in evidence.lanes.values()),
        "messages that steered": sum(
            one.into is not None for lane in evidence.lanes.values() for one in lane.records.values()
        ),
        "answers given": sum(line["k"] == "give" for line in evidence.answers),
        "cache epochs": sum(int(lane.head.get("e", b"0")) + 1 for lane in evidence.lanes.values()),
    }
    work = Counter(line["k"] for one in evidence.workers.values() for line in one)
    report.calls = {
        "worker processes": len(evidence.workers),
        "model requests": work["model"],
        "tool calls": work["tool"],
        "attempts at steps": work["load"],
        "writes refused by the fence": work["refused"],
    }
    for turn in turns.values():
        for ends in turn.ends.values():
            begun = [line["t"] for line in ends if line["k"] == "accepted"]
            over = [line["t"] for line in ends if line["k"] == "answer"]
            if begun and over:
                report.slowest_answer = max(report.slowest_answer, round((over[0] - begun[0]) / 1e9, 2))


def _count_faults(report: Report, evidence: Evidence, faults: Path) -> None:
    commits = sorted(line["t"] for lines in evidence.workers.values() for line in lines if line["k"] == "committed")
    lines = list(read_ledger(faults))
    report.faults = dict(sorted(Counter(line["kind"] for line in lines if line["k"] == "fault").items()))
    for line in lines:
        if line["k"] != "mended":
            continue
        first, last = bisect_right(commits, line["begun"]), bisect_right(commits, line["t"])
        marks = [line["begun"], *commits[first : last + 1]]
        gap = max((b - a for a, b in itertools.pairwise(marks)), default=0) / 1e9
        report.unavailable[line["kind"]] = max(report.unavailable.get(line["kind"], 0.0), round(gap, 2))


def table(report: Report) -> str:
    """The report for people."""
    rows = [f"{'fault':<20}{'times':>7}{'longest without a commit':>28}"]
    for kind, times in report.faults.items():
        rows.append(f"{kind:<20}{times:>7}{report.unavailable.get(kind, 0.0):>26.2f} s")
    rows.append("")
    for name, number in (report.turns | report.calls).items():
        rows.append(f"{name:<32}{number:>8}")
    rows.append(f"{'slowest answer':<32}{report.slowest_answer:>8.2f} s")
    rows.append("")
    if report.violations:
        rows.append(f"{len(report.violations)} VIOLATIONS (seed {report.seed})")
        rows.extend(f"  {violation[:600]}" for violation in report.violations[:50])
    else:
        rows.append(f"No violation (seed {report.seed}, {report.seconds:g} s)")
    return "\n".join(rows)
