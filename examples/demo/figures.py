"""The closing figures: what was counted, what it must be, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from examples.demo.evidence import Tally, TurnCost

__all__ = ["Figure", "Measured", "closing_figures"]

# What a turn of one step may write at most. Each further step is one more activity with its workflow task, the first
# turn starts the workflow, and a process that is stopped or killed leaves a workflow task that nobody takes.
_TURN_EVENTS, _STEP_EVENTS, _FIRST_EVENTS, _KILL_EVENTS = 12, 6, 2, 6
_TURN_BYTES, _STEP_BYTES, _FIRST_BYTES, _KILL_BYTES = 2_560, 1_400, 1_000, 1_000


@dataclass(frozen=True)
class Figure:
    """One line of the closing table.

    Attributes:
        name: a word for programs.
        title: the same for readers.
        value: what was counted.
        shown: the value as text.
        rule: what it must be.
        ok: whether it is.
        why: what is wrong, where something is.
    """

    name: str
    title: str
    value: object
    shown: str
    rule: str
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class Measured:
    """All that was counted.

    Attributes:
        turns: how many turns were asked for.
        committed: how many the records in Redis say were committed.
        kills: the points at which the worker was killed.
        kills_planned: how many times it was to be.
        restarts: how often everything was stopped and started again.
        tally: what the ledger says.
        costs: what each turn cost Temporal.
        steps: how many steps each turn took, by turn id.
        disturbed: the turns during or around which a process was killed or stopped.
        texts: questions and answers that stand in Temporal's history.
        verified: digests that are right.
        tampered: what is wrong with the others.
        wrong: what is wrong with the answers, by turn id.
        lenient: whether a wrong answer is only reported, as with a real model.
    """

    turns: int
    committed: int
    kills: Sequence[str]
    kills_planned: int
    restarts: int
    tally: Tally
    costs: Sequence[TurnCost]
    steps: Mapping[str, int]
    disturbed: frozenset[str]
    texts: Sequence[str]
    verified: int
    tampered: Sequence[str]
    wrong: Mapping[str, str]
    lenient: bool


def closing_figures(m: Measured) -> list[Figure]:
    """The closing table."""
    return [*_turns(m), *_calls(m.tally, m.turns), *_temporal(m), *_history(m)]


def _must_be(name: str, title: str, value: int, *, wanted: int, why: str = "") -> Figure:
    return Figure(name, title, value, f"{value:,}", f"{wanted:,}", value == wanted, why)


def _turns(m: Measured) -> list[Figure]:
    return [
        _must_be("turns_committed", "turns committed", m.committed, wanted=m.turns),
        _must_be(
            "workers_killed", "worker killed by SIGKILL", len(m.kills), wanted=m.kills_planned, why="; ".join(m.kills)
        ),
        _must_be("stack_restarts", "stopped whole and started again", m.restarts, wanted=1),
    ]


def _calls(t: Tally, turns: int) -> list[Figure]:
    repeated = "model_calls_repeated"
    cut = f"{t.model_unfinished:,}, cut off by a kill"
    some = t.tools_finished > 0
    return [
        Figure(
            "model_calls", "model calls made", t.model_calls, f"{t.model_calls:,}", f"≥ {turns}", t.model_calls >= turns
        ),
        Figure(
            repeated,
            "… repeated",
            t.model_repeated,
            f"{t.model_repeated:,}",
            cut,
            t.model_repeated == t.model_unfinished,
        ),
        _must_be(f"{repeated}_after_staged", "… repeated after it was staged", t.model_repeated_after_staged, wanted=0),
        Figure("tool_calls_finished", "tool calls finished", t.tools_finished, f"{t.tools_finished:,}", "≥ 1", some),
        _must_be("tool_calls_repeated", "finished tool calls repeated", t.tools_finished_repeated, wanted=0),
    ]


def _temporal(m: Measured) -> list[Figure]:
    dear = [
        cost
        for index, cost in enumerate(m.costs)
        if not _within(
            cost, steps=m.steps.get(cost.turn, 0), first=index == 0, disturbed=cost.late or cost.turn in m.disturbed
        )
    ]
    why = ", ".join(f"{cost.turn}: {cost.events} events, {cost.size_bytes} bytes" for cost in dear)
    ok = len(m.costs) == m.turns and not dear
    events, sizes = [cost.events for cost in m.costs], [cost.size_bytes for cost in m.costs]
    step, name = "for one step, then", "Temporal"
    return [
        Figure(
            "temporal_events_per_turn",
            f"{name}: events a turn",
            _mean(events),
            _spread(events),
            f"≤ {_TURN_EVENTS} {step} {_STEP_EVENTS}",
            ok,
            why,
        ),
        Figure(
            "temporal_bytes_per_turn",
            f"{name}: bytes a turn",
            _mean(sizes),
            _spread(sizes),
            f"≤ {_TURN_BYTES:,} {step} {_STEP_BYTES:,}",
            ok,
            why,
        ),
        _must_be("texts_in_temporal", f"{name}: questions or answers in it", len(m.texts), wanted=0),
    ]


def _history(m: Measured) -> list[Figure]:
    sound, right = m.verified > 0 and not m.tampered, m.turns - len(m.wrong)
    rule = "reported only" if m.lenient else f"{m.turns:,}"
    why = "; ".join(f"{turn} {problem}" for turn, problem in m.wrong.items())
    return [
        Figure(
            "digests_verified",
            "digests verified in Redis",
            m.verified,
            f"{m.verified:,}",
            "all",
            sound,
            "; ".join(m.tampered),
        ),
        Figure("answers_right", "answers right", right, f"{right:,}", rule, m.lenient or not m.wrong, why),
    ]


def _within(cost: TurnCost, *, steps: int, first: bool, disturbed: bool) -> bool:
    further = max(steps - 1, 0)
    events = _TURN_EVENTS + _STEP_EVENTS * further + _FIRST_EVENTS * first + _KILL_EVENTS * disturbed
    size = _TURN_BYTES + _STEP_BYTES * further + _FIRST_BYTES * first + _KILL_BYTES * disturbed
    return cost.events <= events and cost.size_bytes <= size


def _mean(numbers: Sequence[int]) -> float:
    return round(sum(numbers) / len(numbers), 1) if numbers else 0.0


def _spread(numbers: Sequence[int]) -> str:
    return f"{_mean(numbers):,.1f} ({min(numbers):,} to {max(numbers):,})" if numbers else "none"
