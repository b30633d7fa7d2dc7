"""One run: servers, workers, callers and faults for a while; then rest, and the files for the checker."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from laneway import Laneway, LanewayClient, LocalStack

from tests.chaos.agents import Scripted
from tests.chaos.answerers import Answerer
from tests.chaos.callers import Board, Caller
from tests.chaos.collect import collect
from tests.chaos.crew import Crew
from tests.chaos.faults import Faults, draw_faults
from tests.chaos.ledger import Ledger, read_ledger

__all__ = ["Options", "run"]

_DRAIN_S = 180.0
_SETTINGS = {
    "redis_prefix": "chaos",
    "task_queue": "chaos",
    "heartbeat_timeout": timedelta(seconds=2),
    "idle_timeout": timedelta(seconds=1),
    "max_turns_per_run": 5,
    "min_run_time": timedelta(0),
    "events_max_length": 1_000_000,
    "events_turns": 1_000_000,
}


@dataclass(frozen=True)
class Options:
    """What a run is made of.

    Attributes:
        seed: of all that is random.
        seconds: how long turns are submitted and faults are made.
        folder: where its files go.
        workers: how many worker processes there are.
        callers: how many client tasks of each kind, busy and idle.
        quiet: no faults.
    """

    seed: int
    seconds: float
    folder: Path
    workers: int = 2
    callers: int = 3
    quiet: bool = False


async def run(options: Options, say: Callable[[str], None]) -> None:
    """Run, and leave all that the checker reads in the folder.

    Returns also where turns are left without an end: that is for the checker to find.
    """
    folder = options.folder
    log = (folder / "callers.log").open("a")
    # Calls that are cut off while a server is away leave futures behind that nobody asks any more.
    asyncio.get_running_loop().set_exception_handler(lambda _, context: print(context, file=log, flush=True))
    async with AsyncExitStack() as stack:
        stack.enter_context(log)
        servers = await stack.enter_async_context(LocalStack(folder / "servers", settings=_SETTINGS))
        crew = Crew(folder, servers.settings, options.workers)
        stack.push_async_callback(crew.close)
        await crew.revive()
        app = Laneway(agents=Scripted().agents())
        clients = [await stack.enter_async_context(app.client(servers.settings)) for _ in range(3)]
        board = Board()
        callers = asyncio.create_task(_call(options, clients, board))
        answers = asyncio.create_task(_answer(options, clients, board))
        faults = Faults(servers, crew, Ledger(folder / "faults.jsonl"))
        tender = asyncio.create_task(crew.tend())
        progress = asyncio.create_task(_progress(board, faults, say))
        try:
            until = time.monotonic() + options.seconds
            if not options.quiet:
                await faults.run(draw_faults(random.Random(f"{options.seed}:faults")), until)
            await asyncio.sleep(max(until - time.monotonic(), 0))
            board.stop.set()
            tender.cancel()
            say("everything is started again; waiting for the turns that are open")
            await crew.revive()
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await callers
        finally:
            for task in (callers, answers, tender, progress):
                task.cancel()
            await asyncio.gather(callers, answers, tender, progress, return_exceptions=True)
        say("reading what Redis and Temporal hold")
        await collect(folder, servers.settings, _accepted(folder))


def _accepted(folder: Path) -> set[str]:
    return {
        line["turn"] for path in folder.glob("callers/*.jsonl") for line in read_ledger(path) if line["k"] == "accepted"
    }


async def _call(options: Options, clients: list[LanewayClient], board: Board) -> None:
    async with asyncio.TaskGroup() as group:
        for kind in ("busy", "idle"):
            conversations = [f"{kind}-{n}" for n in range(3)]
            for n in range(options.callers):
                name = f"{kind[0]}{n}"
                caller = Caller(
                    name,
                    clients[n % 3],
                    clients[(n + 1) % 3],
                    Ledger(options.folder / "callers" / f"{name}.jsonl"),
                    board,
                    random.Random(f"{options.seed}:{name}"),
                    conversations=conversations,
                    busy=kind == "busy",
                )
                group.create_task(caller.run())


async def _answer(options: Options, clients: list[LanewayClient], board: Board) -> None:
    ledger = Ledger(options.folder / "answerers" / "a.jsonl")
    await Answerer(clients[0], clients[1], ledger, board, random.Random(f"{options.seed}:a")).run()


async def _progress(board: Board, faults: Faults, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    while True:
        await asyncio.sleep(5.0)
        tallies = ", ".join(f"{number} {what}" for what, number in sorted(board.tallies.items()))
        say(f"{time.monotonic() - begun:5.0f} s  {sum(faults.done.values())} faults; {tallies}")


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
