"""A worker process of the scripted agents, to SIGTERM: `python -m tests.chaos.worker SETTINGS LEDGER [WHERE GATE]`."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import laneway.worker
from laneway import Laneway, Settings
from laneway.activities.steps import Steps
from laneway.activities.wire import StepOutcome

from tests.chaos.agents import Hold, Place, Scripted
from tests.chaos.ledger import Ledger
from tests.chaos.watched import WatchedStore


def _to_its_end(take: Callable[..., Awaitable[StepOutcome]]) -> Callable[..., Awaitable[StepOutcome]]:
    """Have a held attempt go on to its end, though the SDK cancels it once its process wakes."""

    async def shielded(*arguments: Any) -> StepOutcome:
        return await asyncio.shield(asyncio.ensure_future(take(*arguments)))

    return shielded


async def _work(settings: Settings, ledger: Ledger, hold: Hold | None) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    WatchedStore.ledger, WatchedStore.hold = ledger, hold
    laneway.worker.HistoryStore = WatchedStore  # type: ignore[misc]
    if hold is not None:
        steps: Any = Steps
        steps._take = _to_its_end(steps._take)
    async with Laneway(agents=Scripted(ledger, hold).agents()).worker(settings):
        ledger.write("ready")
        await stop.wait()
    ledger.write("stopped")


def main(arguments: list[str]) -> None:
    settings_path, ledger_path, *held = arguments
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings = Settings.model_validate(json.loads(Path(settings_path).read_text()))
    hold = Hold(cast("Place", held[0]), Path(held[1])) if held else None
    asyncio.run(_work(settings, Ledger(Path(ledger_path)), hold))


if __name__ == "__main__":
    main(sys.argv[1:])
