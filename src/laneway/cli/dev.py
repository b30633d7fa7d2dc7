"""`laneway dev`: embedded servers, and a worker that is started anew whenever the application's code changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway.cli.apps import AppTarget
from laneway.cli.children import WorkerChild
from laneway.cli.failures import REFUSED
from laneway.cli.output import announce, note
from laneway.cli.signals import stop_signals

if TYPE_CHECKING:
    from laneway.local import LocalStack
    from laneway.settings import Settings

__all__ = ["develop"]

_RESTART_PAUSE = timedelta(seconds=1)
_DEBOUNCE = timedelta(milliseconds=300)


@dataclass(frozen=True)
class _Stop:
    """Ctrl-C, or SIGTERM."""


@dataclass(frozen=True)
class _Changed:
    files: tuple[str, ...]


@dataclass(frozen=True)
class _Ended:
    """The worker is no more, and was not told to stop."""

    worker: WorkerChild
    code: int


_News = asyncio.Queue[_Stop | _Changed | _Ended]


async def develop(target: str, *, data_dir: Path, as_json: bool) -> int:
    """Run the servers and a worker until Ctrl-C.

    Returns:
        0, or the worker's exit code where the application did not load in the first place.
    """
    from laneway.local import LocalStack

    session = _Session(AppTarget.parse(target), data_dir, as_json=as_json)
    async with stop_signals() as stop:
        session.spawn(session.hear_stop(stop))
        session.spawn(session.hear_changes())
        try:
            await session.start_worker()  # it imports the application while the servers start
            async with LocalStack(data_dir) as stack:
                session.announce_servers(stack)
                session.give(stack.settings)
                try:
                    code = await session.run()
                finally:
                    await session.close()
        finally:
            await session.close()
    if not code:
        announce("dev.stopped", f"stopped; {data_dir} keeps every conversation", as_json=as_json)
    return code


class _Session:
    """One run of the command."""

    def __init__(self, target: AppTarget, data_dir: Path, *, as_json: bool) -> None:
        self._target = target
        self._data_dir = data_dir
        self._as_json = as_json
        self._news: _News = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker: WorkerChild | None = None
        self._settings: Settings | None = None
        self._starts = 0

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside the rest, until the session is closed."""
        self._tasks.add(task := asyncio.create_task(coroutine))
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop the worker, and listen no more."""
        await self._stop_worker()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Worker -----------------------------------------------------------------------------------------------------------

    async def start_worker(self) -> None:
        """Start a worker; it takes up work once it has imported the application and there are settings."""
        self._starts += 1
        self._worker = worker = await WorkerChild.start(self._target, as_json=self._as_json)
        if self._settings is not None:
            worker.give(self._settings)
        self.spawn(self._hear_end(worker))

    def give(self, settings: Settings) -> None:
        """The servers are up."""
        self._settings = settings
        if self._worker is not None:
            self._worker.give(settings)

    async def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    # News -------------------------------------------------------------------------------------------------------------

    async def hear_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._news.put(_Stop())

    async def hear_changes(self) -> None:
        """Watch the Python files of the application's folder."""
        from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType]

        folder = self._target.folder
        ours = PythonFilter(ignore_paths=[self._data_dir.absolute()])
        try:
            async for changes in awatch(folder, watch_filter=ours, debounce=round(_DEBOUNCE.total_seconds() * 1000)):
                files = sorted({_relative(path, folder) for _, path in changes})
                await self._news.put(_Changed(tuple(files)))
        except (OSError, RuntimeError) as error:
            note(f"changes in {folder} cannot be watched ({error}); stop and start again after a change")

    async def _hear_end(self, worker: WorkerChild) -> None:
        await self._news.put(_Ended(worker, await worker.wait()))

    async def run(self) -> int:
        """Keep a worker running until told to stop."""
        while True:
            match await self._news.get():
                case _Stop():
                    return 0
                case _Changed(files):
                    files = self._and_later(files)
                    text = f"changed: {', '.join(files)}; starting the worker anew"
                    self._announce("dev.reload", text, changed=list(files))
                    await self._stop_worker()
                    await self.start_worker()
                case _Ended(worker, code) if worker is self._worker:
                    if code == REFUSED and self._starts == 1:
                        return code  # it has said why
                    self._worker = None
                    if code == REFUSED:
                        self._announce("dev.waiting", "waiting for a change")
                        continue
                    self._announce(
                        "dev.worker_ended", f"the worker ended by itself ({code}); starting another", code=code
                    )
                    await asyncio.sleep(_RESTART_PAUSE.total_seconds())
                    await self.start_worker()
                case _Ended():
                    pass

    def _and_later(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """The changes that were heard of meanwhile, so that they lead to one start."""
        later: list[_Stop | _Changed | _Ended] = []
        found = set(files)
        with suppress(asyncio.QueueEmpty):
            while True:
                news = self._news.get_nowait()
                if isinstance(news, _Changed):
                    found.update(news.files)
                else:
                    later.append(news)
        for news in later:
            self._news.put_nowait(news)
        return tuple(sorted(found))

    # Words ------------------------------------------------------------------------------------------------------------

    def announce_servers(self, stack: LocalStack) -> None:
        """Say where everything is."""
        settings = stack.settings
        text = (
            f"Temporal      {settings.temporal_address}, namespace {settings.temporal_namespace!r}\n"
            f"Valkey        {settings.redis_address}\n"
            f"data          {self._data_dir} (logs in {self._data_dir / 'logs'})"
        )
        self._announce(
            "dev.servers",
            text,
            temporal_address=settings.temporal_address,
            temporal_namespace=settings.temporal_namespace,
            redis_url=settings.redis_url,
            data_dir=str(stack.data_dir),
            pids=stack.pids,
        )

    def _announce(self, event: str, text: str, **fields: object) -> None:
        announce(event, text, as_json=self._as_json, **fields)


def _relative(path: str, folder: Path) -> str:
    found = Path(path)
    return str(found.relative_to(folder)) if found.is_relative_to(folder) else path
