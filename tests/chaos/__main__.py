"""`python -m tests.chaos`: one run and its verdict; exit code 1 where a promise was not kept."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from temporalio.runtime import Runtime, TelemetryConfig

from tests.chaos.report import check, table
from tests.chaos.run import Options, run, say_on_stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long turns are submitted and faults are made")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--callers", type=int, default=3, help="client tasks of each kind, busy and idle")
    parser.add_argument("--quiet", action="store_true", help="make no faults")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the run's files are left, also when all is well"
    )
    parser.add_argument("--check", type=Path, default=None, help="judge the files of an earlier run, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    folder = given.check or given.folder or Path(tempfile.mkdtemp(prefix="laneway-chaos-"))
    if given.check is None:
        say_on_stderr(f"seed {seed}, {given.seconds:g} s, files in {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        # The SDK's core warns of each call that it makes again.
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)))
        options = Options(seed, given.seconds, folder, given.workers, given.callers, given.quiet)
        asyncio.run(run(options, say_on_stderr))
    report = check(folder, seed=seed, seconds=given.seconds)
    print(json.dumps(report.to_json(), indent=2) if given.json else table(report))
    if report.violations:
        say_on_stderr(f"seed {seed}; what the run left is in {folder}")
    elif given.check is None and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
