"""Judges what was asked of the model and the tools: nothing that was safe was asked again, and nothing out of place.

What can be proved: a worker writes down when it begins to load a step, and when the server has answered that a result
is staged, journaled or committed. A load that began after such an answer was shown the result. So a call in an attempt
whose load began after its own result was safe is a repetition. (A call that began before, in a worker that was frozen
in between, is not: nobody could have known. What such a worker does with its answer is judged by the histories.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.chaos.evidence import Evidence, Violation
from tests.chaos.judge_histories import prompts_of
from tests.chaos.judge_turns import NEVER
from tests.chaos.script import digest, play

__all__ = ["judge_calls"]

Line = dict[str, Any]


def judge_calls(evidence: Evidence) -> Iterator[Violation]:
    answers: dict[tuple[str, int], int] = {}
    results: dict[tuple[str, int, str], int] = {}
    ends: dict[str, int] = {}
    graphs = {line["turn"] for line in evidence.callers if line["k"] == "submit" and line["agent"] == "graph"}
    for line in (line for lines in evidence.workers.values() for line in lines):
        at = line["t"]
        if line["k"] == "committed":
            _first(answers, (line["turn"], line["step"]), at)
            _first(ends, line["turn"], at)
        elif line["k"] == "aborted":
            _first(ends, line["turn"], at)
        elif line["k"] == "staged" and line["name"][0] in "ms":
            _first(answers, (line["turn"], line["step"]), at)
        elif line["k"] == "staged" and line["name"][0] == "j" and line["turn"] in graphs:
            # What a graph's tasks have written. Its model is asked in every other step, by one task.
            if line["step"] % 2 == 0:
                _first(answers, (line["turn"], line["step"]), at)
        elif line["k"] == "staged" and line["name"][0] == "j":
            _first(results, (line["turn"], line["step"], line["name"].split(":")[1]), at)
    asked = _may_be_asked(evidence)
    for process, lines in evidence.workers.items():
        begun = {line["load"]: line["begun"] for line in lines if line["k"] == "load"}
        for line in lines:
            loaded = begun.get(line.get("load", 0), 0)
            if line["k"] in ("model", "tool"):
                yield from _placed(process, line)
                if loaded > ends.get(line.get("turn", ""), NEVER):
                    yield Violation("called for an ended turn", line["turn"], f"{process}, step {line['step']}")
            if line["k"] == "model" and "load" in line:
                if loaded > answers.get((line["turn"], line["step"]), NEVER):
                    yield Violation("model call repeated", line["turn"], f"{process}, step {line['step']}")
                if line["asked"] not in asked.get(line["turn"], ()):
                    yield Violation(
                        "model was not asked the serial history", line["turn"], f"{process}, step {line['step']}"
                    )
            if line["k"] == "tool" and "load" in line:
                call = (line["turn"], line["step"], line["given"])
                if loaded > results.get(call, NEVER):
                    yield Violation("tool call repeated", line["turn"], f"{process}, {line['given']}")


def _first(known: dict[Any, int], key: object, at: int) -> None:
    known[key] = min(at, known.get(key, at))


def _placed(process: str, line: Line) -> Iterator[Violation]:
    """It belongs to an attempt at a step of its own turn."""
    if "load" not in line:
        yield Violation("called outside of an attempt", line["of"], process)
    elif line["of"] != line["turn"] or line.get("run", line["turn"]) != line["turn"]:
        yield Violation("called for another turn", line["of"], f"{process}, in turn {line['turn']}")
    elif line["k"] == "tool" and line["given"] != line["call"]:
        yield Violation("tool given another call's arguments", line["of"], f"{line['call']} under {line['given']}")


def _may_be_asked(evidence: Evidence) -> dict[str, set[str]]:
    """What the model may be asked in each turn: its own course, on top of what was committed before it ended."""
    prompts = prompts_of(evidence)
    found: dict[str, set[str]] = {}
    for lane in evidence.lanes.values():
        after = ""
        for record in sorted(lane.records.values(), key=lambda record: record.number):
            prompt = prompts.get(record.prompt)
            if prompt is None:
                continue
            played = play(prompt, after=after, validates=lane.agent == "careful")
            found[record.turn] = set(played.asked)
            if record.outcome == "committed":
                after = digest(played.messages, after)
    return found
