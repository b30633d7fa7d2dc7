"""What the tests of the command line share: folders, processes, and a worker with the shop's agents."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import CommandLine, DevProcess, bare_environment
from tests.support.preloaded import Preloaded

if TYPE_CHECKING:
    from laneway import Laneway, LanewayClient, Settings

SHOP = Path(__file__).with_name("shop.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the shop's application in it, and no `laneway dev` on it."""
    shutil.copy(SHOP, tmp_path / "shop.py")
    return tmp_path


@pytest.fixture
def shop() -> Laneway:
    from tests.cli.shop import app

    return app


@pytest.fixture
def nowhere(folder: Path, preloaded: Preloaded) -> CommandLine:
    """The command line where no server can be reached."""
    variables = {"LANEWAY_TEMPORAL_ADDRESS": "127.0.0.1:1", "LANEWAY_REDIS_URL": "redis://127.0.0.1:1/0"}
    return CommandLine(folder, bare_environment() | variables, preloaded)


@pytest.fixture
def laneway(folder: Path, settings: Settings, preloaded: Preloaded) -> CommandLine:
    """The command line with variables that lead to the test's servers, queue and keys."""
    return CommandLine.to(settings, folder, preloaded)


@pytest.fixture
async def worker(shop: Laneway, settings: Settings) -> AsyncIterator[None]:
    """A worker with the shop's agents, in this process."""
    async with shop.worker(settings):
        yield


@pytest.fixture
async def client(shop: Laneway, settings: Settings, worker: None) -> AsyncIterator[LanewayClient]:
    """A client beside the command line."""
    async with shop.client(settings) as connected:
        yield connected


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Iterator[DevProcess]:
    """A `laneway dev` on a folder of its own, for the tests of a module."""
    folder = tmp_path_factory.mktemp("dev")
    shutil.copy(SHOP, folder / "shop.py")
    running = DevProcess.start(CommandLine(folder, bare_environment(), preloaded), "shop.py")
    try:
        running.wait_for("worker.ready")
        yield running
    finally:
        running.end()


@pytest.fixture
def bare(folder: Path, preloaded: Preloaded) -> CommandLine:
    """The command line with no variable of Laneway's at all."""
    return CommandLine(folder, bare_environment(), preloaded)
