"""Savers on servers of every kind that is here: Valkey always, Debian's Redis 7 where `redis-server` is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import redis as redis_py

from laneway.embedded import ValkeyServer
from laneway.langgraph import RedisSaver

MakeSaver = Callable[..., RedisSaver]


class RedisServer(ValkeyServer):
    """The `redis-server` of the machine, run as the embedded Valkey is."""

    name = "redis"

    def _argv(self, port: int) -> Sequence[str]:
        (self._data_dir / "valkey").mkdir(exist_ok=True)
        return [shutil.which("redis-server") or "", *super()._argv(port)[1:]]


class ClusterServer(ValkeyServer):
    """Valkey as a cluster of one, which refuses what touches more than one slot."""

    name = "cluster"

    def _argv(self, port: int) -> Sequence[str]:
        return [*super()._argv(port), "--cluster-enabled", "yes"]


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["valkey", "redis"])
async def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where a server is; each test that uses it runs on every kind."""
    if request.param == "redis" and shutil.which("redis-server") is None:
        if os.environ.get("LANEWAY_TEST_REQUIRE_REDIS"):
            pytest.fail("redis-server is not on PATH, and LANEWAY_TEST_REQUIRE_REDIS is set")
        pytest.skip("redis-server is not on PATH")
    kind = {"valkey": ValkeyServer, "redis": RedisServer}[request.param]
    server = kind(tmp_path_factory.mktemp(request.param))
    await server.start()
    yield f"redis://{server.address}/0"
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where Valkey is."""
    server = ValkeyServer(Path(tmp_path_factory.mktemp("valkey")))
    await server.start()
    yield f"redis://{server.address}/0"
    await server.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where a cluster of one node is."""
    server = ClusterServer(Path(tmp_path_factory.mktemp("cluster")))
    await server.start()
    url = f"redis://{server.address}/0"
    with redis_py.Redis.from_url(url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
            await asyncio.sleep(0.01)
    yield url
    await server.stop()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture
async def make_saver(valkey_url: str, prefix: str) -> AsyncIterator[MakeSaver]:
    """Makes savers on one prefix, as several processes would."""
    savers: list[RedisSaver] = []

    def make(**options: Any) -> RedisSaver:
        savers.append(RedisSaver.from_url(valkey_url, **{"prefix": prefix, **options}))
        return savers[-1]

    yield make
    for saver in savers:
        await saver.aclose()


@pytest.fixture
def saver(make_saver: MakeSaver) -> RedisSaver:
    return make_saver()


@pytest.fixture
def client(valkey_url: str) -> Any:
    """A client of Valkey, for looking at what is stored."""
    with redis_py.Redis.from_url(valkey_url) as connection:
        yield connection
