"""Workers as processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from laneway import Settings

from tests.support.stops import lines

_ROOT = Path(__file__).resolve().parents[2]


class WorkerNursery:
    """A process that makes workers: see `tests.support.ledgered`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ledgered"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, order: str) -> str:
        """Give an order, and return the answer to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End it. Its workers are killed by whoever started them."""
        self._process.communicate()


class WorkerProcess:
    """A worker with the agents of `tests.support.ledgered`; killed at the end, if it was not before.

    Args:
        nursery: what makes it.
        folder: where it writes its ledger, and what the test waits for.
        settings: where the servers are.
        stop: the place where it stops; None for nowhere.
    """

    def __init__(self, nursery: WorkerNursery, folder: Path, settings: Settings, *, stop: str | None = None) -> None:
        self.folder = folder
        self._nursery = nursery
        self._settings = settings
        self._stop = stop
        self._pid: str | None = None

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "settings.json").write_text(self._settings.model_dump_json())
        self._pid = self._nursery.ask(f"start {self.folder}|{self._stop or ''}")
        try:
            await self._line_in("ready")
        except BaseException:
            # The nursery's pipe would stay open in it, and closing the nursery wait for it.
            self.kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    async def talk(self, conversation_id: str) -> str:
        """Have another process go on with a conversation, see `ledgered.talk`; what it was answered."""
        pid = self._nursery.ask(f"talk {self.folder}|{conversation_id}")
        try:
            return await self._line_in("said")
        finally:
            assert self._nursery.ask(f"kill {pid}") == "gone"

    async def stopped(self) -> str:
        """Wait until it has come to its place."""
        return await self._line_in("stopped")

    async def killed(self) -> str:
        """Wait until it has come to its place, and kill it there."""
        place = await self.stopped()
        self.kill()
        return place

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._pid is not None:
            assert self._nursery.ask(f"kill {self._pid}") == "gone"
            self._pid = None

    async def _line_in(self, name: str) -> str:
        async with asyncio.timeout(90):
            while not (found := lines(self.folder / name)):
                await asyncio.sleep(0.01)
        return found[-1]
