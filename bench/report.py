"""Figures: how they are summed up, and written down."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Table:
    """One table of figures.

    Attributes:
        title: what is measured.
        columns: the names of the columns; the first is that of the rows.
        rows: the cells, text or numbers.
        note: how to read it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""

    def to_markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += [_line(self.columns), _line(["---"] * len(self.columns))]
        return "\n".join([*lines, *(_line([_cell(value) for value in row]) for row in self.rows), ""])


@dataclass
class Report:
    """What one measuring module found."""

    name: str
    is_smoke: bool
    tables: list[Table] = field(default_factory=list[Table])
    text: str = ""

    def write(self, folder: Path = RESULTS) -> None:
        """Write `<name>.json` and `<name>.md`."""
        folder.mkdir(exist_ok=True)
        whole = asdict(self) | {"machine": machine()}
        (folder / f"{self.name}.json").write_text(json.dumps(whole, indent=1) + "\n")
        (folder / f"{self.name}.md").write_text(self.to_markdown())

    def to_markdown(self) -> str:
        size = "A small run, only to see that it works: its figures mean little.\n\n" if self.is_smoke else ""
        text = f"```\n{self.text.rstrip()}\n```\n" if self.text else ""
        tables = "\n".join(table.to_markdown() for table in self.tables)
        return f"# {self.name}\n\n{size}{machine()}\n\n{tables}{text}"


def machine() -> str:
    """What it was measured on, without its name."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"


def median_ms(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1000, 3)


def spread_ms(seconds: Sequence[float]) -> str:
    """The 10th and the 90th percentile."""
    ordered = sorted(seconds)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{low * 1000:.2f} to {high * 1000:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
