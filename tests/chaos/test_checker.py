"""The checker finds nothing in a run in which all is well, and each kind of violation that is planted in it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import planted_answers, planted_teams, planted_turns
from tests.chaos.evidence import Evidence, Violation, read_evidence
from tests.chaos.good_run import encode, write_good_run
from tests.chaos.planting import LANE, Plant, again, work_of
from tests.chaos.report import check, judge
from tests.chaos.script import Plan

PLANTS = [*planted_turns.plants, *planted_teams.plants, *planted_answers.plants]


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    write_good_run(tmp_path)
    return read_evidence(tmp_path)


def _judge(evidence: Evidence) -> set[Violation]:
    return set(judge(evidence))


def test_nothing_is_found_where_all_is_well(tmp_path: Path):
    write_good_run(tmp_path)
    report = check(tmp_path, seed=1, seconds=1)
    assert report.violations == []
    assert (report.turns["submitted"], report.turns["children"], report.turns["committed"]) == (12, 5, 12)
    assert (report.turns["failed"], report.turns["cancelled"], report.turns["refused as busy"]) == (2, 2, 1)
    assert (report.turns["messages that steered"], report.turns["answers given"]) == (2, 4)


def test_a_line_that_was_cut_by_a_kill_counts_as_not_written(tmp_path: Path):
    write_good_run(tmp_path)
    path = tmp_path / "workers" / "w.jsonl"
    path.write_text(path.read_text() + '{"k":"model","t":1')
    assert check(tmp_path, seed=1, seconds=1).violations == []


# In lanes of graphs, whose messages are stored in LangChain's form, each result by itself.

GraphPlant = Callable[[list[dict[str, Any]]], object]
OF_GRAPHS: dict[str, tuple[str, GraphPlant]] = {
    "a call that was taken out of an answer": ("orphan tool result", lambda m: m[3]["data"]["tool_calls"].pop(0)),
    "a task's result that is gone": ("orphan tool call", lambda m: m.pop(4)),
    "another answer": ("history is not the serial one", lambda m: m[1]["data"].update(content="t1: another")),
    "two tasks that have changed places": ("history is not the serial one", lambda m: m.insert(4, m.pop(5))),
    "a message of another turn's": ("history is not the serial one", lambda m: m[3]["known"].update(r="t1")),
    "a message of a cancelled turn": (
        "history is not the serial one",
        lambda m: m.append({"type": "human", "data": {"content": Plan("t4").to_prompt()}, "known": {"r": "t4"}}),
    ),
    "a removal that was stored": (
        "history is not the serial one",
        lambda m: m.append({"type": "remove", "data": {"content": ""}, "known": {"r": "t5"}}),
    ),
}


@pytest.mark.parametrize("what", OF_GRAPHS)
def test_what_is_planted_in_a_graphs_lane_is_found(tmp_path: Path, what: str):
    write_good_run(tmp_path, "graph")
    evidence = read_evidence(tmp_path)
    assert _judge(evidence) == set()
    lane, (rule, plant) = evidence.lanes["talk/graph"], OF_GRAPHS[what]
    messages: list[dict[str, Any]] = []
    for entry in lane.epochs[0]:
        start = 18 + int.from_bytes(entry[16:18], "big")
        messages.append({**json.loads(entry[start:]), "known": json.loads(entry[18:start])})
    plant(messages)
    entries: list[bytes] = []
    for message in messages:
        known = json.dumps(message.pop("known")).encode()
        entries.append(encode(json.dumps(message).encode(), entries[-1][:16] if entries else b"", known))
    lane.epochs[0] = entries
    assert rule in {violation.rule for violation in _judge(evidence)}


@pytest.mark.parametrize(("rule", "plant"), PLANTS, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(PLANTS)])
def test_what_is_planted_is_found(evidence: Evidence, rule: str, plant: Plant):
    plant(evidence, evidence.lanes[LANE])
    assert rule in {violation.rule for violation in _judge(evidence)}


def test_a_call_that_began_before_its_result_was_safe_is_no_repetition(evidence: Evidence):
    """A worker that was frozen between its load and its call cannot know."""
    again(evidence, "model", "s0")
    first = work_of(evidence, "load", "t2")
    evidence.workers["w2"][0]["begun"] = first["begun"]
    assert _judge(evidence) == set()


@pytest.mark.parametrize(
    "module",
    [
        *("evidence", "judge_calls", "judge_histories", "judge_outside", "judge_teams", "judge_turns"),
        *("ledger", "report", "script", "tree"),
    ],
)
def test_the_checker_shares_no_code_with_the_product(module: str):
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    outside = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(name.startswith("tests.chaos.") for name in outside)
