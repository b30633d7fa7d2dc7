"""Run the measurements one after another, and write what they found to `bench/results/`.

python -m bench                   everything, some minutes
python -m bench --smoke           each once, small
python -m bench editing turns     some of them
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench import editing, turns
from bench.report import RESULTS, Report


def saver(smoke: bool) -> Report:
    """The LangGraph saver's own bench, in a process of its own."""
    command = [sys.executable, "-m", "bench.saver", *(["--smoke"] if smoke else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(done.stderr)
    return Report("saver", smoke, text=done.stdout)


MEASUREMENTS: dict[str, Callable[[bool], Report]] = {
    "editing": lambda smoke: asyncio.run(editing.measure(smoke)),
    "turns": lambda smoke: asyncio.run(turns.measure(smoke)),
    "saver": saver,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small, only to see that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to write to")
    parser.add_argument(
        "names", nargs="*", help=f"what to measure: {', '.join(MEASUREMENTS)}; all, where none is named"
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}")
    for name in options.names or MEASUREMENTS:
        report = MEASUREMENTS[name](options.smoke)
        report.write(options.results)
        print(report.to_markdown(), flush=True)


if __name__ == "__main__":
    main()
