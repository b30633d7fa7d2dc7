"""`python -m examples.team`: a team reads a folder and writes a report, while its workers are killed.

    python -m examples.team [--dir FOLDER] [--question TEXT] [--yes]

It runs servers of its own. At a terminal it asks for your approval of the report; `--yes`, or no terminal, gives it.
Exits with 0 if every file was read, the report written once, and no child was run twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from laneway import Laneway, LanewayClient, LocalStack, PendingRequest, Settings, Turn, approve, deny

from examples.team.agents import build_app, noted

_CHECKOUT = Path(__file__).resolve().parents[2]
_QUESTION = 'Which files mention "worker", and how?'
_BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.1f} s  {text}", flush=True)


class Worker:
    """A worker in a process of its own."""

    def __init__(self, folder: Path, scratch: Path, settings: Settings) -> None:
        self._arguments = (str(folder), str(scratch))
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = os.environ | {
            "LANEWAY_TEMPORAL_ADDRESS": self._settings.temporal_address,
            "LANEWAY_REDIS_URL": self._settings.redis_url,
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.team", "--worker", *self._arguments),
            cwd=_CHECKOUT,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if not await self._process.stdout.readline():
            raise RuntimeError("the worker ended before it was ready; it has said why")

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None


async def work(folder: Path, scratch: Path) -> None:
    async with build_app(folder, scratch).worker(Settings.load()):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def give(app: Laneway, folder: Path, scratch: Path, question: str, *, asks: bool) -> int:
    async with LocalStack(scratch / "data") as stack, app.client(stack.settings) as client:
        worker = Worker(folder, scratch, stack.settings)
        try:
            await worker.start()
            return await _course(client, worker, scratch, question, asks=asks)
        finally:
            await worker.kill()


async def _course(client: LanewayClient, worker: Worker, scratch: Path, question: str, *, asks: bool) -> int:
    conversation = client.conversation("research")
    say(f"asked: {question}")
    turn = await conversation.submit("lead", question)
    while len(noted(scratch)) < 2:
        if await client.store.record(turn.lane, turn.turn_id) is not None:
            print((await turn.result()).output)
            return 1
        await asyncio.sleep(0.02)
    await worker.kill()
    say(f"killed the worker: {len(noted(scratch))} files had been read, others were being read")
    await worker.start()
    request = await _approval(turn)
    await worker.kill()
    say("the report waits for approval; killed the worker again: no worker runs while a person thinks")
    print(f"\n{request.payload['text']}\n")
    answer = approve()
    if asks and (await asyncio.to_thread(input, "Write this report? [Y/n] ")).strip().lower().startswith("n"):
        answer = deny("the person who asked does not want it")
    await turn.answer(request.id, answer)
    say(f"answered: {answer.kind}")
    await worker.start()
    result = await turn.result()
    say(f"{result.output} ({result.usage.requests} requests of the lead)")
    return await _check(client, turn, scratch, written=answer.kind == "approved")


async def _approval(turn: Turn) -> PendingRequest:
    while True:
        for one in await turn.pending():
            if one.request.kind == "approval":
                return one.request
        await asyncio.sleep(0.05)


async def _check(client: LanewayClient, turn: Turn, scratch: Path, *, written: bool) -> int:
    record = await turn.record()
    done = Counter(noted(scratch))
    outcomes = [await client.turns(child.lane) for child in record.children]
    once = all(len(records) == 1 and records[0].outcome == "committed" for records in outcomes)
    reports = done.pop("report written", 0)
    again = sum(done.values()) - len(done)
    say(f"{len(record.children)} children, each committed once: {once}; {len(done)} files read")
    say(f"{again} files were read again, since the worker died while it read them; the report was written {reports}×")
    return 0 if once and len(done) == len(record.children) and reports == int(written) and again <= 3 else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.team", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(os.environ.get("DIR") or _CHECKOUT / "docs"))
    parser.add_argument("--question", default=_QUESTION)
    parser.add_argument("--yes", action="store_true", help="approve the report")
    parser.add_argument("--worker", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        asyncio.run(work(*given.worker))
        return 0
    if not given.dir.is_dir():
        print(f"{given.dir} is no folder: give one with --dir", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder, place = given.dir.resolve(), Path(scratch)
        asks = sys.stdin.isatty() and not given.yes
        return asyncio.run(give(build_app(folder, place), folder, place, given.question, asks=asks))


if __name__ == "__main__":
    sys.exit(main())
