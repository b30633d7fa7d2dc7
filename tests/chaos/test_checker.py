"""The checker finds nothing in a run in which all is well, and each kind of violation that is planted in it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.evidence import Evidence, LaneLeft, Violation, read_evidence
from tests.chaos.good_run import encode, write_good_run
from tests.chaos.report import check, judge
from tests.chaos.script import Plan

LANE = "talk/careful"
TEAM = "team/plain"


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


# Each plants one violation, in what Redis holds, what clients saw, what Temporal accepted or what workers did.

Plant = Callable[[Evidence, LaneLeft], None]
PLANTS: list[tuple[str, Plant]] = []


def plants(rule: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        PLANTS.append((rule, plant))
        return plant

    return keep


def _line(evidence: Evidence, kind: str, turn: str) -> dict[str, Any]:
    return next(line for line in evidence.callers if line["k"] == kind and line["turn"] == turn)


def _work(evidence: Evidence, kind: str, turn: str) -> dict[str, Any]:
    return next(line for line in evidence.workers["w"] if line["k"] == kind and line["turn"] == turn)


def _change(lane: LaneLeft, turn: str, **changed: Any) -> None:
    lane.records[turn] = replace(lane.records[turn], **changed)


def _rewrite(lane: LaneLeft, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change stored messages, and chain them and the head anew."""
    messages = [json.loads(entry[18:]) for entry in lane.epochs[0]]
    change(messages)
    entries: list[bytes] = []
    for message in messages:
        entries.append(encode(json.dumps(message).encode(), entries[-1][:16] if entries else b""))
    lane.epochs[0] = entries
    lane.head |= {"n": str(len(entries)).encode(), "d": entries[-1][:16].hex().encode()}


