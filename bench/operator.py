"""What an operator pays for turns, by arithmetic from a run's figures. Spliced into docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.arms.base import LANEWAY
from bench.report import Report, Section, Table, median

__all__ = ["MODEL_SECONDS", "bill"]

MODEL_SECONDS = 10
"""How long a model's answer takes, in the arithmetic."""

_WORKERS, _STEPS_AT_ONCE, _HEARTBEATS_A_SECOND = 1_000, 200, 2


def bill(report: Report) -> str:
    """The tables, as Markdown; empty where the run has not got what they are made from."""
    sections = {section.name: section for section in report.sections}
    traffic = sections.get("traffic")
    turns = _last_run(sections.get("growth"))
    writes: Any = sections["growth"].raw.get("temporal") if "growth" in sections else None
    tools = next((t for t in report.targets if t.measure == "the same, Temporal history bytes"), None)
    if traffic is None or not traffic.raw or not writes or not turns or tools is None:
        return ""
    one: Any = traffic.raw["turn"]
    two: Any = traffic.raw["tool_turn"]
    length, sizes = max(turns["stored"].items(), key=lambda item: int(item[0]))
    kept = sizes["all"] / int(length)
    bytes_one = median([size for _, size in writes])
    bytes_two = float(tools.figure.replace(",", ""))
    million = Table(
        "A million turns",
        ["", "one model request", "two requests and two tools"],
        [
            ["Temporal actions: one update, and an activity for each request", "2.0 million", "3.0 million"],
            [
                f"and heartbeats, where an answer takes {MODEL_SECONDS} s and the interval is 0.5 s",
                f"{MODEL_SECONDS * _HEARTBEATS_A_SECOND} million",
                f"{2 * MODEL_SECONDS * _HEARTBEATS_A_SECOND} million",
            ],
            ["Temporal history, until its retention has passed", _gb(bytes_one), _gb(bytes_two)],
            ["Redis scripts", f"{one['scripts']:.1f} million", f"{two['scripts']:.1f} million"],
            ["Redis commands besides", f"{one['commands']:.1f} million", f"{two['commands']:.1f} million"],
            ["network traffic to Redis", _gb(one["sent"]), _gb(two["sent"])],
            ["network traffic from Redis", _gb(one["received"]), _gb(two["received"])],
            ["memory kept in Redis, with replies of 2 KB", _gb(kept), "–"],
        ],
        f"Memory is that of a lane after {length} turns, divided by them. A lane costs two more actions when it is "
        "started, and one for each timer: of a turn's `timeout`, and of each `idle_timeout` that passes.",
    )
    rate = _WORKERS * _STEPS_AT_ONCE / MODEL_SECONDS
    workers = Table(
        f"{_WORKERS:,} workers",
        ["", "a second"],
        [
            ["turns of one model request", f"{rate:,.0f}"],
            ["Temporal actions without heartbeats", f"{2 * rate:,.0f}"],
            ["heartbeats, at 0.5 s", f"{_WORKERS * _STEPS_AT_ONCE * _HEARTBEATS_A_SECOND:,}"],
            ["heartbeats, at 2.5 s", f"{_WORKERS * _STEPS_AT_ONCE / 2.5:,.0f}"],
            ["Temporal history", _mb(rate * bytes_one)],
            ["Redis scripts and commands", f"{rate * (one['scripts'] + one['commands']):,.0f}"],
            ["to and from Redis", _mb(rate * (one["sent"] + one["received"]))],
            ["growth of Redis' memory", _mb(rate * kept)],
        ],
        f"Each takes {_STEPS_AT_ONCE} steps at once, and all are always taken; an answer takes {MODEL_SECONDS} s.",
    )
    return f"{million.to_markdown()}\n{workers.to_markdown()}"


def _last_run(section: Section | None) -> Mapping[str, Any]:
    runs: Any = section.raw.get("runs") if section is not None else None
    return runs[-1].get(LANEWAY, {}) if runs and runs[-1].get(LANEWAY, {}).get("stored") else {}


def _gb(bytes_a_turn: float) -> str:
    return f"{bytes_a_turn * 1e6 / 1e9:.1f} GB"


def _mb(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:,.0f} MB"
