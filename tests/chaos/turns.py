"""What callers wish for: random turns from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from laneway.activities.wire import WhenBusy

from tests.chaos.script import TEAMS, WAITS, Plan

__all__ = ["Wish", "draw"]


@dataclass(frozen=True)
class Wish:
    """One turn, and what is done to it.

    Attributes:
        plan: what its agent is to do.
        timeout: its timeout in seconds.
        budget: how many model requests it may make, those of its children included.
        when_busy, cancel_waiting: as for a submit.
        again: after how long it is submitted once more by another client.
        contradict: how long after its acceptance another prompt is submitted under its id.
        cancel: how long after its acceptance it is cancelled, for each time that it is.
    """

    plan: Plan
    timeout: float | None = None
    budget: int | None = None
    when_busy: WhenBusy = "enqueue"
    cancel_waiting: bool = False
    again: float | None = None
    contradict: float | None = None
    cancel: tuple[float, ...] = ()


_KINDS = {
    "plain": 26,
    "slow": 8,
    "tools": 18,
    "shy": 6,
    "redo": 6,
    "fails": 4,
    "breaks": 4,
    "flaky": 4,
    "waits": 12,
    "team": 20,
}
_BUSY: dict[WhenBusy, int] = {"enqueue": 56, "reject": 8, "interrupt": 6, "steer": 30}


def draw(chance: random.Random, turn_id: str, agent: str) -> Wish:
    """A random turn of an agent; where it has a validator, some first outputs are refused."""
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    if agent not in TEAMS and kind in ("waits", "team"):
        kind = "tools"
    busy = chance.choices(list(_BUSY), list(_BUSY.values()))[0]
    cancels = 0
    if chance.random() < 0.13:
        cancels = 2 if chance.random() < 0.3 else 1
    return Wish(
        plan=_plan(chance, turn_id, kind, agent),
        timeout=round(chance.uniform(0.3, 3.0), 2) if chance.random() < 0.1 else None,
        budget=chance.randint(1, 6) if kind == "team" and chance.random() < 0.4 else None,
        when_busy=busy,
        cancel_waiting=busy == "interrupt" and chance.random() < 0.3,
        again=round(chance.uniform(0.0, 4.0) ** 2 / 4, 3) if chance.random() < 0.15 else None,
        contradict=round(chance.uniform(0.0, 2.0), 3) if chance.random() < 0.06 else None,
        cancel=tuple(round(chance.uniform(0.0, 1.2), 3) for _ in range(cancels)),
    )


def _plan(chance: random.Random, turn_id: str, kind: str, agent: str) -> Plan:
    pace, tool_pace = round(chance.uniform(0.0, 0.3), 3), round(chance.uniform(0.0, 0.4), 3)
    rounds: list[list[str]] = []
    if kind == "slow":
        pace = round(chance.uniform(1.5, 4.0), 2)
    elif kind in ("tools", "redo"):
        rounds = [
            [chance.choice(("fetch", "count")) for _ in range(chance.randint(1, 3))]
            for _ in range(chance.randint(1, 2))
        ]
        if kind == "tools" and chance.random() < 0.2:
            tool_pace = round(chance.uniform(1.0, 3.0), 2)
    elif kind == "shy":
        rounds = [["fetch", "shy"]]
    elif kind == "breaks":
        rounds = [["fetch", "broken"]]
    elif kind == "fails" and chance.random() < 0.5:
        rounds = [["count"]]
    elif kind == "waits":
        rounds = [_waits(chance)]
        if chance.random() < 0.3:
            rounds.append(_waits(chance))
    elif kind == "team":
        return _team(chance, Plan(turn_id, pace=pace, tool_pace=tool_pace), agent)
    return Plan(
        turn_id,
        rounds,
        pace,
        tool_pace,
        fail=kind == "fails",
        redo=kind == "redo" and agent == "careful",
        flaky=kind == "flaky",
    )


def _waits(chance: random.Random) -> list[str]:
    tools = [chance.choice(WAITS) for _ in range(chance.choice((1, 1, 2, 3)))]
    return tools + ["fetch"] * (chance.random() < 0.4)


def _team(chance: random.Random, plan: Plan, agent: str) -> Plan:
    """Delegations, some beside tools that wait; of `kept` one at most in a batch."""
    rounds: list[list[str]] = []
    hands: list[dict[str, Any]] = []
    for _ in range(chance.choice((1, 1, 2))):
        names = [chance.choice(list(TEAMS[agent])) for _ in range(chance.choice((1, 2, 2, 3, 4)))]
        names = [name for at, name in enumerate(names) if name != "kept" or name not in names[:at]]
        hands += [_hand(chance, TEAMS[agent][name].agent) for name in names]
        beside = [chance.choice((*WAITS, "fetch"))] if chance.random() < 0.3 else []
        rounds.append([*(f"delegate_to_{name}" for name in names), *beside])
    return Plan(plan.id, rounds, plan.pace, plan.tool_pace, hands=hands, anew=chance.random() < 0.25)


def _hand(chance: random.Random, agent: str) -> dict[str, Any]:
    """A child's plan: it may fail, wait, or hand work on."""
    kind = chance.choices(("plain", "slow", "tools", "fails", "waits", "below"), (40, 15, 15, 10, 8, 12))[0]
    hand: dict[str, Any] = {"pace": round(chance.uniform(0.0, 0.3), 3)}
    match kind:
        case "slow":
            hand["pace"] = round(chance.uniform(1.0, 3.0), 2)
        case "tools":
            hand["rounds"] = [["fetch", "count"]]
        case "fails":
            hand["fail"] = True
        case "waits":
            hand["rounds"] = [[chance.choice(WAITS)]]
        case "below":
            hand["rounds"] = [["delegate_to_below"] * chance.randint(1, 2)]
            below = {"fail": True} if chance.random() < 0.15 else {"pace": round(chance.uniform(0.0, 1.0), 3)}
            hand["hands"] = [below for _ in hand["rounds"][0]]
        case _:
            pass
    return hand
