"""Files to which a process writes what it does before and after it does it: on disk before it goes on.

A line is a JSON object with `k`, what happened, and `t`, nanoseconds of the machine's one monotonic clock, which all
processes share and which goes on while a process is frozen.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Ledger", "read_ledger"]


class Ledger:
    """One process's file. Lines are appended whole, also by threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, /, **fields: object) -> None:
        line = json.dumps({"k": kind, "t": time.monotonic_ns(), **fields}, separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)


def read_ledger(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a ledger. A line that a SIGKILL has cut was not written."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
