"""What every measuring module is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from laneway import Settings

from bench.crew import ArmFailed, Crew
from bench.plan import Clock, Sizes

__all__ = ["Setting", "Turns", "new_lane"]


@dataclass
class Setting:
    """Where and how much to measure.

    Attributes:
        crew: the arms.
        settings: the servers.
        sizes: how much.
        clock: the time.
        folder: for files.
    """

    crew: Crew
    settings: Settings
    sizes: Sizes
    clock: Clock
    folder: Path

    async def ask(self, name: str, what: str, /, **arguments: Any) -> Any:
        """Call an arm. None where it fails; that is noted."""
        if name not in self.crew:
            return None
        try:
            return await self.crew[name].call(what, **arguments)
        except ArmFailed as error:
            self.crew.note(name, f"{what}: {error}")
            return None

    async def in_turn(self, names: list[str], runs: int) -> AsyncIterator[str]:
        """Each arm that is there, over and over, in alternating order: a busy moment of the machine meets all alike."""
        for run in range(runs):
            for name in names if run % 2 == 0 else reversed(names):
                if name in self.crew:
                    yield name


@dataclass
class Turns:
    """Turns as an arm has played them: the seconds of each, and why they ended early where they did."""

    seconds: list[float]
    failure: str | None

    @classmethod
    def of(cls, answer: Any) -> Turns:
        return cls([], "the arm is missing") if answer is None else cls(answer["seconds"], answer["failure"])


def new_lane() -> str:
    return uuid4().hex[:12]
