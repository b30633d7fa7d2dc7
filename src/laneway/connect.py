"""Open a Temporal client and a Redis client from `Settings`, or say in one sentence why that cannot be.

Both are probed once without retries, so that a wrong address fails in milliseconds with its reason; only then do
the patient policies of a long-lived connection apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import temporalio.client
import temporalio.converter
from redis import exceptions as redis_errors
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from laneway.activities.telemetry import Instruments
from laneway.activities.wire_payloads import WIRE
from laneway.errors import ConfigurationError, LanewayError, ServiceUnavailable
from laneway.redis_connection import quick
from laneway.settings import ENV_PREFIX, Settings

__all__ = [
    "PROBE_TIMEOUT",
    "check_redis",
    "connect_redis",
    "connect_temporal",
    "interceptors_of",
    "temporal_unavailable",
]

PROBE_TIMEOUT = timedelta(seconds=5)
"""How long a server may take to answer the first question."""

_SOCKET_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 1_000
_RETRIES = 8
# A replica that takes no writes was the primary until just now: its name may lead to another server already, so it is
# looked up again with a new connection.
_RETRIED = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ReadOnlyError)


async def connect_temporal(
    settings: Settings,
    *,
    data_converter: temporalio.converter.DataConverter = WIRE,
    interceptors: Sequence[temporalio.client.Interceptor] = (),
) -> temporalio.client.Client:
    """Connect to Temporal and make sure that the namespace exists.

    Args:
        settings: where Temporal is, and how it is reached.
        data_converter: what turns values into payloads; the default one needs no extra package on either side.
        interceptors: around its calls, and those of workers that use it.

    Raises:
        ServiceUnavailable: nothing answers at the address, or what answers is not Temporal.
        ConfigurationError: the namespace is missing, the credentials are refused, or a TLS file cannot be read.
    """
    tls = _read_tls(settings)
    api_key = settings.temporal_api_key.get_secret_value() if settings.temporal_api_key else None
    try:
        async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
            client = await temporalio.client.Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                api_key=api_key,
                data_converter=data_converter,
                interceptors=interceptors,
                tls=tls,
                connect_timeout=PROBE_TIMEOUT,
            )
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=settings.temporal_namespace), retry=False, timeout=PROBE_TIMEOUT
            )
    except TimeoutError:
        raise _temporal_unreachable(settings, f"no answer within {PROBE_TIMEOUT.total_seconds():g} s") from None
    except RPCError as error:
        raise _temporal_refused(settings, error) from error
    except RuntimeError as error:  # what the SDK raises for everything that goes wrong while it connects
        raise _explain_connect_error(settings, str(error)) from error
    return client


def interceptors_of(instruments: Instruments | None) -> Sequence[temporalio.client.Interceptor]:
    """Temporal's own spans, where an application has telemetry. They need the extra `otel`.

    Raises:
        ConfigurationError: it is not installed.
    """
    if instruments is None:
        return ()
    try:
        from laneway.workflows.tracing import TurnTracingInterceptor
    except ImportError as error:
        raise ConfigurationError(f"telemetry needs `pip install 'laneway[otel]'`: {error}") from error
    return (TurnTracingInterceptor(instruments.tracer),)


def temporal_unavailable(error: RPCError, what: str) -> ServiceUnavailable:
    """What a call raises that Temporal did not take, once connected: what did not happen, and why."""
    return ServiceUnavailable(f"{what}: {error.message} ({error.status.name}). Check {ENV_PREFIX}TEMPORAL_ADDRESS")


async def connect_redis(settings: Settings) -> Redis:
    """Open a pooled client and make sure that the server answers. Close it with `aclose()`.

    Replies are bytes. Commands that meet a lost connection are sent again (up to 8 times within some 3 s): what is
    written through this client must bear being written twice, as Laneway's scripts do. A reply may take 10 s at
    most, so a blocking read must ask for less.

    Raises:
        ServiceUnavailable: nothing answers at the URL, or the server is still loading its data.
        ConfigurationError: the server refuses the credentials, or the database number.
    """
    # The URL's own options win over these. The protocol is left to redis-py: RESP3 on the wire, with the reply shapes
    # that it documents. Maintenance notifications would cost one refused command per connection on plain servers.
    pool = ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
        settings.redis_url,
        max_connections=_MAX_CONNECTIONS,
        socket_timeout=_SOCKET_TIMEOUT_S,
        socket_connect_timeout=PROBE_TIMEOUT.total_seconds(),
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
        client_name="laneway",
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    pool.connection_class = quick(pool.connection_class)
    client = Redis.from_pool(pool)
    try:
        await check_redis(client, settings)
    except BaseException:
        await client.aclose()
        raise
    client.set_retry(Retry(ExponentialWithJitterBackoff(base=0.02, cap=1.0), _RETRIES, _RETRIED))
    return client


async def check_redis(client: Redis, settings: Settings) -> None:
    """Ask the server for one PING.

    Raises:
        ServiceUnavailable: it does not answer, or is still loading its data.
        ConfigurationError: it refuses the credentials, or the database number.
    """
    try:
        async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
            await client.ping()  # pyright: ignore[reportUnknownMemberType]
    except redis_errors.BusyLoadingError as error:
        raise ServiceUnavailable(
            f"Redis at {settings.redis_address} is still loading its data; try again when it has"
        ) from error
    except (redis_errors.AuthenticationError, redis_errors.ResponseError) as error:
        raise ConfigurationError(
            f"Redis at {settings.redis_address} refuses this connection ({error}); correct the user, password or "
            f"database number in {ENV_PREFIX}REDIS_URL"
        ) from error
    except (redis_errors.RedisError, OSError) as error:
        reason = _redis_reason(error)
        if settings.redis_url.startswith("rediss:"):
            reason += "; is it one that speaks TLS, as rediss:// asks for?"
        raise ServiceUnavailable(
            f"Redis does not answer at {settings.redis_address} ({reason}); start it, for example with "
            f"`laneway dev`, or set {ENV_PREFIX}REDIS_URL"
        ) from error


def _redis_reason(error: Exception) -> str:
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError | redis_errors.TimeoutError):
        return f"no answer within {PROBE_TIMEOUT.total_seconds():g} s"
    return str(error)


def _read_tls(settings: Settings) -> bool | TLSConfig:
    if not settings.tls_enabled:
        return False
    files = (settings.temporal_tls_ca_path, settings.temporal_tls_cert_path, settings.temporal_tls_key_path)
    if not any(files):
        return True
    return TLSConfig(
        server_root_ca_cert=_read_pem("TEMPORAL_TLS_CA_PATH", settings.temporal_tls_ca_path),
        client_cert=_read_pem("TEMPORAL_TLS_CERT_PATH", settings.temporal_tls_cert_path),
        client_private_key=_read_pem("TEMPORAL_TLS_KEY_PATH", settings.temporal_tls_key_path),
    )


def _read_pem(name: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{ENV_PREFIX}{name}={str(path)!r} cannot be read ({error.strerror}); give the path of a PEM file"
        ) from None
    if b"-----BEGIN" not in content:
        raise ConfigurationError(f"{ENV_PREFIX}{name}={str(path)!r} is no PEM file; give the path of one")
    return content


def _temporal_unreachable(settings: Settings, reason: str) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"Temporal does not answer at {settings.temporal_address} ({reason}); start it, for example with "
        f"`laneway dev`, or set {ENV_PREFIX}TEMPORAL_ADDRESS"
    )


def _temporal_refused(settings: Settings, error: RPCError) -> LanewayError:
    if error.status is RPCStatusCode.NOT_FOUND:
        return ConfigurationError(
            f"Temporal at {settings.temporal_address} has no namespace {settings.temporal_namespace!r}; create it "
            f"(`temporal operator namespace create -n {settings.temporal_namespace}`) or set "
            f"{ENV_PREFIX}TEMPORAL_NAMESPACE"
        )
    if error.status in (RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED):
        return _temporal_credentials(settings, error.message)
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return ConfigurationError(
            f"Temporal at {settings.temporal_address} refuses the namespace {settings.temporal_namespace!r} "
            f"({error.message}); set {ENV_PREFIX}TEMPORAL_NAMESPACE"
        )
    return _temporal_unreachable(settings, error.message)


def _temporal_credentials(settings: Settings, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Temporal at {settings.temporal_address} refuses the credentials ({reason}); correct "
        f"{ENV_PREFIX}TEMPORAL_API_KEY or the {ENV_PREFIX}TEMPORAL_TLS_* files for namespace "
        f"{settings.temporal_namespace!r}"
    )


def _explain_connect_error(settings: Settings, text: str) -> LanewayError:
    # The SDK's core hands its errors over as debug text of Rust values; only their meaning is fit for a reader.
    lowered = text.lower()
    if "unauthenticated" in lowered or "permissiondenied" in lowered or "permission denied" in lowered:
        return _temporal_credentials(settings, "not authenticated")
    if "connection refused" in lowered:
        return _temporal_unreachable(settings, "connection refused")
    if "dns error" in lowered:
        return _temporal_unreachable(settings, "the host name is not known")
    if "get_system_info" in lowered:
        return _temporal_unreachable(settings, "what answers there is no Temporal server, or it wants TLS")
    if "certificate" in lowered or "tls" in lowered or "invalidmessage" in lowered:
        return _temporal_unreachable(settings, "the TLS handshake failed")
    return _temporal_unreachable(settings, text)
