"""`LocalStack`: Temporal and Valkey as children of this process, with their data in one folder.

The folder outlives the processes: whoever starts a stack on it again goes on with every conversation. Only one stack
may use it at a time, which a file lock ensures; what a killed predecessor left running is ended first.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from laneway.connect import connect_redis, connect_temporal
from laneway.embedded import EmbeddedServer, TemporalServer, ValkeyServer
from laneway.errors import ConfigurationError, LanewayError, ServiceUnavailable
from laneway.history.given import check_kind
from laneway.processes import ProcessMark
from laneway.settings import Settings

__all__ = ["DEFAULT_DATA_DIR", "LocalStack", "find_running"]

T = TypeVar("T")

DEFAULT_DATA_DIR = ".laneway"

_LOCK_FILE = "lock"
_SERVERS_FILE = "servers.json"
_DISCOVERY_FILE = "dev.json"


class _ServerRecord(BaseModel):
    """What the next stack on the folder must know of a server of this one."""

    model_config = ConfigDict(frozen=True)

    port: int
    mark: ProcessMark


class _Servers(BaseModel):
    model_config = ConfigDict(frozen=True)

    servers: dict[str, _ServerRecord]


class _Discovery(BaseModel):
    """What other processes must know to join a running stack."""

    model_config = ConfigDict(frozen=True)

    holder: ProcessMark
    settings: dict[str, object]


class LocalStack:
    """A Temporal dev server and a Valkey server, for as long as the `async with` block runs.

        async with LocalStack("data") as stack:
            async with app.worker(stack.settings): ...

    Both listen on loopback ports only. They are ended with this process, however it ends; on Linux also when the thread
    that entered the block ends before it, so enter it where the event loop lives.

    Args:
        data_dir: the folder of all data and logs, made if missing. None: a temporary one, removed at the end, where the
            servers are killed without a clean stop, which takes 1.2 s less.
        settings: values for `settings` other than where the servers are, such as `{"task_queue": "billing"}`.

    Raises:
        ConfigurationError: a setting cannot work; or, on entry, another process uses the folder or the executables are
            not installed (`pip install "laneway[local]"`).
        ServiceUnavailable: on entry, a server did not start. The message holds the end of its log.
    """

    def __init__(
        self, data_dir: Path | str | None = DEFAULT_DATA_DIR, *, settings: Mapping[str, object] | None = None
    ) -> None:
        check_kind("LocalStack: data_dir", data_dir, str | Path, "a folder's path, or None for a temporary one")
        check_kind("LocalStack: settings", settings, Mapping, "a dict by the names of `Settings`, or None")
        self._overrides = dict(settings or {})
        if misplaced := sorted(self._overrides.keys() & _place("", "").keys()):
            raise ConfigurationError(
                f"LocalStack decides {', '.join(misplaced)} itself; leave them out, or use Settings without LocalStack"
            )
        Settings.model_validate(_place("localhost:1", "redis://localhost:1") | self._overrides)
        self._given_dir = None if data_dir is None else Path(data_dir).expanduser().absolute()
        self._data_dir: Path | None = None
        self._lock: IO[str] | None = None
        self._temporal: TemporalServer | None = None
        self._valkey: ValkeyServer | None = None
        self._settings: Settings | None = None

    @property
    def settings(self) -> Settings:
        """How clients and workers reach the two servers.

        Raises:
            ConfigurationError: the stack does not run.
        """
        return self._running(self._settings)

    @property
    def data_dir(self) -> Path:
        """The folder in use.

        Raises:
            ConfigurationError: the stack does not run.
        """
        return self._running(self._data_dir)

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the servers that run, under `temporal` and `valkey`."""
        return {server.name: server.child.pid for server in self._servers() if server.child is not None}

    async def __aenter__(self) -> Self:
        if self._lock is not None:
            raise ConfigurationError("this LocalStack runs already; make another one on another folder")
        self._data_dir = self._given_dir or Path(tempfile.mkdtemp(prefix="laneway-"))
        try:
            _make_folder(self._data_dir)
            self._lock = _acquire(self._data_dir)
            former = await _end_leftovers(self._data_dir)
            self._temporal, self._valkey = TemporalServer(self._data_dir), ValkeyServer(self._data_dir)
            async with asyncio.TaskGroup() as group:
                for server in self._servers():
                    group.create_task(self._start(server, former.get(server.name)))
            self._settings = Settings.model_validate(
                _place(self._temporal.address, f"redis://{self._valkey.address}/0") | self._overrides
            )
            self._write_discovery(self._data_dir, self._settings)
        except BaseExceptionGroup as group_error:
            await self._close()
            raise group_error.exceptions[0] from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def restart_temporal(self) -> None:
        """Stop Temporal if it runs, and start it again on the same port and data."""
        await self._restart(self._running(self._temporal))

    async def restart_valkey(self) -> None:
        """Stop Valkey if it runs, and start it again on the same port and data."""
        await self._restart(self._running(self._valkey))

    async def kill_temporal(self) -> None:
        """SIGKILL Temporal; it stays down until `restart_temporal`."""
        self._running(self._temporal).kill()

    async def kill_valkey(self) -> None:
        """SIGKILL Valkey; it stays down until `restart_valkey`."""
        self._running(self._valkey).kill()

    async def _restart(self, server: EmbeddedServer) -> None:
        await server.stop()
        await self._start(server, None)

    async def _start(self, server: EmbeddedServer, preferred_port: int | None) -> None:
        await server.start(preferred_port=preferred_port)
        self._write_servers(self.data_dir)

    async def _close(self) -> None:
        """Stop both servers and leave the folder; when cancelled meanwhile, by SIGKILL at once."""
        try:
            if self._data_dir is not None and self._lock is not None:
                (self._data_dir / _DISCOVERY_FILE).unlink(missing_ok=True)
            if self._given_dir is not None:  # a temporary folder has nothing that a clean stop could save
                await asyncio.gather(*(server.stop() for server in self._servers()))
        finally:
            for server in self._servers():
                server.kill()
            self._leave()

    def _leave(self) -> None:
        if self._lock is not None:
            # Unlocked by name: a child that was forked from this process holds a copy of the descriptor.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
        if self._given_dir is None and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._lock = self._data_dir = self._temporal = self._valkey = self._settings = None

    def _write_servers(self, data_dir: Path) -> None:
        records = {
            server.name: _ServerRecord(port=server.port, mark=server.child.mark)
            for server in self._servers()
            if server.child is not None and server.port is not None
        }
        _write(data_dir / _SERVERS_FILE, _Servers(servers=records))

    def _write_discovery(self, data_dir: Path, settings: Settings) -> None:
        holder = ProcessMark.of(os.getpid())
        assert holder is not None
        _write(data_dir / _DISCOVERY_FILE, _Discovery(holder=holder, settings=settings.model_dump(mode="json")))

    def _servers(self) -> list[EmbeddedServer]:
        return [server for server in (self._temporal, self._valkey) if server is not None]

    def _running(self, value: T | None) -> T:
        if value is None:
            raise ConfigurationError("this LocalStack does not run; use it inside `async with LocalStack(…) as stack:`")
        return value


