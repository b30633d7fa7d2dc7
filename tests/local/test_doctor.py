"""The doctor: each thing that endangers a conversation is found and named, on real servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from laneway.connect import connect_redis
from laneway.doctor import Check, Report, diagnose
from laneway.embedded import ValkeyServer
from laneway.local import LocalStack
from laneway.redis_checks import check_redis_server
from laneway.settings import Settings


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    server = ValkeyServer(tmp_path)
    await server.start()
    yield Settings(redis_url=f"redis://{server.address}/0")
    server.kill()


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    client = await connect_redis(settings)
    yield client
    await client.aclose()


async def look(settings: Settings) -> dict[str, Check]:
    return {check.name: check for check in await check_redis_server(settings)}


async def test_an_embedded_stack_is_healthy() -> None:
    """All is well but for the worker that nobody has started; Redis holds no more than before."""
    async with LocalStack(None) as stack:
        report = await diagnose(stack.settings)
        redis = await connect_redis(stack.settings)
        assert await redis.dbsize() == 0
        await redis.aclose()
    found = {check.name: check for check in report.checks}
    assert [check.name for check in report.checks if check.status != "ok"] == ["temporal.workers"]
    assert "laneway worker" in str(found["temporal.workers"].advice)
    assert found["temporal"].detail.startswith("server 1.")
    assert found["temporal.round_trip"].detail.startswith("a workflow started, updated and ended in ")
    assert found["redis"].detail.startswith("valkey ")
    assert "appendfsync always" in found["redis.durability"].detail
    assert report.status == "warn"
    assert json.loads(json.dumps(report.to_json()))["checks"][0]["name"] == "temporal"


async def test_servers_that_are_down_are_each_named_with_advice() -> None:
    """One missing server does not hide the other."""
    report = await diagnose(Settings(temporal_address="127.0.0.1:1", redis_url="redis://127.0.0.1:2"))
    assert [(check.name, check.status) for check in report.checks] == [("temporal", "fail"), ("redis", "fail")]
    assert "127.0.0.1:1" in report.checks[0].detail
    assert "LANEWAY_REDIS_URL" in str(report.checks[1].advice)
    assert report.status == "fail"


async def test_a_misspelt_variable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable without effect is worse than none."""
    monkeypatch.setenv("LANEWAY_REDIS_ULR", "redis://elsewhere")
    monkeypatch.setenv("LANEWAY_DEMO_MODEL", "openai:some-model")
    report = await diagnose(Settings(temporal_address="127.0.0.1:1", redis_url="redis://127.0.0.1:2"))
    assert report.checks[0] == Check(
        "environment", "warn", "LANEWAY_REDIS_ULR is no setting of Laneway and has no effect", "write LANEWAY_REDIS_URL"
    )
    assert len(report.checks) == 3


async def test_no_append_only_file_is_a_warning_unless_it_was_asked_for(settings: Settings, redis: Redis) -> None:
    """A crash of that server may lose turns, which is the owner's choice, but never an unseen one."""
    await redis.config_set("appendonly", "no")
    check = (await look(settings))["redis.durability"]
    assert (check.status, check.advice) == ("warn", "set `appendonly yes`")
    strict = settings.model_copy(update={"redis_durability": "aof"})
    assert (await look(strict))["redis.durability"].status == "fail"


async def test_a_server_that_syncs_each_second_is_safe_with_waitaof(settings: Settings, redis: Redis) -> None:
    """A commit can wait for the disk; where the settings say that it does not, that is a warning."""
    await redis.config_set("appendfsync", "everysec")
    check = (await look(settings))["redis.durability"]
    assert check.status == "ok"
    assert "WAITAOF" in check.detail
    careless = settings.model_copy(update={"redis_durability": "none"})
    assert (await look(careless))["redis.durability"].status == "warn"


async def test_a_server_that_never_syncs_is_a_warning(settings: Settings, redis: Redis) -> None:
    """With `appendfsync no` the kernel decides when a turn is on disk."""
    await redis.config_set("appendfsync", "no")
    assert (await look(settings))["redis.durability"].status == "warn"


@pytest.mark.parametrize(
    ("policy", "maxmemory", "status"),
    [("allkeys-lru", "100mb", "fail"), ("allkeys-lru", "0", "warn"), ("volatile-ttl", "100mb", "warn")],
)
async def test_eviction_is_named(settings: Settings, redis: Redis, policy: str, maxmemory: str, status: str) -> None:
    """Evicting any key deletes histories, evicting keys that expire deletes what turns have staged."""
    await redis.config_set("maxmemory", maxmemory)
    await redis.config_set("maxmemory-policy", policy)
    check = (await look(settings))["redis.eviction"]
    assert check.status == status
    assert policy in check.detail
    assert check.advice == "set `maxmemory-policy noeviction`"


async def test_little_memory_is_named_before_writes_are_refused(settings: Settings, redis: Redis) -> None:
    """Nine tenths of maxmemory are in use."""
    await redis.set("ballast", "x" * 4_000_000)
    used = (await redis.info("memory"))["used_memory"]
    await redis.config_set("maxmemory", str(int(used * 1.05)))
    assert (await look(settings))["redis.memory"].status == "warn"


async def test_a_replica_cannot_carry_conversations(settings: Settings, redis: Redis) -> None:
    """Writes must reach the primary."""
    await redis.replicaof("127.0.0.1", 1)
    check = (await look(settings))["redis.write"]
    assert check.status == "fail"
    assert "LANEWAY_REDIS_URL at the primary" in str(check.advice)


async def test_a_user_without_config_gets_warnings_not_failures(settings: Settings, redis: Redis) -> None:
    """Managed servers hide CONFIG: what INFO and WAITAOF tell is used instead."""
    await redis.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config", "-info")
    address = settings.redis_url.removeprefix("redis://")
    found = await look(Settings(redis_url=f"redis://app:pw@{address}"))
    assert {name: check.status for name, check in found.items()} == {
        "redis": "warn",
        "redis.write": "ok",
        "redis.durability": "warn",
        "redis.eviction": "warn",
    }


async def test_a_user_without_scripts_cannot_carry_conversations(settings: Settings, redis: Redis) -> None:
    """Every write is a script, so that it is whole or not at all."""
    await redis.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
    address = settings.redis_url.removeprefix("redis://")
    check = (await look(Settings(redis_url=f"redis://app:pw@{address}")))["redis.write"]
    assert check.status == "fail"
    assert "+@scripting" in str(check.advice)


def test_a_report_is_as_bad_as_its_worst_check() -> None:
    """One failure outweighs any number of warnings."""
    ok, warn, fail = Check("a", "ok", ""), Check("b", "warn", ""), Check("c", "fail", "")
    assert Report(()).status == "ok"
    assert Report((ok, warn)).status == "warn"
    assert Report((warn, fail, ok)).status == "fail"
