"""Commands as processes: to their end, until an event, or at a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.support.preloaded import Preloaded

if TYPE_CHECKING:
    from laneway import Settings

PATIENCE_S = 90.0
"""How long anything may take that takes seconds on an idle machine."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>()][0-9A-B]?")

# A session of its own with the pty as its terminal: then the terminal turns Ctrl-C into SIGINT.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[dict[str, Any]]:
        """Its output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def bare_environment() -> dict[str, str]:
    """This process's environment without any variable of Laneway's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}


@dataclass(frozen=True)
class CommandLine:
    """Runs `laneway` in a folder, with an environment.

    Commands that run to their end are forked off `preloaded`; those that `argv` is for are new interpreters.
    """

    folder: Path
    environment: dict[str, str]
    preloaded: Preloaded

    @classmethod
    def to(cls, settings: Settings, folder: Path, preloaded: Preloaded) -> CommandLine:
        """The command line with variables that lead to the test's servers, queue and keys."""
        variables = {
            "LANEWAY_TEMPORAL_ADDRESS": settings.temporal_address,
            "LANEWAY_REDIS_URL": settings.redis_url,
            "LANEWAY_REDIS_PREFIX": settings.redis_prefix,
            "LANEWAY_TASK_QUEUE": settings.task_queue,
        }
        return cls(folder, bare_environment() | variables, preloaded)

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "laneway.cli", *arguments]

    async def __call__(self, *arguments: str, stdin: str = "") -> Finished:
        """Run a command to its end, beside what runs in this loop."""
        return await asyncio.to_thread(self.run, *arguments, stdin=stdin)

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Finished:
        """Run a command to its end."""
        done = self.preloaded.run(
            "laneway.cli",
            *arguments,
            cwd=self.folder,
            environment=self.environment | environment,
            stdin=stdin,
            seconds=PATIENCE_S,
        )
        return Finished(done.code, done.out, done.err)


@dataclass
class DevProcess:
    """A command that says what happens as lines of JSON: `laneway dev`, or `laneway worker`."""

    line: CommandLine
    process: subprocess.Popen[bytes]
    seen: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, line: CommandLine, app: str, command: str = "dev") -> DevProcess:
        errors: IO[bytes] = (line.folder / f"{command}.err").open("ab")
        with errors:
            process = subprocess.Popen(
                line.argv(command, app, "--json"),
                cwd=line.folder,
                env=line.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        return cls(line, process)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read on until an event, and return it."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.seen.append(json.loads(line))
            if self.seen[-1].get("event") == event:
                return self.seen[-1]
        raise AssertionError(f"ended without {event}: {self.seen}")

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Terminal:
    """A command at a terminal of 100 columns."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self._unread = ""
        self.shown = ""

    def expect(self, pattern: str, *, patience_s: float = PATIENCE_S) -> str:
        """Wait until the terminal shows something that it did not show before the last `expect`."""
        deadline = time.monotonic() + patience_s
        while (found := re.search(pattern, self._unread)) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                raise AssertionError(f"not shown: {pattern!r} in {self._unread!r}")
            try:
                data = os.read(self._descriptor, 65536)
            except OSError as error:
                raise AssertionError(f"ended without {pattern!r}: {self._unread!r}") from error
            text = _ANSI.sub("", data.decode(errors="replace"))
            self._unread += text
            self.shown += text
        self._unread = self._unread[found.end() :]
        return found.group()

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def interrupt_prompt(self, pattern: str) -> None:
        """Press Ctrl-C at a prompt until the terminal shows what comes of it.

        Python's `input()` may see the signal only at the next key, where it comes after the prompt is shown and before
        the wait for a key begins.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.press_ctrl_c()
            try:
                self.expect(pattern, patience_s=10)
            except AssertionError:
                if self._unread.strip("^C") or time.monotonic() > deadline:
                    raise
            else:
                return

    def leave_by_ctrl_c(self) -> int:
        """Press Ctrl-C at the prompt until the command ends, and return its exit code; see `interrupt_prompt`."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(OSError):  # what Linux says at the end of a terminal
                self.press_ctrl_c()
            if self._read_to_the_end(10):
                return self._process.wait(PATIENCE_S)
        raise AssertionError(f"Ctrl-C did not end it: {self.shown!r}")

    def press_ctrl_d(self) -> None:
        self.type("\x04")

    def wait(self) -> int:
        """The exit code, once the command has ended."""
        self._read_to_the_end(PATIENCE_S)
        return self._process.wait(PATIENCE_S)

    def _read_to_the_end(self, patience_s: float) -> bool:
        """False where nothing more was shown for so long, and the terminal has not ended."""
        while select.select([self._descriptor], [], [], patience_s)[0]:
            try:
                if not (data := os.read(self._descriptor, 65536)):
                    return True
            except OSError:  # what Linux says at the end of a terminal
                return True
            self.shown += _ANSI.sub("", data.decode(errors="replace"))
        return False


@contextmanager
def terminal(line: CommandLine, *arguments: str) -> Iterator[Terminal]:
    """Run a command at a terminal; it is killed at the end where it has not ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _AT_TERMINAL, *line.argv(*arguments)],
        cwd=line.folder,
        env=line.environment | {"TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
