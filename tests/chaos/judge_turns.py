"""Judges outcomes: each accepted turn ended exactly once, as its clients were told, in order, for a reason it had."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft, Record, Violation
from tests.chaos.script import TEAMS, Plan, briefs, play
from tests.chaos.tree import prompt_digest

__all__ = ["NEVER", "Seen", "judge_turns", "seen_turns"]

Line = dict[str, Any]

NEVER = sys.maxsize
"""Later than any time or place."""


@dataclass
class Seen:
    """All that clients did with a turn and saw of it.

    Attributes:
        submits: each call to submit it, by number; `end` is the line with what came of the call first, if any did.
    """

    turn: str
    lane: str = ""
    submits: dict[int, Line] = field(default_factory=dict[int, Line])
    ends: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list))
    cancels: list[Line] = field(default_factory=list[Line])

    @property
    def accepted(self) -> list[Line]:
        """The lines that say that it was accepted."""
        return [line for lines in self.ends.values() for line in lines if line["k"] == "accepted"]

    @property
    def prompts(self) -> set[str]:
        """The prompts that were accepted, or may have been: where a call's answer was lost."""
        return {
            call["prompt"]
            for number, call in self.submits.items()
            if not any(line["k"] in ("busy", "conflict") for line in self.ends[number])
        }


def seen_turns(evidence: Evidence) -> dict[str, Seen]:
    """What clients saw, by turn."""
    turns: dict[str, Seen] = {}
    for line in evidence.callers:
        turn = turns.setdefault(line["turn"], Seen(line["turn"]))
        if line["k"] == "submit":
            turn.lane = f"{line['conversation']}/{line['agent']}"
            turn.submits[line["call"]] = line
        elif line["k"] in ("cancel", "cancel_answer"):
            turn.cancels.append(line)
        else:
            turn.ends[line["call"]].append(line)
    return turns


def judge_turns(evidence: Evidence) -> Iterator[Violation]:
    turns = seen_turns(evidence)
    interrupted = {
        turn.lane for turn in turns.values() if any(call["busy"] == "interrupt" for call in turn.submits.values())
    }
    for lane in evidence.lanes.values():
        yield from _records(lane, turns)
        yield from _acceptance(lane)
    for turn in turns.values():
        lane = evidence.lanes.get(turn.lane, LaneLeft(turn.lane, ""))
        record = lane.records.get(turn.turn)
        yield from _outcome(turn, record)
        yield from _answers(turn, record, lane)
        yield from _cancels(turn, record)
        if record is not None:
            yield from _reason(turn, record, lane, interrupted=turn.lane in interrupted)
        if any(line["k"] == "accepted" for line in _lines(turn)) and turn.turn not in {one[0] for one in lane.accepted}:
            yield Violation("accepted without an event", turn.turn, "Temporal has no accepted update of it")
    yield from _source_order(evidence, turns)


def _lines(turn: Seen) -> Iterator[Line]:
    for lines in turn.ends.values():
        yield from lines


def _records(lane: LaneLeft, turns: dict[str, Seen]) -> Iterator[Violation]:
    numbers = sorted(record.number for record in lane.records.values())
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation("numbers of ended turns", lane.name, f"they are {numbers}")
    for turn in lane.records:
        if not lane.is_child and (turn not in turns or turns[turn].lane != lane.name):
            yield Violation(
                "record of an unknown turn", turn, f"lane {lane.name} has one, no client submitted it there"
            )
    for turn, _, _ in lane.accepted:
        if turn not in lane.records:
            yield Violation("lost turn", turn, f"accepted by the workflow of {lane.name}, never ended")


def _outcome(turn: Seen, record: Record | None) -> Iterator[Violation]:
    if turn.accepted and record is None:
        yield Violation("lost turn", turn.turn, "a client was told that it is accepted; it has no record")
    if record is None:
        return
    possible = {prompt_digest(prompt, turn.lane.rpartition("/")[2]) for prompt in turn.prompts}
    if record.prompt not in possible:
        yield Violation("ended without being accepted", turn.turn, "each call that had its prompt was refused")
    told = {call["prompt"] for n, call in turn.submits.items() if any(e["k"] == "accepted" for e in turn.ends[n])}
    if len(told) > 1:
        yield Violation("two prompts under one id", turn.turn, f"{len(told)} prompts were accepted")


def _answers(turn: Seen, record: Record | None, lane: LaneLeft) -> Iterator[Violation]:
    last = {(call["which"], call["prompt"]): number for number, call in sorted(turn.submits.items())}
    for number in last.values():
        kinds = [line["k"] for line in turn.ends[number]]
        if not {"answer", "busy", "conflict", "surprise"} & set(kinds):
            yield Violation("client without an answer", turn.turn, f"call {number} ended with {kinds}")
    for line in _lines(turn):
        if line["k"] == "surprise":
            yield Violation("undocumented error", turn.turn, line["error"])
        if line["k"] != "answer" or record is None:
            continue
        if turn.submits[line["call"]]["prompt"] and line["outcome"] != record.outcome:
            yield Violation("answer and record differ", turn.turn, f"{line['outcome']} and {record.outcome}")
        elif record.outcome == "failed" and line.get("error") != record.error:
            yield Violation("answer and record differ", turn.turn, f"{line.get('error')} and {record.error}")
        elif record.outcome == "committed" and line.get("steps") != record.steps:
            yield Violation("answer and record differ", turn.turn, f"{line.get('steps')} and {record.steps} steps")
    first_accepted = min((line["t"] for line in turn.accepted), default=None)
    own = {turn.submits[line["call"]]["prompt"] for line in turn.accepted}
    if not own:
        own = {call["prompt"] for call in turn.submits.values() if Plan.from_prompt(call["prompt"]).other is False}
    if len(own) > 1:
        yield Violation("two prompts accepted", turn.turn, f"{len(own)} prompts")
    for number, call in turn.submits.items():
        for line in turn.ends[number]:
            if line["k"] == "busy" and first_accepted is not None and call["t"] > first_accepted:
                yield Violation("known turn called busy", turn.turn, f"call {number} came after its acceptance")
            # Refused as busy, the first prompt leaves its id free: then the one that is accepted is the turn's own.
            if line["k"] == "conflict" and call["prompt"] in own:
                yield Violation("its own prompt called a conflict", turn.turn, f"call {number}")


