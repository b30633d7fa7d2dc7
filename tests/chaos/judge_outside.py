"""Judges what came to turns from outside: answers count once, children's outcomes are told as they were, and messages
steer one turn, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft, Record, Violation
from tests.chaos.judge_histories import Serial
from tests.chaos.judge_teams import expected_of
from tests.chaos.script import Plan
from tests.chaos.tree import Tree, prompt_digest

__all__ = ["judge_outside"]

Line = dict[str, Any]


def judge_outside(evidence: Evidence, tree: Tree, played: Serial) -> Iterator[Violation]:
    told = _told(evidence, played)
    yield from _answers(evidence, told)
    yield from _results(evidence, tree, played, told)
    yield from _steering(evidence, tree, played)


def _told(evidence: Evidence, played: Serial) -> dict[str, set[tuple[str, ...]]]:
    """What each call that waited came to, wherever a model or a history was told of it."""
    told: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    seen = [line["outside"]["results"] for line in _requests(evidence)]
    seen += [outside.results for outside in played.outside.values()]
    for results in seen:
        for call, result in results.items():
            told[call].add(tuple(result))
    return told


def _requests(evidence: Evidence) -> Iterator[Line]:
    for lines in evidence.workers.values():
        yield from (line for line in lines if line["k"] == "model" and "outside" in line)


def _results(
    evidence: Evidence, tree: Tree, played: Serial, told: dict[str, set[tuple[str, ...]]]
) -> Iterator[Violation]:
    answered = {line["call"] for line in evidence.answers if line["k"] == "give"}
    children = {child.call: child for child in tree.named if child.call is not None}
    for call, results in told.items():
        if len(results) > 1:
            yield Violation("told in two ways", call, f"{sorted(results)}")
        if call in children:
            expected = expected_of(children[call], played)
            if expected is None or {tuple(expected)} != results:
                yield Violation("child's outcome is not what was told", call, f"{sorted(results)}, not {expected}")
        elif call not in answered:
            yield Violation("result from nowhere", call, f"{sorted(results)}")


def _answers(evidence: Evidence, told: dict[str, set[tuple[str, ...]]]) -> Iterator[Violation]:
    """The first answer to a request counts, whoever else is told what; wrong ones are refused."""
    calls: dict[str, list[Line]] = defaultdict(list)
    for line in evidence.answers:
        if line["k"] == "surprise":
            yield Violation("undocumented error", "pending", line["error"])
        else:
            calls[line["request"]].append(line)
    for request, lines in calls.items():
        said = [line for line in lines if line["k"] == "given"]
        for line in said:
            if line["said"] not in ("ok", "already", "unknown", "invalid", "unavailable"):
                yield Violation("undocumented error", request, line["said"])
            elif line["wrong"] and line["said"] not in ("unknown", "invalid", "unavailable"):
                yield Violation("wrong answer accepted", request, f"of another {line['wrong']}: {line['said']}")
            elif not line["wrong"] and line["said"] == "invalid":
                yield Violation("right answer refused", request, f"{line['comes_to']}")
        right = [line for line in said if not line["wrong"]]
        accepted = {tuple(line["comes_to"]) for line in right if line["said"] == "ok"}
        if len(accepted) > 1:
            yield Violation("two answers counted", request, f"{sorted(accepted)}")
        cut_off = {line["give"] for line in lines} - {line["give"] for line in said if line["said"] != "unavailable"}
        unsure = {
            tuple(line["comes_to"])
            for line in lines
            if not line["wrong"] and (line["give"] in cut_off or line.get("said") == "unavailable")
        }
        call = lines[0]["call"]
        for result in told.get(call, ()):
            if result not in (accepted or unsure):
                yield Violation("answer that did not count", call, f"{result}, not {sorted(accepted or unsure)}")
        if any(line["said"] == "already" for line in right) and not accepted | unsure:
            yield Violation("refused though it was first", request, "no other answer was given")


# Steering -------------------------------------------------------------------------------------------------------------


def _steering(evidence: Evidence, tree: Tree, played: Serial) -> Iterator[Violation]:
    steers = {line["turn"] for line in evidence.callers if line["k"] == "submit" and line["busy"] == "steer"}
    for lane in evidence.lanes.values():
        for record in lane.records.values():
            yield from _taken(lane, record, played)
            if record.into is not None:
                takers = [one.turn for one in lane.records.values() if record.turn in dict(one.taken)]
                if takers != [record.into]:
                    yield Violation("steered not one turn", record.turn, f"{takers}, its record: {record.into}")
    for line in _requests(evidence):
        found = [Plan.from_prompt(text).id for texts in line["outside"]["steered"].values() for text in texts]
        if len(set(found)) < len(found):
            yield Violation("steered twice", line["turn"], f"{found}")
        if not set(found) <= steers:
            yield Violation("steered by what was not to", line["turn"], f"{sorted(set(found) - steers)}")


def _taken(lane: LaneLeft, record: Record, played: Serial) -> Iterator[Violation]:
    """Its history has what its record says, in the order of acceptance, and each of them a record of its own."""
    names = [turn for turn, _ in record.taken]
    if record.outcome == "committed" and record.into is None:
        steered = played.outside[record.turn].steered
        texts = [text for answers in sorted(steered, key=int) for text in steered[answers]]
        stored = [(Plan.from_prompt(text).id, prompt_digest(text, lane.agent)) for text in texts]
        if stored != list(record.taken):
            yield Violation("steered otherwise than its record says", record.turn, f"{stored}, {record.taken}")
    elif names:
        yield Violation("steered what came to nothing", record.turn, f"{names}")
    places = {turn: place for place, (turn, _, _) in reversed(list(enumerate(lane.accepted)))}
    order = [places.get(name, -1) for name in names]
    if order != sorted(order):
        yield Violation("steered out of order", record.turn, f"{names}")
    for name, prompt in record.taken:
        own = lane.records.get(name)
        if own is None or (own.outcome, own.prompt, own.into) != ("committed", prompt, record.turn):
            yield Violation("steered not one turn", name, f"taken by {record.turn}, its record: {own}")
        elif own.checkpoint != record.checkpoint:
            yield Violation("record's checkpoint", name, f"not that of {record.turn}")
