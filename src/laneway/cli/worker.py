"""`laneway worker`: runs an application's agents until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.failures import DEBUG_VARIABLE
from laneway.cli.frames import own_line
from laneway.cli.output import announce
from laneway.cli.places import locate
from laneway.cli.signals import stop_signals
from laneway.errors import ServiceUnavailable

if TYPE_CHECKING:
    from laneway.app import Laneway
    from laneway.settings import Settings

__all__ = ["log_to_stderr", "serve", "work"]


async def work(target: str, *, data_dir: Path, as_json: bool) -> None:
    """Run a worker on the servers of a running `laneway dev`, or on those that the settings name."""
    parsed = AppTarget.parse(target)
    app = load_app(parsed)
    log_to_stderr()
    async with stop_signals() as stop:
        place = await locate(data_dir)
        try:
            await serve(app, place.settings, stop, target=parsed, as_json=as_json)
        except ServiceUnavailable as error:
            raise place.explain(error) from error
    announce("worker.stopped", "worker stopped", as_json=as_json, pid=os.getpid())


async def serve(app: Laneway, settings: Settings, stop: asyncio.Event, *, target: AppTarget, as_json: bool) -> None:
    """Run a worker until `stop` is set, then let its steps finish or hand them over."""
    async with app.worker(settings):
        agents = sorted(app.agents)
        announce(
            "worker.ready",
            f"worker ready  {', '.join(agents)} (pid {os.getpid()}, queue {settings.task_queue!r}); "
            f"try: laneway chat {target.text} {agents[0]}",
            as_json=as_json,
            pid=os.getpid(),
            agents=agents,
            task_queue=settings.task_queue,
            temporal_address=settings.temporal_address,
            redis_address=settings.redis_address,
        )
        await stop.wait()


def log_to_stderr() -> None:
    """Show warnings: of the application, and of turns that fail. Unless it was set up by the application already."""
    debug = bool(os.environ.get(DEBUG_VARIABLE))
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter((logging.Formatter if debug else _Brief)("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    if not debug:
        # The SDK warns of each attempt at a step that is tried again.
        logging.getLogger("temporalio").setLevel(logging.ERROR)


class _Brief(logging.Formatter):
    """One line for an error: what it says, and the user's own line that it came from."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        brief = copy(record)
        brief.exc_info = brief.exc_text = brief.stack_info = None
        line = super().format(brief)
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return line
        where = own_line(error)
        return f"{line}: {type(error).__name__}: {error}{f' ({where})' if where else ''}"
