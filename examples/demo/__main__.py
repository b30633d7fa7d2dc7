"""`python -m examples.demo`: gives the demo, and exits with 0 if every closing figure is as it must be."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from laneway import LanewayError

from examples.demo.course import Demo
from examples.demo.figures import Figure
from examples.demo.process import CHECKOUT
from examples.demo.scratch import FRAMEWORK_VARIABLE, MODEL_VARIABLE, DemoError, Framework, Scratch
from examples.demo.timeline import Timeline

__all__ = ["main"]

_FILE_WIDTH = 120


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument(
        "--dir", type=Path, default=Path(os.environ.get("DIR") or CHECKOUT), help="the folder to ask about (or DIR=…)"
    )
    parser.add_argument(
        "--framework",
        default=os.environ.get(FRAMEWORK_VARIABLE) or Framework.PYDANTIC_AI.value,
        help=f"what the agent is written with: {' or '.join(Framework)} (or {FRAMEWORK_VARIABLE}=…)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the demo's data, and say where it is")
    parser.add_argument(
        "--json", action="store_true", help="print the closing figures as JSON; the rest goes to stderr"
    )
    # For the tests of the demo itself: the figures must find it.
    parser.add_argument("--plant", choices=["answer", "entry"], action="append", default=[], help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _framework(name: str) -> Framework:
    if name not in list(Framework):
        raise DemoError(f"{FRAMEWORK_VARIABLE}={name!r} is refused: give {' or '.join(Framework)}")
    return Framework(name)


async def _give(demo: Demo) -> list[Figure]:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # Everything is stopped on the way out; a second one makes haste.
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await demo.run()


def _report(figures: list[Figure], seconds: float) -> str:
    ok = all(figure.ok for figure in figures)
    problems = [f"{figure.title}: {figure.why or figure.shown}" for figure in figures if not figure.ok]
    values = {figure.name: figure.value for figure in figures}
    return json.dumps({"ok": ok, "seconds": round(seconds, 1), "figures": values, "problems": problems}, indent=2)


def main(argv: Sequence[str] | None = None) -> int:
    """Give the demo. Returns 0, 1 where a figure is off, 2 where it cannot be given, 130 where it was interrupted."""
    arguments = _arguments(argv)
    stream = sys.stderr if arguments.json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _FILE_WIDTH)
    timeline = Timeline(console)
    root = arguments.dir.expanduser().absolute()
    # A name that the tools leave out, in case that the folder is one that holds temporary folders.
    scratch = Scratch(Path(tempfile.mkdtemp(prefix=".laneway-demo-")))
    try:
        if not root.is_dir():
            raise DemoError(f"{str(root)!r} is no folder: give one, as in `make demo DIR=…`")
        model_name = os.environ.get(MODEL_VARIABLE) or None
        demo = Demo(
            root,
            scratch,
            model_name=model_name,
            framework=_framework(arguments.framework),
            timeline=timeline,
            faults=arguments.plant,
        )
        figures = asyncio.run(_give(demo))
    except (DemoError, LanewayError) as error:
        Console(stderr=True, highlight=False).print(f"demo: {error}", markup=False, soft_wrap=True)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        timeline.say("stopped", "interrupted; everything it had started is stopped", "bold yellow")
        return 130
    finally:
        if arguments.keep:
            console.print(f"kept: {scratch.folder}", markup=False, soft_wrap=True)
        else:
            shutil.rmtree(scratch.folder, ignore_errors=True)
    timeline.table(figures)
    if arguments.json:
        print(_report(figures, timeline.seconds))
    ok = all(figure.ok for figure in figures)
    timeline.say("", "everything is as it must be" if ok else "something is off", "bold green" if ok else "bold red")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
