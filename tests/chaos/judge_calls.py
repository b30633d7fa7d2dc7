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
from tests.chaos.judge_histories import Serial
from tests.chaos.judge_turns import NEVER
from tests.chaos.script import GRAPHS, Outside, Plan, play
from tests.chaos.tree import Tree

__all__ = ["judge_calls"]

Line = dict[str, Any]


def judge_calls(evidence: Evidence, tree: Tree, played: Serial) -> Iterator[Violation]:
    answers: dict[tuple[str, int], int] = {}
    results: dict[tuple[str, str], int] = {}
    ends: dict[str, int] = {}
    graphs = {turn for turn, agent in tree.agents.items() if agent in GRAPHS}
    asks = {
        (line["turn"], line["step"])
        for lines in evidence.workers.values()
        for line in lines
        if line["k"] == "model" and "load" in line
    }
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
            # What a graph's tasks have written. Its model is asked by one task, in a step of its own.
            if (line["turn"], line["step"]) in asks:
                _first(answers, (line["turn"], line["step"]), at)
        elif line["k"] == "staged" and line["name"][0] == "j":
            # A batch that waits is begun again in a later step.
            _first(results, (line["turn"], line["name"].split(":")[1]), at)
    for process, lines in evidence.workers.items():
        begun = {line["load"]: line["begun"] for line in lines if line["k"] == "load"}
        for line in lines:
            loaded = begun.get(line.get("load", 0), 0)
            if line["k"] in ("model", "tool"):
                yield from _placed(process, line, tree)
                if loaded > ends.get(line.get("turn", ""), NEVER):
                    yield Violation("called for an ended turn", line["turn"], f"{process}, step {line['step']}")
            if line["k"] == "model" and "load" in line:
                if loaded > answers.get((line["turn"], line["step"]), NEVER):
                    yield Violation("model call repeated", line["turn"], f"{process}, step {line['step']}")
                if line["asked"] != _to_be_asked(line, tree, played):
                    yield Violation(
                        "model was not asked the serial history", line["turn"], f"{process}, step {line['step']}"
                    )
            if line["k"] == "tool" and "load" in line:
                call = (line["turn"], line["given"])
                if loaded > results.get(call, NEVER):
                    yield Violation("tool call repeated", line["turn"], f"{process}, {line['given']}")


def _first(known: dict[Any, int], key: object, at: int) -> None:
    known[key] = min(at, known.get(key, at))


def _placed(process: str, line: Line, tree: Tree) -> Iterator[Violation]:
    """It belongs to an attempt at a step of its own turn, which for a child's plan is named otherwise."""
    if "load" not in line:
        yield Violation("called outside of an attempt", line["of"], process)
        return
    child = tree.children.get(line["turn"])
    own = line["turn"] if child is None or child.prompt is None else Plan.from_prompt(child.prompt).id
    if line["of"] != own or line.get("run", line["turn"]) != line["turn"]:
        yield Violation("called for another turn", line["of"], f"{process}, in turn {line['turn']}")
    elif line["k"] == "tool" and line["given"] != line["call"]:
        yield Violation("tool given another call's arguments", line["of"], f"{line['call']} under {line['given']}")


def _to_be_asked(line: Line, tree: Tree, played: Serial) -> str | None:
    """What a model is to be asked there: its turn's own course, on top of what was committed before it ended."""
    turn = line["turn"]
    prompt = tree.turn_prompts.get(turn)
    if prompt is None or turn not in played.before:
        return None
    after, kept = played.before[turn]
    outside = Outside(**line["outside"]) if "outside" in line else Outside()
    course = play(prompt, after=after, validates=tree.agents.get(turn) == "careful", kept=kept, outside=outside)
    return course.asked[line["answers"]] if line["answers"] < len(course.asked) else None
