"""Processes that begin with the frameworks imported, where a new interpreter would first import for seconds.

`python -m tests.support.preloaded` imports what others wrote, and nothing of Laneway's. Each process is forked off it
and runs a module by name as `python -m` does, with a folder, an environment and standard streams of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

_ROOT = Path(__file__).resolve().parents[2]
_MAX_ORDER_BYTES = 1 << 17
_FRAMEWORKS = (
    *("langchain.agents", "langgraph.graph", "pydantic_ai.mcp", "pydantic_ai.models.function", "pydantic_settings"),
    *("redis.asyncio", "rich.live", "rich.markdown", "temporalio.worker", "typer", "watchfiles"),
)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal that ended it), and what it wrote."""

    code: int
    out: str
    err: str


class Preloaded:
    """The process that others are forked off. It ends when it is closed."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded", str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(
        self, module: str, *arguments: str, cwd: Path, environment: Mapping[str, str], stdin: str, seconds: float
    ) -> Ended:
        """Run a module to its end; it is killed where that takes longer than `seconds`, and TimeoutError is raised."""
        order = json.dumps(
            {"module": module, "arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
        ).encode()
        assert len(order) <= _MAX_ORDER_BYTES
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        with ours, TemporaryFile() as out, TemporaryFile() as err:
            with theirs:
                fds = [reading, out.fileno(), err.fileno(), theirs.fileno()]
                try:
                    socket.send_fds(self._orders, [order], fds)
                finally:
                    os.close(reading)
            feeding = threading.Thread(target=_feed, args=(writing, stdin.encode()))
            feeding.start()
            ours.settimeout(seconds)
            with ours.makefile("r") as said:
                pid = int(said.readline())
                try:
                    code = int(said.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise
                finally:
                    feeding.join()
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read().decode(), err.read().decode())

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


def _feed(pipe: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb") as writer:
        writer.write(data)


def main(orders: socket.socket) -> None:
    """Fork processes as ordered, until nobody is there to order."""
    for name in _FRAMEWORKS:
        importlib.import_module(name)
    assert "laneway" not in sys.modules
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    while True:
        order, fds, _, _ = socket.recv_fds(orders, _MAX_ORDER_BYTES, 4)
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _watch(json.loads(order), fds)
            return
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(order: Mapping[str, object], fds: Sequence[int]) -> None:
    """Run the order in a process of its own, and say which that is, and at last how it ended."""
    *streams, reply = fds
    pid = os.fork()
    if pid == 0:
        os.close(reply)
        _become(order, streams)
        return
    for fd in streams:
        os.close(fd)
    os.write(reply, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(reply, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(order: Mapping[str, object], streams: Sequence[int]) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, arguments, environment = order["module"], order["arguments"], order["environment"]
    assert isinstance(module, str)
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        main(given)
