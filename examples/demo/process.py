"""The worker as a process of its own, which can be killed and started again."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from laneway.processes import ChildProcess

from examples.demo.scratch import DemoError, Framework, Scratch
from examples.demo.worker import READY

__all__ = ["CHECKOUT", "WorkerProcess"]

CHECKOUT = Path(__file__).parents[2]
"""Where the package `examples` is found."""

_POLL_SECONDS = 0.02
_START_SECONDS = 120.0


class WorkerProcess:
    """Runs `examples.demo.worker`. It never outlives this process."""

    def __init__(self, scratch: Scratch, root: Path, framework: Framework) -> None:
        self._scratch = scratch
        self._arguments = [str(scratch.folder), str(root), framework.value]
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def log_tail(self) -> str:
        """The end of what it has written."""
        return self._running.log_tail(lines=8)

    @property
    def _running(self) -> ChildProcess:
        assert self._child is not None
        return self._child

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start it, and stop it gracefully at the end."""
        self.start()
        try:
            yield
        finally:
            await self.stop()

    def start(self) -> None:
        """Start it."""
        argv = [sys.executable, "-m", "examples.demo.worker", *self._arguments]
        self._child = ChildProcess(argv, log_path=self._scratch.folder / "worker.log", cwd=CHECKOUT)

    async def stop(self) -> None:
        """Stop it gracefully, if it runs."""
        await self._running.stop(grace=timedelta(seconds=15))

    async def ready(self) -> None:
        """Wait until it takes work.

        Raises:
            DemoError: it does not.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                while READY not in self._running.log_tail(lines=50).splitlines():
                    self.check()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise DemoError(f"the worker does not start: {self.log_tail}") from None

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            DemoError: it has ended by itself.
        """
        code = self._running.exit_code
        if code is not None:
            raise DemoError(f"the worker ended by itself with {code}: {self.log_tail}")

    def kill(self) -> bool:
        """SIGKILL it. Says whether it was that which ended it."""
        self._running.kill()
        return self._running.exit_code == -signal.SIGKILL
