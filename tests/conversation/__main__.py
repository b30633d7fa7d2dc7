"""Hold the conversation in every way, and write the table in docs/processors.md: `python -m tests.conversation`.

An argument is the number of processes; without one there are as many as processors.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

from laneway import LocalStack, Settings
from laneway.connect import connect_redis
from laneway.history.store import HistoryStore

from tests.conversation import table
from tests.conversation.arms import ARMS, serving
from tests.conversation.talk import talk
from tests.conversation.watcher import Watcher


def row_of(settings: Settings, number: int) -> str:
    """The row of an arm, in a process of its own."""
    return asyncio.run(_row_of(settings, number))


async def _row_of(settings: Settings, number: int) -> str:
    arm, began = ARMS[number], time.monotonic()
    redis = await connect_redis(settings)
    async with serving(arm) as (adapter, server):
        store = HistoryStore(redis, prefix=uuid4().hex)
        watch = Watcher(arm, first=0)
        figures = await talk(adapter, server, store, reads=arm.reads, watch=watch)
        assert watch.book_was_known == arm.reads
    await redis.aclose()
    row = table.row(arm, figures)
    print(f"{row} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return row


async def measure(processes: int) -> list[str]:
    """The rows of all arms."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        async with LocalStack(Path(folder)) as stack:
            loop = asyncio.get_running_loop()
            rows = [loop.run_in_executor(pool, partial(row_of, stack.settings, number)) for number in range(len(ARMS))]
            return await asyncio.gather(*rows)


if __name__ == "__main__":
    table.write(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1)))
