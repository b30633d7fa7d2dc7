"""How much of everything there is to do, and how much time there is for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from laneway import Settings

__all__ = ["FULL", "LONG", "SMOKE", "Clock", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """How often and how much. Turns are of one lane unless it says otherwise."""

    latency_runs: int
    latency_turns: int
    crowd_runs: int
    crowd_lanes: int
    crowd_turns: int
    tool_runs: int
    tool_turns: int
    fan_parents: int
    fan_children: int
    deltas: int
    imports: int
    kills: int
    heartbeat_seconds: float
    memory_lanes: int
    memory_turns: int
    idle_lanes: int
    long_messages: int
    long_bytes: int
    long_pairs: int
    editing_messages: int
    editing_runs: int
    growth_turns: dict[str, int]
    growth_runs: int
    endless_turns: int


FULL = Sizes(
    latency_runs=5,
    latency_turns=40,
    crowd_runs=3,
    crowd_lanes=50,
    crowd_turns=6,
    tool_runs=5,
    tool_turns=15,
    fan_parents=20,
    fan_children=10,
    deltas=40,
    imports=7,
    kills=5,
    heartbeat_seconds=Settings.model_fields["heartbeat_timeout"].default.total_seconds(),
    memory_lanes=100,
    memory_turns=50,
    idle_lanes=1000,
    long_messages=10_000,
    long_bytes=10_000_000,
    long_pairs=21,
    editing_messages=10_000,
    editing_runs=3,
    growth_turns={
        "laneway": 1000,
        "durability": 200,
        "durability-continued": 800,
        "dbos": 500,
        "plain": 500,
        "laneway-graph": 500,
        "saver-laneway": 500,
        "saver-memory": 500,
        "saver-sqlite": 500,
        "saver-plainredis": 500,
    },
    growth_runs=3,
    endless_turns=1000,
)

# What takes longer than a quarter of an hour.
LONG = replace(FULL, idle_lanes=10_000, growth_runs=1, endless_turns=10_000)

SMOKE = Sizes(
    latency_runs=1,
    latency_turns=3,
    crowd_runs=1,
    crowd_lanes=5,
    crowd_turns=1,
    tool_runs=1,
    tool_turns=3,
    fan_parents=3,
    fan_children=6,
    deltas=2,
    imports=1,
    kills=1,
    heartbeat_seconds=1,
    memory_lanes=4,
    memory_turns=6,
    idle_lanes=5,
    long_messages=200,
    long_bytes=200_000,
    long_pairs=1,
    editing_messages=200,
    editing_runs=1,
    growth_turns=dict.fromkeys(FULL.growth_turns, 12),
    growth_runs=1,
    endless_turns=12,
)


@dataclass
class Clock:
    """The time for the whole bench, and what was left out for want of it.

    Attributes:
        seconds: how much there is.
        skipped: what was left out.
    """

    seconds: float
    skipped: list[str] = field(default_factory=list[str])
    _begun: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        return self.seconds - self.elapsed

    def has(self, seconds: float, what: str) -> bool:
        """Whether there is so much time; where not, `what` is noted as left out."""
        if self.left >= seconds:
            return True
        self.skipped.append(what)
        print(f"  left out for want of time: {what}", flush=True)
        return False
