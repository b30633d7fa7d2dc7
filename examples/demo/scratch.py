"""What the demo's processes share: its own files, and the words that they know it by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from examples.demo.ledger import Gates, Ledger

__all__ = ["AGENT", "FRAMEWORK_VARIABLE", "MODEL_VARIABLE", "DemoError", "Framework", "Scratch"]

AGENT = "guide"
MODEL_VARIABLE = "LANEWAY_DEMO_MODEL"
FRAMEWORK_VARIABLE = "FRAMEWORK"


class Framework(StrEnum):
    """What the agent is written with."""

    PYDANTIC_AI = "pydantic_ai"
    LANGCHAIN = "langchain"


class DemoError(Exception):
    """The demo cannot be given; the message is one line that says what to do."""


@dataclass(frozen=True)
class Scratch:
    """The folder with the demo's own files, which its processes share."""

    folder: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.jsonl")

    @property
    def gates(self) -> Gates:
        return Gates(self.folder / "gates")

    @property
    def data_dir(self) -> Path:
        """Where the servers keep their data."""
        return self.folder / "data"
