"""Connecting: what works, and one sentence for each way in which it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.asyncio import Connection
from redis.exceptions import DataError

from laneway.connect import connect_redis, connect_temporal
from laneway.embedded import ValkeyServer
from laneway.errors import ConfigurationError, ServiceUnavailable
from laneway.local import LocalStack
from laneway.redis_connection import quick
from laneway.settings import Settings

CLOSED = "127.0.0.1:1"


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    server = ValkeyServer(tmp_path)
    await server.start()
    yield server
    server.kill()


async def test_a_closed_port_is_named_with_what_to_do() -> None:
    """Nothing listening is known at once, without waiting for retries."""
    settings = Settings(temporal_address=CLOSED, redis_url=f"redis://user:s3cr3t@{CLOSED}/0")
    async with asyncio.timeout(2):
        with pytest.raises(
            ServiceUnavailable, match=r"127\.0\.0\.1:1 \(connection refused\).*LANEWAY_TEMPORAL_ADDRESS"
        ):
            await connect_temporal(settings)
        with pytest.raises(ServiceUnavailable, match=r"redis://127\.0\.0\.1:1/0 \(connection refused\)") as caught:
            await connect_redis(settings)
    assert "s3cr3t" not in str(caught.value)


async def test_an_unknown_host_is_named() -> None:
    """A misspelt host is told from one that is down."""
    settings = Settings(temporal_address="no-such-host.invalid:7233", redis_url="redis://no-such-host.invalid")
    with pytest.raises(ServiceUnavailable, match=r"no-such-host.invalid:7233 .*host name"):
        await connect_temporal(settings)
    with pytest.raises(ServiceUnavailable, match=r"no-such-host\.invalid"):
        await connect_redis(settings)


async def test_the_wrong_kind_of_server_is_named(valkey: ValkeyServer) -> None:
    """Redis at Temporal's address is no Temporal."""
    with pytest.raises(ServiceUnavailable, match=f"Temporal does not answer at {valkey.address}"):
        await connect_temporal(Settings(temporal_address=valkey.address))


async def test_a_missing_namespace_is_told_from_a_missing_server() -> None:
    """The message names the namespace and how to create it."""
    async with LocalStack(None) as stack:
        settings = stack.settings.model_copy(update={"temporal_namespace": "elsewhere"})
        with pytest.raises(ConfigurationError, match="no namespace 'elsewhere'; create it"):
            await connect_temporal(settings)
        client = await connect_temporal(stack.settings)
        assert client.namespace == "default"


async def test_redis_replies_are_bytes_and_survive_a_restart(valkey: ValkeyServer) -> None:
    """The pool connects anew by itself when the server was away."""
    redis = await connect_redis(Settings(redis_url=f"redis://{valkey.address}/0"))
    await redis.set("key", "value")
    valkey.kill()
    restart = asyncio.create_task(valkey.start())
    assert await redis.get("key") == b"value"
    await restart
    await redis.aclose()


async def test_refused_credentials_are_a_configuration_error(valkey: ValkeyServer) -> None:
    """A wrong password is never shown, and not taken for a server that is down."""
    settings = Settings(redis_url=f"redis://nobody:s3cr3t@{valkey.address}/0")
    with pytest.raises(ConfigurationError, match=r"refuses this connection.*LANEWAY_REDIS_URL") as caught:
        await connect_redis(settings)
    assert "s3cr3t" not in str(caught.value)


async def test_tls_that_is_asked_of_a_server_without_it_is_told(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server just says nothing."""
    monkeypatch.setattr("laneway.connect.PROBE_TIMEOUT", timedelta(seconds=1))
    with pytest.raises(ServiceUnavailable, match="is it one that speaks TLS, as rediss:// asks for"):
        await connect_redis(Settings(redis_url=f"rediss://{valkey.address}/0"))


async def test_a_missing_database_is_a_configuration_error(valkey: ValkeyServer) -> None:
    """A database number that the server does not have is known at once."""
    with pytest.raises(ConfigurationError, match="database number"):
        await connect_redis(Settings(redis_url=f"redis://{valkey.address}/99"))


async def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Neither a missing file nor one without PEM reaches the handshake."""
    with pytest.raises(ConfigurationError, match=r"LANEWAY_TEMPORAL_TLS_CA_PATH=.*missing.pem.*cannot be read"):
        await connect_temporal(Settings(temporal_tls_ca_path=tmp_path / "missing.pem"))
    (tmp_path / "empty.pem").touch()
    with pytest.raises(ConfigurationError, match="no PEM file"):
        await connect_temporal(Settings(temporal_tls_ca_path=tmp_path / "empty.pem"))


async def test_tls_to_a_server_without_it_fails_with_a_reason() -> None:
    """An API key is not sent to a server that does not speak TLS."""
    async with LocalStack(None) as stack:
        settings = Settings(temporal_address=stack.settings.temporal_address, temporal_api_key=SecretStr("s3cr3t"))
        with pytest.raises(ServiceUnavailable, match="TLS") as caught:
            await connect_temporal(settings)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "name"),
        ("CONFIG GET", "append*"),
        ("EVALSHA", "5d1a", 1, b"\xff\x00\r\n", "\u00fc\U0001f600", 0, -17, ""),
        ("SET", "name", b"x" * 100_000),
        ("INCRBYFLOAT", "name", 1.5),
        ("SET", "name", bytearray(b"x"), "EX", 5),
    ],
)
def test_commands_are_put_together_as_by_redis_py(command: tuple[str, str | bytes | int]) -> None:
    ours, theirs = quick(Connection)(), Connection()
    assert b"".join(ours.pack_command(*command)) == b"".join(map(bytes, theirs.pack_command(*command)))


def test_what_is_no_argument_of_a_command_is_refused_as_by_redis_py() -> None:
    with pytest.raises(DataError, match="NoneType"):
        quick(Connection)().pack_command("SET", "name", None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="bool"):
        quick(Connection)().pack_command("SET", "name", True)
