"""The arms' processes, seen from outside: started together, called one at a time, and missed where they fail."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from laneway import Settings

from bench.arms.base import label

__all__ = ["ROOT", "ArmFailed", "ArmProcess", "Crew"]

ROOT = Path(__file__).parents[1]
_START_TIMEOUT_SECONDS = 90.0
_ANSWER_LIMIT_BYTES = 2**26


class ArmFailed(Exception):
    """An arm could not do what it was asked for."""


class ArmProcess:
    """One arm's process."""

    def __init__(self, name: str, settings: Settings, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._settings = settings.model_copy(update={"task_queue": f"bench-{name}", "redis_prefix": f"bench-{name}"})
        self._process: asyncio.subprocess.Process | None = None
        self._is_killed = False

    async def start(self) -> None:
        self._folder.mkdir(parents=True)
        place = {"settings": self._settings.model_dump(mode="json"), "folder": str(self._folder)}
        with (self._folder / "log.txt").open("w") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.arms.host", self.name, json.dumps(place),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"}, limit=_ANSWER_LIMIT_BYTES,
            )  # fmt: skip
        await self._answer(_START_TIMEOUT_SECONDS)

    async def call(self, what: str, /, *, within: float = 120.0, **arguments: object) -> Any:
        """Have the arm do something.

        Args:
            what: the name of a method of the host or of the arm.
            within: how long it may take, in seconds.
            arguments: the method's.

        Raises:
            ArmFailed: it failed, took too long, or its process has ended.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"what": what, "with": arguments}).encode() + b"\n")
            await self._process.stdin.drain()
        return await self._answer(within)

    async def _answer(self, within: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within):
                line = await self._process.stdout.readline()
        except TimeoutError:
            self.kill()  # else its late answer would be taken for the next one's
            raise ArmFailed(f"no answer within {within:g} s") from None
        if not line:
            self.kill()
            raise ArmFailed(f"its process has ended: {self._last_words()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise ArmFailed(answer["failure"])
        return answer["value"]

    def _last_words(self) -> str:
        lines = (self._folder / "log.txt").read_text(errors="replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-2:]) or "it said nothing"

    @property
    def is_alive(self) -> bool:
        """Whether it can be called."""
        return not self._is_killed and self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        self._is_killed = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                async with asyncio.timeout(10):
                    await self._process.wait()
            except TimeoutError:
                self.kill()
                await self._process.wait()


class Crew:
    """All arms that are still there.

    Attributes:
        missing: why an arm is not, by name.
        failures: what arms failed at, and went on after.
    """

    def __init__(self, arms: Iterable[ArmProcess]) -> None:
        self._arms = {arm.name: arm for arm in arms}
        self.missing: dict[str, str] = {}
        self.failures: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._arms

    def __getitem__(self, name: str) -> ArmProcess:
        return self._arms[name]

    def present(self, names: Iterable[str]) -> list[str]:
        """Those of the names whose arm is there."""
        return [name for name in names if name in self._arms]

    def note(self, name: str, why: str) -> None:
        """An arm failed at something. Where its process has ended with that, go on without it."""
        print(f"  failed: {label(name)}: {why}", flush=True)
        self.failures.append(f"{label(name)}: {why}")
        if not self._arms[name].is_alive:
            self.missing[name] = why
            del self._arms[name]

    async def start(self) -> None:
        """Start all, two at a time; those that do not come up are missing."""
        slots = asyncio.Semaphore(2)

        async def start(arm: ArmProcess) -> None:
            async with slots:
                try:
                    await arm.start()
                except ArmFailed as error:
                    arm.kill()
                    self.note(arm.name, str(error))

        await asyncio.gather(*map(start, list(self._arms.values())))

    async def stop(self) -> None:
        await asyncio.gather(*(arm.stop() for arm in self._arms.values()))


@asynccontextmanager
async def crew(names: Iterable[str], settings: Settings, folder: Path) -> AsyncIterator[Crew]:
    """Start the arms on two servers, and end them afterwards."""
    running = Crew([ArmProcess(name, settings, folder / name) for name in names])
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