async def find_running(data_dir: Path | str = DEFAULT_DATA_DIR) -> Settings | None:
    """The settings of the stack that runs on a folder, in whatever process; None when there is none that answers."""
    found = _read(Path(data_dir) / _DISCOVERY_FILE, _Discovery)
    if found is None or not found.holder.alive:
        return None
    try:
        settings = Settings.model_validate(found.settings)
        redis = await connect_redis(settings)
        await redis.aclose()
        await connect_temporal(settings)
    except LanewayError:
        return None
    return settings


def _place(temporal_address: str, redis_url: str) -> dict[str, object]:
    # Complete, so that no `LANEWAY_TEMPORAL_API_KEY` of the environment turns TLS on for a server that has none.
    return {
        "temporal_address": temporal_address,
        "temporal_namespace": "default",
        "temporal_api_key": None,
        "temporal_tls": False,
        "temporal_tls_ca_path": None,
        "temporal_tls_cert_path": None,
        "temporal_tls_key_path": None,
        "redis_url": redis_url,
    }


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds conversations: nobody else's to read
        ignore = path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise ConfigurationError(
            f"the data folder {str(path)!r} cannot be used ({error.strerror}); give LocalStack a writable folder"
        ) from None


def _acquire(data_dir: Path) -> IO[str]:
    lock = (data_dir / _LOCK_FILE).open("a+")
    try:
        # flock, not lockf: two stacks in one process exclude each other too.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise ConfigurationError(
            f"the data folder {str(data_dir)!r} is in use by the process with pid {holder}; stop it, or give this one "
            "another folder"
        ) from None
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


async def _end_leftovers(data_dir: Path) -> dict[str, int]:
    """Kill the servers that a killed predecessor left behind, by pid and start time.

    Returns:
        The ports that they had, which the new ones take over when they are free.
    """
    (data_dir / _DISCOVERY_FILE).unlink(missing_ok=True)
    former = _read(data_dir / _SERVERS_FILE, _Servers)
    if former is None:
        return {}
    for name, record in former.servers.items():
        if not await record.mark.kill():
            raise ServiceUnavailable(
                f"the {name} server of an earlier process (pid {record.mark.pid}) does not end; end it and try again"
            )
    return {name: record.port for name, record in former.servers.items()}


def _write(path: Path, content: BaseModel) -> None:
    """Write whole or not at all: readers in other processes never see a part."""
    partial = path.with_suffix(".partial")
    partial.write_text(content.model_dump_json(indent=2))
    partial.replace(path)


M = TypeVar("M", bound=BaseModel)


def _read(path: Path, model: type[M]) -> M | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
