"""A JSONL file of what the server was asked and what it finished, on disk line by line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.support.provider.transcript import Json

LedgerEvent: TypeAlias = Literal["started", "request", "refused", "fault", "made", "finished", "aborted"]


class Ledger:
    """Appends events. Each line is fsynced, so it survives whatever is killed afterwards."""

    def __init__(self, path: Path, *, bodies: bool = True) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._bodies = bodies

    def write(self, event: LedgerEvent, **fields: Any) -> None:
        """Append one event with the wall-clock time."""
        if not self._bodies:
            fields.pop("body", None)
        self._file.write(json.dumps({"event": event, "at": time.time(), **fields}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_ledger(path: Path) -> Iterator[Json]:
    """The events of a ledger; a line that is still being written is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
