"""Child processes that never outlive their parent and are never mistaken for another process.

A pid alone proves nothing: it is given again once its process is gone. So a process is named by a `ProcessMark`, its
pid together with when it started, and only a process that still has both is ever signalled.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

__all__ = ["ChildProcess", "ProcessMark"]

_LINUX: bool = platform.system() == "Linux"
_POLL_S = 0.01
_CRASH = re.compile(r"panic: |fatal error: ")
_LOG_LIMIT_BYTES = 10_000_000

# What the child runs before the server, in the same process: it asks the kernel for SIGKILL at the parent's death
# (PR_SET_PDEATHSIG, 1), then becomes the server. Not a `preexec_fn`, which is unsafe, and warned about, in a process
# with threads, as every process with a Temporal client is.
_TIED_EXEC = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class ProcessMark:
    """One process for all time: its pid, and when it started in words that only this machine and boot use."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The mark of the process that has `pid` now; None where there is none, or only a zombie."""
        started = _start_of(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _start_of(self.pid) == self.started

    async def kill(self, *, timeout: timedelta = timedelta(seconds=5)) -> bool:
        """SIGKILL this process if it still runs, and wait until it is gone.

        Returns:
            False when it outlasted the timeout.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        while self.alive:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True


class ChildProcess:
    """A server as a child process: in a session of its own, so that a terminal's Ctrl-C does not reach it.

    On Linux the kernel kills it when the thread that started it ends, which is the thread of the event loop; elsewhere
    whoever uses the same data next has to (`ProcessMark.kill`).
    """

    def __init__(self, argv: Sequence[str], *, log_path: Path, cwd: Path) -> None:
        """Start `argv`, whose first item is the path of an executable. Its output is appended to `log_path`."""
        self.log_path = log_path
        with suppress(FileNotFoundError):
            if log_path.stat().st_size > _LOG_LIMIT_BYTES:
                log_path.replace(log_path.with_suffix(".old.log"))
        with log_path.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                _tied(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        mark = ProcessMark.of(self._popen.pid)
        # A child that has ended already is a zombie until `poll` reaps it, so its pid is not given again meanwhile.
        self.mark = mark if mark is not None else ProcessMark(self._popen.pid, "ended")

    @property
    def pid(self) -> int:
        """The process id, its own also once it has ended."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative signal number when a signal ended it."""
        return self._popen.poll()

    def log_text(self) -> str:
        """All that it wrote since it was started."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, *, lines: int) -> str:
        """The last lines that it wrote since it was started."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_reason(self, *, lines: int = 5) -> str:
        """Why it ended, in its own words: the first lines of a crash where there is one, else the last that it wrote.

        What ends a Go program well may be followed by hundreds of lines of stacks.
        """
        said = self.log_text().splitlines()
        crash = next((index for index, line in enumerate(said) if _CRASH.match(line)), None)
        if crash is None:
            return "\n".join(said[-lines:])
        return "\n".join(said[max(crash - 1, 0) : crash + lines - 1])

    async def stop(self, *, grace: timedelta) -> None:
        """SIGTERM, then SIGKILL after `grace`; when cancelled, SIGKILL at once."""
        try:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + grace.total_seconds()
            while self.exit_code is None and time.monotonic() < deadline:  # noqa: ASYNC110 - nothing wakes a waiter
                await asyncio.sleep(_POLL_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has let go of it."""
        if self.exit_code is None:
            self._signal(signal.SIGKILL)
            self._popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        # Popen reaps before it signals, so this never reaches a process that was given the pid later.
        with suppress(ProcessLookupError):
            self._popen.send_signal(number)


def _tied(argv: Sequence[str]) -> list[str]:
    if not _LINUX or not sys.executable:
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _TIED_EXEC, str(os.getpid()), *argv]


def _start_of(pid: int) -> str | None:
    if _LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The second field is the command in parentheses and may itself hold spaces and parentheses.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in ("Z", "X") else f"{boot}:{fields[18]}"
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not found or found.startswith("Z") else found.partition(" ")[2].strip()
