"""What callers wish for: random turns from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from laneway.activities.wire import WhenBusy

from tests.chaos.script import Plan

__all__ = ["Wish", "draw"]


@dataclass(frozen=True)
class Wish:
    """One turn, and what is done to it.

    Attributes:
        plan: what its agent is to do.
        timeout: its timeout in seconds.
        when_busy, cancel_waiting: as for a submit.
        again: after how long it is submitted once more by another client.
        contradict: how long after its acceptance another prompt is submitted under its id.
        cancel: how long after its acceptance it is cancelled, for each time that it is.
    """

    plan: Plan
    timeout: float | None = None
    when_busy: WhenBusy = "enqueue"
    cancel_waiting: bool = False
    again: float | None = None
    contradict: float | None = None
    cancel: tuple[float, ...] = ()


def draw(chance: random.Random, turn_id: str, *, validates: bool) -> Wish:
    """A random turn; for an agent that `validates`, some first outputs are refused."""
    kind = chance.choices(
        ("plain", "slow", "tools", "shy", "redo", "fails", "breaks", "flaky"), (38, 10, 24, 8, 8, 4, 4, 4)
    )[0]
    busy: WhenBusy = chance.choices(("enqueue", "reject", "interrupt"), (84, 9, 7))[0]  # type: ignore[assignment]
    cancels = 0
    if chance.random() < 0.13:
        cancels = 2 if chance.random() < 0.3 else 1
    return Wish(
        plan=_plan(chance, turn_id, kind, validates=validates),
        timeout=round(chance.uniform(0.3, 3.0), 2) if chance.random() < 0.1 else None,
        when_busy=busy,
        cancel_waiting=busy == "interrupt" and chance.random() < 0.3,
        again=round(chance.uniform(0.0, 4.0) ** 2 / 4, 3) if chance.random() < 0.15 else None,
        contradict=round(chance.uniform(0.0, 2.0), 3) if chance.random() < 0.06 else None,
        cancel=tuple(round(chance.uniform(0.0, 1.2), 3) for _ in range(cancels)),
    )


def _plan(chance: random.Random, turn_id: str, kind: str, *, validates: bool) -> Plan:
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
    return Plan(
        turn_id,
        rounds,
        pace,
        tool_pace,
        fail=kind == "fails",
        redo=kind == "redo" and validates,
        flaky=kind == "flaky",
    )
