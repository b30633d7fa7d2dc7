"""Figures: how they are summed up, judged and written down."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = [
    "RESULTS",
    "Report",
    "Section",
    "Table",
    "Target",
    "machine",
    "median",
    "median_ms",
    "milliseconds",
    "spread_ms",
]

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
        lines = [f"### {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += [_line(self.columns), _line(["---"] * len(self.columns))]
        return "\n".join([*lines, *(_line([_cell(value) for value in row]) for row in self.rows), ""])


@dataclass(frozen=True)
class Target:
    """What was to be reached, and what was.

    Attributes:
        measure: what is measured.
        target: what was to be reached.
        figure: what was.
        met: whether it is; None where the figure tells nothing.
    """

    measure: str
    target: str
    figure: str
    met: bool | None

    @classmethod
    def at_most(cls, measure: str, limit: float, figure: float, text: str = "", *, unit: str = "") -> Target:
        return cls(measure, f"≤ {limit:g}{unit}", text or f"{figure:.3g}{unit}", figure <= limit)

    @classmethod
    def at_least(cls, measure: str, limit: float, figure: float, text: str = "", *, unit: str = "") -> Target:
        return cls(measure, f"≥ {limit:g}{unit}", text or f"{figure:.3g}{unit}", figure >= limit)


@dataclass
class Section:
    """What one measuring module found.

    Attributes:
        name: the module's.
        title: the question.
        raw: all that was measured, in seconds and bytes, for whoever wants to sum it up otherwise.
        failure: why there is nothing, or not all.
    """

    name: str
    title: str
    tables: list[Table] = field(default_factory=list[Table])
    targets: list[Target] = field(default_factory=list[Target])
    raw: dict[str, object] = field(default_factory=dict[str, object])
    failure: str = ""

    def to_markdown(self) -> str:
        words = [f"## {self.title}", ""]
        if self.failure:
            words += [f"**{self.failure}**", ""]
        return "\n".join([*words, *(table.to_markdown() for table in self.tables)])


@dataclass
class Report:
    """One run of the bench."""

    is_smoke: bool
    command: str
    sections: list[Section] = field(default_factory=list[Section])
    failures: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0

    @property
    def targets(self) -> list[Target]:
        return [target for section in self.sections for target in section.targets]

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"machine": machine()}, indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        size = "**A small run, only to see that it works: its figures mean little.**\n\n" if self.is_smoke else ""
        about = f"`{self.command}`, {self.seconds / 60:.1f} minutes. {machine()}.\n"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        sections = "\n".join(section.to_markdown() for section in self.sections)
        return (
            f"# What Laneway costs\n\n{size}{about}\n{versions}.\n\n## Targets\n\n{self.summary()}\n{self._notes()}"
            f"{sections}"
        )

    def summary(self) -> str:
        """The targets as a table."""
        rows = [["measure", "target", "measured", ""], ["---"] * 4]
        rows += [
            [target.measure, target.target, target.figure, {True: "met", False: "**missed**", None: "–"}[target.met]]
            for target in self.targets
        ]
        return "\n".join(map(_line, rows)) + "\n"

    def _notes(self) -> str:
        notes = [f"- Failed: {failure}" for failure in self.failures]
        notes += [f"- Not measured for want of time: {what}" for what in self.skipped]
        return "\n".join([*notes, "", ""]) if notes else ""


def machine() -> str:
    """What it was measured on, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}"
    return f"Python {platform.python_version()}, {system}, {os.cpu_count()} CPUs, {memory:.0f} GB"


def median(values: Sequence[float]) -> float:
    """The median; not a number where there are no values."""
    return statistics.median(values) if values else float("nan")


def milliseconds(seconds: float) -> float:
    """Rounded to three digits."""
    return float(f"{seconds * 1000:.3g}") if seconds == seconds else seconds


def median_ms(seconds: Sequence[float]) -> float:
    return milliseconds(median(seconds))


def spread_ms(seconds: Sequence[float]) -> str:
    """The 10th and the 90th percentile."""
    if not seconds:
        return "–"
    ordered = sorted(seconds)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{milliseconds(low):g} to {milliseconds(high):g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    if isinstance(value, float) and value != value:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
