"""The worker processes: so many seats, and in each one process after another."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path

from laneway import Settings
from laneway.processes import ChildProcess

from tests.chaos.ledger import read_ledger

__all__ = ["ROOT", "Crew", "spawn"]

ROOT = Path(__file__).parents[2]


def spawn(settings_path: Path, ledger: Path, log: Path, *held: str) -> ChildProcess:
    """Start a worker process; `held` is where it is to stand still, and the file that lets it go on."""
    argv = [sys.executable, "-m", "tests.chaos.worker", str(settings_path), str(ledger), *held]
    return ChildProcess(argv, log_path=log, cwd=ROOT)


class Crew:
    """Workers of one run.

    Args:
        data: where their settings, ledgers and logs are.
        settings: theirs.
        size: how many there are.
    """

    def __init__(self, data: Path, settings: Settings, size: int) -> None:
        self._data = data
        self._settings_path = data / "settings.json"
        self._settings_path.write_text(settings.model_dump_json())
        self._numbers = count(1)
        self._ledgers: list[Path | None] = [None] * size
        self.seats: list[ChildProcess | None] = [None] * size
        (data / "logs").mkdir(parents=True, exist_ok=True)

    def start(self, seat: int) -> None:
        """Start a process in a seat, in place of one that may still run there."""
        self.kill(seat)
        name = f"worker-{next(self._numbers)}"
        ledger = self._data / "workers" / f"{name}.jsonl"
        self._ledgers[seat] = ledger
        self.seats[seat] = spawn(self._settings_path, ledger, self._data / "logs" / f"{name}.log")

    def pid(self, seat: int) -> int | None:
        """The process in a seat, where it runs."""
        child = self.seats[seat]
        return None if child is None or child.exit_code is not None else child.pid

    def kill(self, seat: int) -> None:
        """SIGKILL."""
        child = self.seats[seat]
        if child is not None:
            child.kill()

    async def stop(self, seat: int) -> None:
        """SIGTERM, and SIGKILL where that takes too long."""
        child = self.seats[seat]
        if child is not None:
            await child.stop(grace=timedelta(seconds=15))

    async def revive(self) -> None:
        """Have a process in each seat, and wait until each is ready."""
        for seat, child in enumerate(self.seats):
            if child is None or child.exit_code is not None:
                self.start(seat)
        while True:
            ready = 0
            for seat, ledger in enumerate(self._ledgers):
                child = self.seats[seat]
                if child is not None and child.exit_code is not None:
                    # It could not connect when it started, since a server was down.
                    self.start(seat)
                elif ledger is not None and ledger.exists():
                    ready += any(line["k"] == "ready" for line in read_ledger(ledger))
            if ready == len(self.seats):
                return
            await asyncio.sleep(0.1)

    async def tend(self) -> None:
        """Start workers again that ended by themselves, as a supervisor would, until this is cancelled."""
        while True:
            await asyncio.sleep(0.5)
            for seat, child in enumerate(self.seats):
                # A fault's own restart comes first; it leaves the seat with a process that was killed.
                if child is not None and (child.exit_code or 0) > 0:
                    self.start(seat)

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(seat) for seat in range(len(self.seats))))