def _cancels(turn: Seen, record: Record | None) -> Iterator[Violation]:
    asked = {line["call"] for line in turn.cancels if line["k"] == "cancel"}
    answered = {line["call"]: line for line in turn.cancels if line["k"] == "cancel_answer"}
    excused = {line["call"] for line in _lines(turn) if line["k"] in ("unavailable", "surprise")}
    if waiting := asked - answered.keys() - excused:
        yield Violation("cancel without an answer", turn.turn, f"calls {sorted(waiting)}")
    expected = {"committed": "already_committed", "failed": "already_failed", "cancelled": "cancelled"}
    first_heard = min((line["t"] for line in turn.accepted), default=None)
    for line in answered.values():
        # Each was asked after the turn's acceptance, or after its refusal: submitted again, it may be accepted then,
        # and was unknown all the same when the cancellation was answered, while that submit was on its way, say.
        right = expected[record.outcome] if record is not None else "unknown"
        early = first_heard is not None and line["t"] < first_heard
        if line["answer"] != right and not (early and line["answer"] == "unknown"):
            yield Violation("cancel's answer and record differ", turn.turn, f"{line['answer']}, not {right}")


def _reason(turn: Seen, record: Record, lane: LaneLeft, *, interrupted: bool) -> Iterator[Violation]:
    calls = [call for call in turn.submits.values() if prompt_digest(call["prompt"], call["agent"]) == record.prompt]
    if not calls or record.into is not None:
        return
    if record.outcome == "cancelled":
        if not turn.cancels and not interrupted:
            yield Violation("cancelled by nobody", turn.turn, f"on {lane.name}")
        return
    played = play(calls[0]["prompt"], after="", validates=lane.agent == "careful")
    if record.outcome == "committed" and played.failed is not None:
        yield Violation("committed though it fails", turn.turn, played.failed)
    if record.outcome == "failed":
        has_budget = any(call.get("budget") is not None for call in calls)
        possible = {
            played.failed,
            "TurnTimedOut" if any(call["timeout"] for call in calls) else None,
            "BudgetExceeded" if has_budget else None,
            "DelegationFailed" if _work_may_fail(calls[0], lane.agent, or_else=has_budget) else None,
        } - {None}
        if record.error not in possible:
            yield Violation(
                "failed without a reason", turn.turn, f"{record.error}; possible: {sorted(map(str, possible))}"
            )


def _work_may_fail(call: Line, agent: str, *, or_else: bool) -> bool:
    """Whether a turn hands out work that may fail, and the turn with it: by its plan, or for want of budget."""
    for delegate, _, brief in briefs(call["prompt"]):
        known = TEAMS.get(agent, {}).get(delegate)
        if known is not None and known.fails_turn and (or_else or Plan.from_prompt(brief).fail):
            return True
    return False


# Order ----------------------------------------------------------------------------------------------------------------


def _acceptance(lane: LaneLeft) -> Iterator[Violation]:
    """Committed in the order of acceptance, but for turns that interrupt or steer: they go before those that wait."""
    latest = 0
    for turn, busy in _first_acceptances(lane).items():
        record = lane.records.get(turn)
        if record is None or record.outcome != "committed":
            continue
        if busy not in ("interrupt", "steer") and record.number < latest:
            yield Violation("not in the order of acceptance", turn, f"{record.number} on {lane.name}, after {latest}")
        latest = max(latest, record.number)


def _first_acceptances(lane: LaneLeft) -> dict[str, str]:
    found: dict[str, str] = {}
    for turn, _, busy in lane.accepted:
        found.setdefault(turn, busy)
    return found


def _source_order(evidence: Evidence, turns: dict[str, Seen]) -> Iterator[Violation]:
    """Accepted in the order of one client's calls: where the call that was accepted came before the other's first."""
    places = {
        name: {turn: place for place, turn in enumerate(_first_acceptances(lane))}
        for name, lane in evidence.lanes.items()
    }
    by_caller: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for turn in turns.values():
        own = {number: call for number, call in turn.submits.items() if call["which"] == "first"}
        told = [n for n in own if any(line["k"] == "accepted" for line in turn.ends[n])]
        if not told:
            continue
        first_told = min(line["t"] for n in told for line in turn.ends[n] if line["k"] == "accepted")
        overtaken = any(call["which"] != "first" and call["t"] < first_told for call in turn.submits.values())
        caller = own[told[0]]["caller"]
        # Where another client had it accepted meanwhile, its place says nothing of this client's order.
        begins = NEVER if overtaken else min(own)
        by_caller[(turn.lane, caller)].append((begins, min(told), turn.turn))
    for (lane, _), found in by_caller.items():
        place = places.get(lane, {})
        for begins, _, later in found:
            for _, told, earlier in found:
                if told < begins < NEVER and place.get(earlier, -1) > place.get(later, NEVER):
                    yield Violation("not in the order of the client's calls", later, f"accepted before {earlier}")