@plants("lost turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del lane.records["t3"]


@plants("accepted without an event")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted = [one for one in lane.accepted if one[0] != "t2"]


@plants("numbers of ended turns")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(lane, "t5", number=6)


@plants("record of an unknown turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.records["t9"] = replace(lane.records["t3"], turn="t9", number=6)


@plants("ended without being accepted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    prompt = lane.records["t3"]
    lane.records["t6"] = replace(prompt, turn="t6", number=6)


@plants("two prompts under one id")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "conflict", "t5")["k"] = "accepted"


@plants("client without an answer")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers.remove(_line(evidence, "answer", "t1"))


@plants("answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "answer", "t1")["outcome"] = "cancelled"


@plants("answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "answer", "t3")["error"] = "ValueError"


@plants("answer is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "answer", "t2")["output"] = "t2: 0"


@plants("undocumented error")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "busy", "t6").update(k="surprise", error="RuntimeError: event loop is closed")


@plants("known turn called busy")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "conflict", "t5")["k"] = "busy"


@plants("its own prompt called a conflict")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "busy", "t6")["k"] = "conflict"


@plants("cancel without an answer")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers.remove(_line(evidence, "cancel_answer", "t4"))


@plants("cancel's answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "cancel_answer", "t4")["answer"] = "already_committed"


@plants("cancelled by nobody")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers = [line for line in evidence.callers if not line["k"].startswith("cancel")]


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(lane, "t3", outcome="committed")


@plants("failed without a reason")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(lane, "t3", error="CheckpointLost")


@plants("not in the order of acceptance")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted[0], lane.accepted[1] = lane.accepted[1], lane.accepted[0]


@plants("not in the order of the client's calls")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted[2], lane.accepted[3] = lane.accepted[3], lane.accepted[2]


@plants("broken chain of digests")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    entry = bytearray(lane.epochs[0][3])
    entry[-2] ^= 1
    lane.epochs[0][3] = bytes(entry)


@plants("orphan tool result")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _rewrite(lane, lambda messages: messages[3]["parts"].pop(0))


@plants("orphan tool call")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _rewrite(lane, lambda messages: messages[4]["parts"].pop(0))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _rewrite(lane, lambda messages: messages[1]["parts"][0].update(content="t1: another answer"))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A message of the cancelled turn has come in."""
    prompt = {"part_kind": "user-prompt", "content": Plan("t4", [["fetch"]]).to_prompt()}
    _rewrite(lane, lambda messages: messages.append({"kind": "request", "run_id": "t4", "parts": [prompt]}))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Two turns have changed places."""
    _rewrite(lane, lambda messages: messages.extend([messages.pop(0), messages.pop(0)]))


@plants("no head")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head = {}


@plants("head's version")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["v"] = b"4"


@plants("head's length")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.epochs[0].append(encode(b'{"kind": "request", "parts": []}', lane.epochs[0][-1][:16]))


@plants("head's digest")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["d"] = lane.epochs[0][0][:16].hex().encode()


@plants("head's turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["t"] = b"t2"


@plants("record's checkpoint")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(lane, "t1", checkpoint=(0, 2, "00" * 16))


@plants("output is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(lane, "t2", output_in_history=False, output='"another"')


@plants("staged entries left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.stages.append("t4:0")


@plants("data of an ended turn left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.unfinished.append("t4")
    lane.ttl["turn:t4"] = 1000


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.unfinished.append("t6")
    lane.ttl["turn:t6"] = -1


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.epochs[1], lane.ttl["epoch:1"] = [], -1


@plants("committed data with a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.ttl["epoch:0"] = 1000


@plants("event after the turn's end")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events.append(["text.delta", "t1", 0, 1, {"text": "late"}])


@plants("not one end on the stream")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events.append(["turn.committed", "t1", 0, 1])


@plants("not one end on the stream")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events = [event for event in lane.events if event[:2] != ["turn.failed", "t3"]]


def _again(evidence: Evidence, kind: str, after: str) -> None:
    """A second attempt at a step makes a call once more; it began to load after a line of that kind."""
    known = _work(evidence, kind, "t2")
    safe = next(line for line in evidence.workers["w"] if line["k"] == "staged" and line["name"].startswith(after))
    who = {"turn": "t2", "step": known["step"], "attempt": 2, "load": 1}
    evidence.workers["w2"] = [
        {"k": "load", "t": safe["t"] + 2, "begun": safe["t"] + 1, **who},
        {**known, **who, "t": safe["t"] + 3},
    ]


@plants("model call repeated")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _again(evidence, "model", "s0")


@plants("tool call repeated")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _again(evidence, "tool", "j1:t2.0.0")


@plants("called for an ended turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _again(evidence, "model", "s0")
    for line in evidence.workers["w2"]:
        line.update(step=9, begun=2**40)


@plants("called outside of an attempt")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del _work(evidence, "model", "t1")["load"]


@plants("called for another turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _work(evidence, "tool", "t2")["run"] = "t1"


@plants("tool given another call's arguments")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _work(evidence, "tool", "t2")["call"] = "t2.0.1"


@plants("model was not asked the serial history")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _work(evidence, "model", "t5")["asked"] = "0"


# Delegated work ---------------------------------------------------------------------------------------------------


def _child(evidence: Evidence, call: str) -> LaneLeft:
    return next(lane for name, lane in evidence.lanes.items() if name.startswith(f"child-{call}/"))


def _name(lane: LaneLeft, turn: str, place: int, **changed: Any) -> None:
    """Have a parent's record name one of its children otherwise."""
    children = list(lane.records[turn].children)
    children[place] = replace(children[place], **changed)
    _change(lane, turn, children=tuple(children))


def _run_of(evidence: Evidence, call: str) -> int:
    return next(at for at, run in enumerate(evidence.runs) if run.lane.startswith(f"child-{call}/"))


@plants("child without a parent")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    _change(team, "u1", children=team.records["u1"].children[1:])


@plants("child of two parents")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    _change(team, "u3", children=(*team.records["u3"].children, team.records["u1"].children[0]))


@plants("child twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """One piece of work, done on two lanes."""
    team, child = evidence.lanes[TEAM], _child(evidence, "u1.0.0")
    turn = replace(child.records["turn-u1.0.0"], turn="again")
    evidence.lanes["child-again/reader"] = replace(child, name="child-again/reader", records={"again": turn})
    named = replace(team.records["u1"].children[0], lane="child-again/reader", turn="again")
    _change(team, "u1", children=(*team.records["u1"].children, named))


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
    _change(_child(evidence, "u1.0.0"), "turn-u1.0.0", prompt="0")


@plants("child of another turn's work")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    team = evidence.lanes[TEAM]
    first, second = team.records["u1"].children, team.records["u2"].children
    _change(team, "u1", children=(second[0], *first[1:]))
    _change(team, "u2", children=(first[0], *second[1:]))


@plants("child of another delegate")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _name(evidence.lanes[TEAM], "u1", 0, delegate="scribe")


@plants("child of another delegate")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _name(evidence.lanes[TEAM], "u1", 0, kept="reader-1")


@plants("child cancelled by nobody")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(_child(evidence, "u2.0.0"), "turn-u2.0.0", outcome="cancelled")


@plants("failed without a reason")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """For want of a budget that nobody set."""
    _change(_child(evidence, "u1.0.0"), "turn-u1.0.0", outcome="failed", error="BudgetExceeded")


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(_child(evidence, "u2.0.0"), "turn-u2.0.0", outcome="committed")


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A turn whose work failed that was to fail with it."""
    submit = _line(evidence, "submit", "u2")
    submit["prompt"] = submit["prompt"].replace("delegate_to_reader", "delegate_to_strict")


@plants("child's outcome is not what was told")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(_child(evidence, "u2.0.0"), "turn-u2.0.0", message="another")


@plants("child's outcome is not what was told")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A child that was stopped is nothing to go on with."""
    _change(_child(evidence, "u1.0.0"), "turn-u1.0.0", outcome="cancelled")


@plants("budget exceeded")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Two requests of the turn's own, and one of each child."""
    _line(evidence, "submit", "u2")["budget"] = 3


@plants("child's history left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _child(evidence, "u3.0.0").head["v"] = b"1"


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _child(evidence, "u3.0.0").ttl["turns"] = -1


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


# Answers and steering -------------------------------------------------------------------------------------------------


def _given(evidence: Evidence, said: str) -> dict[str, Any]:
    return next(line for line in evidence.answers if line.get("said") == said)


@plants("two answers counted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "ok"


@plants("answer that did not count")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "ok"
    _given(evidence, "ok")["said"] = "already"


@plants("wrong answer accepted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "unknown")["said"] = "ok"


@plants("right answer refused")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "invalid"


@plants("refused though it was first")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.answers = [line for line in evidence.answers if line["give"] == 3]


@plants("result from nowhere")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.answers = []


@plants("undocumented error")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "RuntimeError: event loop is closed"


@plants("told in two ways")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    asked = [line for line in evidence.workers["w"] if line["k"] == "model" and line["turn"] == "u1"]
    asked[1]["outside"] = {"results": {"u1.0.2": ["denied", "no"]}, "steered": {}}


@plants("steered out of order")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    accepted = evidence.lanes[TEAM].accepted
    accepted[-1], accepted[-2] = accepted[-2], accepted[-1]


@plants("steered otherwise than its record says")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(evidence.lanes[TEAM], "u4", taken=evidence.lanes[TEAM].records["u4"].taken[:1])


@plants("steered not one turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Taken in, and a turn of its own as well."""
    _change(evidence.lanes[TEAM], "s1", into=None)


@plants("steered not one turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del evidence.lanes[TEAM].records["s2"]


@plants("steered what came to nothing")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(evidence.lanes[TEAM], "u3", taken=evidence.lanes[TEAM].records["u4"].taken)


@plants("steered twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line = [one for one in evidence.workers["w"] if one["k"] == "model" and one["turn"] == "u4"][-1]
    line["outside"]["steered"]["1"] *= 2


@plants("steered by what was not to")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _line(evidence, "submit", "s1")["busy"] = "enqueue"


@plants("record's checkpoint")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _change(evidence.lanes[TEAM], "s1", checkpoint=(0, 2, "00" * 16))


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
    _again(evidence, "model", "s0")
    first = _work(evidence, "load", "t2")
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
