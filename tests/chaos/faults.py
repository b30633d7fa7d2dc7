"""The damage: which process is killed, frozen or restarted, when, and for how long. Drawn from the seed beforehand."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from laneway import LocalStack
from laneway.errors import ServiceUnavailable

from tests.chaos.crew import Crew
from tests.chaos.ledger import Ledger

__all__ = ["Fault", "Faults", "draw_faults"]

Target = Literal["worker", "workers", "temporal", "valkey"]
Way = Literal["kill", "freeze", "restart"]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        gap: seconds since the one before it began.
        target, way: what happens to what.
        lasts: seconds that the process is dead or frozen.
        pick: says which worker, where it is one.
    """

    gap: float
    target: Target
    way: Way
    lasts: float
    pick: int

    @property
    def kind(self) -> str:
        return f"{self.target} {self.way}"


_WEIGHTS: dict[tuple[Target, Way], int] = {
    ("worker", "kill"): 20,
    ("worker", "freeze"): 20,
    ("worker", "restart"): 8,
    ("workers", "kill"): 6,
    ("temporal", "kill"): 10,
    ("temporal", "freeze"): 8,
    ("temporal", "restart"): 5,
    ("valkey", "kill"): 10,
    ("valkey", "freeze"): 8,
    ("valkey", "restart"): 5,
}


def draw_faults(chance: random.Random) -> Iterator[Fault]:
    """Faults without end. The first ten are one of each kind, in random order."""
    kinds = list(_WEIGHTS)
    chance.shuffle(kinds)
    while True:
        for target, way in kinds:
            yield Fault(
                # Bursts, in which faults overlap, and pauses, in which turns get on and the next fault meets them.
                gap=round(chance.uniform(0.5, 4.0) if chance.random() < 0.65 else chance.uniform(4.0, 14.0), 2),
                target=target,
                way=way,
                lasts=_duration(chance, target, way),
                pick=chance.randrange(1000),
            )
        kinds = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=10)


def _duration(chance: random.Random, target: Target, way: Way) -> float:
    if way == "restart":
        return 0.0
    if way == "freeze" and target == "worker":
        # Past the heartbeat's 2 s, so that another worker takes its steps; or not.
        return round(chance.uniform(1.0, 6.0), 2)
    # Past what the Redis client waits with its repeats of a command, or not.
    return round(chance.uniform(0.0, 5.0), 2)


class Faults:
    """Does the damage, one fault for a process at a time; faults of different processes overlap."""

    def __init__(self, stack: LocalStack, crew: Crew, ledger: Ledger) -> None:
        self._stack = stack
        self._crew = crew
        self._ledger = ledger
        self._busy: set[str] = set()
        self.done: dict[str, int] = {}

    async def run(self, plan: Iterator[Fault], until: float) -> None:
        """Do what is planned until `until` (monotonic seconds), and return once everything runs again."""
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                if time.monotonic() + fault.gap > until:
                    return
                await asyncio.sleep(fault.gap)
                victims = self._victims(fault)
                if self._busy & victims:
                    continue
                self._busy |= victims
                group.create_task(self._do(fault, victims))

    def _victims(self, fault: Fault) -> set[str]:
        if fault.target == "worker":
            return {f"worker {fault.pick % len(self._crew.seats)}"}
        if fault.target == "workers":
            return {f"worker {seat}" for seat in range(len(self._crew.seats))}
        return {fault.target}

    async def _do(self, fault: Fault, victims: set[str]) -> None:
        self._ledger.write("fault", kind=fault.kind, lasts=fault.lasts)
        begun = time.monotonic_ns()
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        try:
            if fault.target in ("worker", "workers"):
                await asyncio.gather(*(self._worker(fault, int(v.removeprefix("worker "))) for v in sorted(victims)))
            else:
                await self._server(fault)
        finally:
            self._busy -= victims
        self._ledger.write("mended", kind=fault.kind, begun=begun)

    async def _worker(self, fault: Fault, seat: int) -> None:
        if fault.way == "freeze":
            await _freeze(self._crew.pid(seat), fault.lasts)
        elif fault.way == "restart":
            await self._crew.stop(seat)
            self._crew.start(seat)
        else:
            self._crew.kill(seat)
            await asyncio.sleep(fault.lasts)
            self._crew.start(seat)

    async def _server(self, fault: Fault) -> None:
        stack, temporal = self._stack, fault.target == "temporal"
        if fault.way == "freeze":
            await _freeze(stack.pids.get(fault.target), fault.lasts)
            return
        if fault.way == "kill":
            await (stack.kill_temporal() if temporal else stack.kill_valkey())
            await asyncio.sleep(fault.lasts)
        while True:
            # On a loaded machine a server may take longer to come up than its start waits for.
            with suppress(ServiceUnavailable):
                await (stack.restart_temporal() if temporal else stack.restart_valkey())
                return


async def _freeze(pid: int | None, seconds: float) -> None:
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
