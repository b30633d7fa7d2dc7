"""What Laneway asks of a Redis or Valkey server: its version, scripts that write, durability, no eviction.

Managed servers hide some of it (CONFIG, now and then INFO). What cannot be seen is a warning, never a guess.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Protocol, cast
from uuid import uuid4

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from laneway.connect import connect_redis
from laneway.diagnosis import Check, Status
from laneway.errors import LanewayError
from laneway.settings import ENV_PREFIX, Settings

__all__ = ["check_redis_server"]

_WAITAOF_TIMEOUT_MS = 3_000
_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}
_WAITAOF_SINCE = (7, 2)


class _Commands(Protocol):
    # redis-py types replies as unknown; only what is looked at below is claimed of them.
    async def execute_command(self, *args: str | int) -> object: ...


async def check_redis_server(settings: Settings) -> list[Check]:
    """Connect, look, write for a moment, and disconnect. Errors become failed checks."""
    try:
        client = await connect_redis(settings)
    except LanewayError as error:
        return [Check.from_error("redis", error)]
    try:
        commands = cast("_Commands", client)
        info = await _read_info(commands)
        policy = info.get("maxmemory_policy") or await _read_config(commands, "maxmemory-policy")
        return [
            _check_server(info, settings),
            await _check_script(client, settings),
            await _check_durability(client, info, settings),
            _check_eviction(policy, int(info.get("maxmemory", "0"))),
            *_check_memory(info),
            *_check_cluster(info),
        ]
    except (redis_errors.RedisError, OSError) as error:
        return [Check("redis", "fail", f"{settings.redis_address}: {error}", "see the message")]
    finally:
        await client.aclose()


def _check_server(info: Mapping[str, str], settings: Settings) -> Check:
    if not info:
        seen = f"a server at {settings.redis_address} that hides its version"
        return Check("redis", "warn", seen, "allow the user INFO, or make sure of Redis 7.0 or Valkey 8.0, or later")
    kind, version = _identify(info)
    detail = f"{kind} {version} at {settings.redis_address}"
    oldest = _OLDEST[kind]
    if _parse(version) < oldest:
        return Check("redis", "fail", detail, f"use {kind} {oldest[0]}.{oldest[1]} or later")
    return Check("redis", "ok", detail)


async def _check_script(client: Redis, settings: Settings) -> Check:
    """Time one write by a script, the form that every write of Laneway has."""
    key = f"{settings.redis_prefix}:{{doctor}}:{uuid4().hex}"
    script = "redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return redis.call('DEL', KEYS[1])"
    commands = cast("_Commands", client)
    times: list[float] = []
    try:
        for _ in range(5):
            started = time.perf_counter()
            await commands.execute_command("EVAL", script, 1, key, "x" * 2_000)
            times.append(time.perf_counter() - started)
    except redis_errors.ReadOnlyError:
        advice = f"point {ENV_PREFIX}REDIS_URL at the primary"
        return Check("redis.write", "fail", "this server is a read-only replica", advice)
    except redis_errors.MovedError as error:
        advice = f"point {ENV_PREFIX}REDIS_URL at a server, or a proxy, that holds all slots"
        return Check("redis.write", "fail", f"this node of a cluster holds only some slots ({error})", advice)
    except redis_errors.ResponseError as error:
        advice = f"allow the user scripts (+@scripting) and writes to keys that match {settings.redis_prefix}:*"
        return Check("redis.write", "fail", f"a script that writes was refused: {error}", advice)
    return Check(
        "redis.write", "ok", f"a script wrote in {min(times) * 1000:.1f} ms at best, {max(times) * 1000:.1f} at worst"
    )


async def _check_durability(client: Redis, info: Mapping[str, str], settings: Settings) -> Check:
    name, wanted = "redis.durability", settings.redis_durability
    if info.get("aof_enabled") != "1":
        seen = (
            "no append-only file" if "aof_enabled" in info else "it cannot be seen whether there is an append-only file"
        )
        status: Status = "fail" if wanted == "aof" else "warn"
        return Check(name, status, f"{seen}: a crash of the server may lose committed turns", "set `appendonly yes`")
    if info.get("aof_last_write_status", "ok") != "ok":
        return Check(name, "fail", "the last write to the append-only file failed", "look at the disk of the server")
    fsync = await _read_config(cast("_Commands", client), "appendfsync")
    if fsync == "always":
        return Check(name, "ok", "append-only file, on disk before each answer (appendfsync always)")
    found = f"append-only file, appendfsync {fsync}" if fsync else "append-only file, appendfsync cannot be read"
    if fsync == "no":
        advice = "set `appendfsync always` or `everysec`"
        return Check(name, "warn", f"{found}: a power cut may lose many seconds", advice)
    if wanted == "none":
        advice = f"unset {ENV_PREFIX}REDIS_DURABILITY, or set `appendfsync always`"
        return Check(name, "warn", f"{found}, and commits do not wait for the disk", advice)
    waited = await _time_waitaof(client, info, settings)
    if waited is None:
        status = "fail" if wanted == "aof" else "warn"
        advice = "set `appendfsync always`, or use a server with WAITAOF (Redis 7.2, Valkey 8)"
        return Check(name, status, f"{found}, and WAITAOF does not work: a power cut may lose a second", advice)
    return Check(name, "ok", f"{found}; a commit can wait for the disk (WAITAOF, {waited * 1000:.0f} ms)")


async def _time_waitaof(client: Redis, info: Mapping[str, str], settings: Settings) -> float | None:
    """Seconds until a write was on disk; None when the server cannot say so."""
    if _parse(_identify(info)[1]) < _WAITAOF_SINCE:
        return None
    # WAITAOF speaks of the writes of its own connection.
    async with client.client() as single:
        commands = cast("_Commands", single)
        key = f"{settings.redis_prefix}:{{doctor}}:{uuid4().hex}"
        started = time.perf_counter()
        try:
            await commands.execute_command("SET", key, "x", "PX", 1_000)
            local, _ = cast("list[int]", await commands.execute_command("WAITAOF", 1, 0, _WAITAOF_TIMEOUT_MS))
        except redis_errors.ResponseError:
            return None
    return time.perf_counter() - started if local >= 1 else None


def _check_eviction(policy: str | None, maxmemory_bytes: int) -> Check:
    name, advice = "redis.eviction", "set `maxmemory-policy noeviction`"
    if policy is None:
        return Check(name, "warn", "the eviction policy cannot be read", f"make sure that it is noeviction: {advice}")
    if policy == "noeviction":
        return Check(name, "ok", "noeviction")
    if maxmemory_bytes and policy.startswith("allkeys"):
        detail = f"{policy}: at {maxmemory_bytes} bytes the server deletes committed histories"
        return Check(name, "fail", detail, advice)
    return Check(name, "warn", f"{policy}: the server may delete what turns have staged", advice)


def _check_memory(info: Mapping[str, str]) -> Iterator[Check]:
    limit, used = int(info.get("maxmemory", "0")), int(info.get("used_memory", "0"))
    if limit and used > 0.9 * limit:
        yield Check(
            "redis.memory", "warn", f"{used} of {limit} bytes are used", "raise maxmemory: writes will be refused"
        )


def _check_cluster(info: Mapping[str, str]) -> Iterator[Check]:
    if info.get("cluster_enabled") == "1":
        advice = "make sure that this one address serves all slots: Laneway follows no redirections"
        yield Check("redis.cluster", "warn", "cluster mode is on", advice)


async def _read_info(commands: _Commands) -> dict[str, str]:
    try:
        found = cast("dict[str, object]", await commands.execute_command("INFO"))
    except redis_errors.ResponseError:
        return {}
    return {name: str(value) for name, value in found.items()}


async def _read_config(commands: _Commands, name: str) -> str | None:
    try:
        found = cast("dict[str, str]", await commands.execute_command("CONFIG GET", name))
    except redis_errors.ResponseError:
        return None
    return found.get(name)


def _identify(info: Mapping[str, str]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "valkey", info["valkey_version"]
    return "redis", info.get("redis_version", "0.0")


def _parse(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
