"""Where the processor time of a turn goes: the servers', the libraries' and Laneway's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.arms.base import FLOOR, LANEWAY, LANEWAY_GRAPH, label
from bench.measures.setting import Setting, new_lane
from bench.report import Section, Table, median

__all__ = ["profile"]

_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN_LINES = 40


async def profile(setting: Setting) -> Section:
    """Processor time, and not the clock's: it is the same however busy the machine is, but for what caches do."""
    sizes = setting.sizes
    section = Section("profile", "Where a turn's time goes")
    kinds = {
        "turn": ([FLOOR, LANEWAY, LANEWAY_GRAPH], sizes.latency_turns, "one model request"),
        "tool_turn": ([FLOOR, LANEWAY], sizes.tool_turns, "two requests and two parallel tools"),
    }
    for kind, (names, turns, what) in kinds.items():
        found: dict[str, list[dict[str, float]]] = {}
        lines: dict[str, dict[str, float]] = {}
        async for name in setting.in_turn(setting.crew.present(names), sizes.latency_runs):
            before = _servers(setting.folder / "servers")
            answer = await setting.ask(name, "costs", lane=new_lane(), count=turns, kind=kind)
            if answer is None or answer["failure"]:
                continue
            after = _servers(setting.folder / "servers")
            # Its two turns of warming up are the servers' work as well.
            spent = {f"server: {server}": (after[server] - before[server]) / (turns + 2) for server in after}
            share = answer["seconds"] / turns / max(sum(answer["places"].values()), 1)
            spent |= {place: count * share for place, count in answer["places"].items()}
            found.setdefault(name, []).append(spent)
            for line, count in answer["lines"].items():
                mine = lines.setdefault(name, {})
                mine[line] = mine.get(line, 0.0) + count * share / sizes.latency_runs
        middle = {name: _medians(runs) for name, runs in found.items()}
        places = sorted(
            {place for spent in middle.values() for place in spent}, key=lambda place: (place[:6] == "server", place)
        )
        rows: list[list[object]] = [
            [place, *(round(spent.get(place, 0.0) * 1000, 2) for spent in middle.values())] for place in places
        ]
        rows.append(["all", *(round(sum(spent.values()) * 1000, 2) for spent in middle.values())])
        note = (
            f"Milliseconds of processor time a turn, worker and client in one process; {sizes.latency_runs} runs of "
            f"{turns} turns, in turn, medians. A library's share is what its own code takes, and what it has others do."
        )
        section.tables.append(Table(f"A turn with {what}", ["", *map(label, middle)], rows, note))
        section.raw[kind] = {
            "seconds": middle,
            "lines": {
                name: dict(sorted(mine.items(), key=lambda one: -one[1])[:_SHOWN_LINES]) for name, mine in lines.items()
            },
        }
    return section


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {place: median([run.get(place, 0.0) for run in runs]) for place in {place for run in runs for place in run}}


def _servers(folder: Path) -> dict[str, float]:
    """The processor time that each server has used, in seconds, by name."""
    used: dict[str, float] = {}
    for name, record in json.loads((folder / "servers.json").read_text())["servers"].items():
        fields = Path(f"/proc/{record['mark']['pid']}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return used
