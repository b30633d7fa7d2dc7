"""Evidence of what happened, and the places where the worker waits to be killed.

The ledger is one file: a line for each call that began, was kept or ended, on disk before the call goes on, so that
what a killed worker did is known. Gates are files too: the demo arms one, the first call that comes to it leaves a sign
and waits there for its death. So each kill hits its point for sure, whatever the machine's pace.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["Gate", "Gates", "Ledger", "Line", "LineKind"]

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 120.0


class LineKind(StrEnum):
    """What a line of the ledger says."""

    MODEL_STARTED = "model.started"
    MODEL_FINISHED = "model.finished"
    MODEL_STAGED = "model.staged"
    TOOL_STARTED = "tool.started"
    TOOL_FINISHED = "tool.finished"
    TOOL_KEPT = "tool.kept"


@dataclass(frozen=True)
class Line:
    """A line of the ledger.

    Attributes:
        kind: what happened.
        turn: in which turn.
        call: to which call of it: the number of the model request, or a tool call's id, name and arguments.
        pid: in which process.
        data: what else there is to know.
    """

    kind: LineKind
    turn: str
    call: str
    pid: int
    data: Mapping[str, object] = field(default_factory=dict[str, object])


class Ledger:
    """Appends lines and reads them. Safe from any thread and process: each line is one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, kind: LineKind, *, turn: str, call: str, **data: object) -> None:
        """Write a line; it is on disk when this returns."""
        text = json.dumps([kind, turn, call, os.getpid(), data]) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[Line]:
        """All lines so far."""
        if not self._path.exists():
            return []
        found = (json.loads(text) for text in self._path.read_text().splitlines())
        return [Line(LineKind(kind), turn, call, pid, data) for kind, turn, call, pid, data in found]


class Gate(StrEnum):
    """The points at which the worker is killed."""

    REQUEST = "during a model request"
    STAGED = "after an answer was staged, before its activity reported"
    TOOLS = "during a batch of tools"


class Gates:
    """Where calls wait. An armed gate holds one call, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def arm(self, gate: Gate) -> None:
        """Have the next call that comes to the gate wait there."""
        self._folder.mkdir(exist_ok=True)
        self._armed(gate).touch()

    def reached(self, gate: Gate) -> bool:
        """Whether a call has come to the gate, and waits."""
        return self._reached(gate).exists()

    async def hold(self, gate: Gate) -> None:
        """Wait for death if the gate is armed."""
        if self._take(gate):
            await asyncio.sleep(_PATIENCE_SECONDS)
            raise TimeoutError(f"nobody came to kill the worker {gate}")

    def hold_thread(self, gate: Gate) -> None:
        """`hold`, for a call that runs in a thread."""
        if self._take(gate):
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            raise TimeoutError(f"nobody came to kill the worker {gate}")

    def _take(self, gate: Gate) -> bool:
        try:
            # Of several calls that come at once, one gets it.
            self._armed(gate).rename(self._reached(gate))
        except FileNotFoundError:
            return False
        return True

    def _armed(self, gate: Gate) -> Path:
        return self._folder / f"{gate.name.lower()}.armed"

    def _reached(self, gate: Gate) -> Path:
        return self._folder / f"{gate.name.lower()}.reached"
