"""A worker process of the scripted agents, to SIGTERM: `python -m tests.chaos.worker SETTINGS LEDGER [WHERE GATE]`."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from datetime import timedelta
from pathlib import Path

import laneway.worker
from laneway import Laneway, Settings

from tests.chaos.agents import Hold, Scripted
from tests.chaos.ledger import Ledger
from tests.chaos.watched import WatchedStore


async def _work(settings: Settings, ledger: Ledger, hold: Hold | None) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    WatchedStore.ledger, WatchedStore.hold = ledger, hold
    laneway.worker.HistoryStore = WatchedStore  # type: ignore[misc]
    if hold is not None:
        # What is held is to go on to its end, and not to hear from Temporal with its first heartbeat that it is over.
        laneway.worker._HEARTBEAT_INTERVAL = timedelta(hours=1)  # pyright: ignore[reportPrivateUsage]
        settings = settings.model_copy(update={"heartbeat_timeout": timedelta(hours=5)})
    async with Laneway(agents=Scripted(ledger, hold).agents()).worker(settings):
        ledger.write("ready")
        await stop.wait()
    ledger.write("stopped")


def main(arguments: list[str]) -> None:
    settings_path, ledger_path, *held = arguments
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = Settings.model_validate(json.loads(Path(settings_path).read_text()))
    hold = Hold(held[0], Path(held[1])) if held else None  # type: ignore[arg-type]
    asyncio.run(_work(settings, Ledger(Path(ledger_path)), hold))


if __name__ == "__main__":
    main(sys.argv[1:])
