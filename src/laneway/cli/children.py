"""A worker in a process of its own, which stops when it is told to and when its parent is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from laneway.cli.apps import AppTarget
    from laneway.settings import Settings

__all__ = ["WorkerChild"]

# A worker lets its steps run on for 5 s. One that is stuck in the user's own code is ended after this.
_STOP_GRACE = timedelta(seconds=10)


class WorkerChild:
    """See `laneway.cli.devworker`, which is what runs in the process. Made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int) -> None:
        self._process = process
        self._pipe: int | None = pipe

    @classmethod
    async def start(cls, target: AppTarget, *, as_json: bool) -> Self:
        """Start the process. It imports the application, and waits for settings."""
        reading, writing = os.pipe()
        try:
            # -P: no module of the current folder is taken for one of Laneway's or Python's own. A session of its own:
            # Ctrl-C is the parent's to hear, which then says what to do.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "laneway.cli.devworker", target.text, str(reading)),
                *(["--json"] if as_json else []),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[reading],
                start_new_session=True,
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return cls(process, writing)

    def give(self, settings: Settings) -> None:
        """Say where the servers are."""
        if self._pipe is not None:
            with suppress(BrokenPipeError):  # it has ended; `wait` tells
                os.write(self._pipe, settings.model_dump_json().encode() + b"\n")

    async def wait(self) -> int:
        """The exit code, once it has ended; negative for a signal."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Let it stop; where it does not, kill it."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        # The pipe is not looked at while the application is being imported; the signal ends that.
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_GRACE.total_seconds()):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
