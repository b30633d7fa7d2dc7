"""The worker process of `laneway dev`: `python -m laneway.cli.devworker APP DESCRIPTOR [--json]`.

A process of its own, so that each reload imports the application's code afresh. The descriptor is the reading end of a
pipe: one line of settings comes through it once the servers are up, and its end means stop, be it that `laneway dev`
closed it or that it is no more.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.failures import guarded, leave
from laneway.cli.signals import stop_signals
from laneway.cli.worker import log_to_stderr, serve

if TYPE_CHECKING:
    from laneway.app import Laneway
    from laneway.settings import Settings


def main(arguments: list[str]) -> int:
    """Run the worker. Returns the exit code: 2 where the application does not load."""
    target, descriptor, *options = arguments
    as_json = "--json" in options
    return guarded(lambda: _run(AppTarget.parse(target), int(descriptor), as_json=as_json), as_json=as_json)


def _run(target: AppTarget, descriptor: int, *, as_json: bool) -> None:
    from laneway.settings import Settings

    app = load_app(target)
    log_to_stderr()
    line = _read_line(descriptor)
    if not line:
        return
    asyncio.run(_serve(target, app, Settings.model_validate_json(line), descriptor, as_json=as_json))


async def _serve(target: AppTarget, app: Laneway, settings: Settings, descriptor: int, *, as_json: bool) -> None:
    async with stop_signals() as stop:
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, stop.set)  # nothing more is ever written: readable means closed
        try:
            await serve(app, settings, stop, target=target, as_json=as_json)
        finally:
            loop.remove_reader(descriptor)


def _read_line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(descriptor, 1)):
            return b""
        line += byte
    return line


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
