"""Plots of a run, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.arms.base import label
from bench.measures.growth import block_medians_ms
from bench.report import Report, Section, median

__all__ = ["draw"]

mpl.use("Agg")
_BLOCK = 10


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw what the run has figures for; the files written."""
    sections = {section.name: section for section in report.sections}
    plots = {
        "growth": _growth,
        "savers": _growth,
        "storage": _storage,
        "latency": _latency,
        "memory": _memory,
    }
    written: list[Path] = []
    for name, plot in plots.items():
        section = sections.get("savers" if name == "storage" else name)
        if section is None or not section.raw:
            continue
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes: Axes = figure.subplots()
        if plot(axes, section):
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=110)
            written.append(path)
    return written


def _growth(axes: Axes, section: Section) -> bool:
    run = {name: course for name, course in _last_run(section).items() if course["seconds"]}
    for name, course in run.items():
        medians = block_medians_ms(course["seconds"])
        axes.plot([_BLOCK * (at + 1) for at in range(len(medians))], medians, label=label(name), linewidth=1.4)
    axes.set(xlabel="turn", ylabel="a turn, ms (median of ten)", yscale="log", title=section.title)
    axes.grid(visible=True, which="both", alpha=0.25)
    if run:
        axes.legend(fontsize=8)
    return bool(run)


def _storage(axes: Axes, section: Section) -> bool:
    run = {name: course for name, course in _last_run(section).items() if course["stored"]}
    for name, course in run.items():
        turns = sorted(course["stored"])
        axes.plot(turns, [course["stored"][turn]["all"] / 1e6 for turn in turns], marker="o", label=label(name))
    if run:
        longest = max(run.values(), key=lambda course: len(course["stored"]))["stored"]
        own = [longest[turn]["own"] / 1e6 for turn in sorted(longest)]
        axes.plot(sorted(longest), own, linestyle=":", color="black", label="the messages' own bytes")
        axes.legend(fontsize=8)
    axes.set(xlabel="turns", ylabel="MB stored", yscale="log", title="What a conversation takes in storage")
    axes.grid(visible=True, which="both", alpha=0.25)
    return bool(run)


def _latency(axes: Axes, section: Section) -> bool:
    taken: Any = section.raw["seconds"]
    bars = [(label(name), median(seconds) * 1000) for name, seconds in taken.items() if seconds]
    bars.reverse()
    axes.barh([name for name, _ in bars], [value for _, value in bars])
    axes.set(xlabel="p50, ms", title=section.title)
    axes.grid(visible=True, axis="x", alpha=0.25)
    return bool(bars)


def _memory(axes: Axes, section: Section) -> bool:
    drawn = False
    for agent, name in (("brief", "histories that stay short"), ("agent", "histories that grow")):
        points: Any = section.raw.get(f"points of {agent}", [])
        axes.plot([count for count, _ in points], [size / 2**20 for _, size in points], label=name)
        drawn = drawn or bool(points)
    axes.set(xlabel="turns", ylabel="resident MB", title=section.title, ylim=(0, None))
    axes.legend()
    axes.grid(visible=True, alpha=0.25)
    return drawn


def _last_run(section: Section) -> Mapping[str, Any]:
    runs: Any = section.raw.get("runs", [])
    return runs[-1] if runs else {}
