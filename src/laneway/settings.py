"""Where the servers are and how lanes behave: one frozen value, read from `LANEWAY_*` variables when it is built.

Nothing is read at import. Whatever cannot work is refused here, with the variable's name, before anything is
connected: a bad limit that is found inside a workflow would wedge its lane. Passwords, keys and the credentials of
a URL never reach an error message or a `repr`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from pydantic import Field, ModelWrapValidatorHandler, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from laneway.errors import ConfigurationError

__all__ = ["ENV_PREFIX", "RedisDurability", "Settings", "redact_url"]

ENV_PREFIX = "LANEWAY_"
"""What the name of every environment variable of Laneway starts with."""

RedisDurability = Literal["auto", "aof", "none"]

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_REDIS_SCHEMES = ("redis", "rediss", "unix")
_RESERVED_OPTIONS = frozenset({"decode_responses", "encoding", "encoding_errors", "legacy_responses", "protocol"})
_SECRET_FIELDS = frozenset({"temporal_api_key", "redis_url"})
_ADVICE = {
    "timedelta": 'give seconds ("90"), hours, minutes and seconds ("01:30:00") or ISO 8601 ("PT90S")',
    "bool": 'give "true" or "false"',
    "int": "give a whole number",
}


class Settings(BaseSettings):
    """Settings of clients, workers and lanes. Frozen; use `model_copy(update=…)` or new values for a variant.

    Every field is also an environment variable: `queue_limit` is `LANEWAY_QUEUE_LIMIT`. An empty variable counts as
    unset. Values given in code win over the environment.

    Raises:
        ConfigurationError: a value cannot work. It names the variable, the value (unless secret) and what to do.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=True,
    )

    temporal_address: str = "localhost:7233"
    """`host:port` of Temporal's gRPC front end."""
    temporal_namespace: str = Field(default="default", min_length=1)
    task_queue: str = Field(default="laneway", min_length=1, max_length=200)
    """The Temporal task queue that workers poll and lanes run on."""
    temporal_api_key: SecretStr | None = None
    temporal_tls: bool | None = None
    """TLS to Temporal. Unset, it is on exactly when an API key or a certificate path is given."""
    temporal_tls_ca_path: Path | None = None
    """PEM file of the authorities that may sign the server's certificate; unset, the system's."""
    temporal_tls_cert_path: Path | None = None
    """PEM file of the client certificate (mTLS), as Temporal Cloud wants it."""
    temporal_tls_key_path: Path | None = None
    """PEM file of the client certificate's private key."""

    redis_url: str = Field(default="redis://localhost:6379/0", repr=False)
    """`redis://`, `rediss://` (TLS) or `unix://`, with credentials and database number where needed."""
    redis_prefix: str = Field(default="laneway", min_length=1, max_length=100)
    """What the name of every key starts with; no braces, because a lane's hash tag comes after it."""
    redis_durability: RedisDurability = "auto"
    """`auto`: a commit waits for the append-only file where the server can say so; `aof`: it must; `none`: never."""

    queue_limit: int = Field(default=100, ge=1, le=10_000)
    """Turns that may wait in one lane before `LaneBusy`."""
    max_turns_per_run: int = Field(default=15, ge=1, le=5_000)
    """Turns after which a lane's workflow continues as new, with the next one."""
    min_run_time: timedelta = timedelta(seconds=1)
    """How long a run of a lane's workflow lasts at least, before it continues as new for its number of turns. Temporal
    delays a run that follows a shorter one (`history.continueAsNewMinInterval`, 1 s), and its first turn with it."""
    idle_timeout: timedelta = timedelta(hours=1)
    """How long a lane's workflow stays open without work."""
    heartbeat_timeout: timedelta = timedelta(seconds=5)
    """How soon the silence of a step's worker counts as its death."""
    heartbeat_interval: timedelta = timedelta(seconds=0.5)
    """How often a running step tells Temporal that it lives, and hears of a cancellation; at least twice in
    `heartbeat_timeout`, whatever is set. Where Temporal is paid by the action, each is one."""
    step_timeout: timedelta = timedelta(minutes=10)
    """The longest that one attempt of one step may take (start to close). An activity takes a further step within the
    first tenth of it, so that one has nine tenths at least."""
    stage_ttl: timedelta = timedelta(days=30)
    """How long staged data of a turn that never ended is kept in Redis."""
    max_prompt_bytes: int = Field(default=10_000_000, ge=1)
    history_cache_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Decoded histories that one worker keeps in memory; 0 turns the cache off."""
    events_max_length: int = Field(default=1_000, ge=10)
    """Events kept on a lane's stream, about."""
    events_turns: int = Field(default=4, ge=1)
    """Committed turns whose events are kept on a lane's stream. Of earlier ones `turn.events()` tells only the end:
    what they said is in the history. A reader that follows events long after they happened wants more of them."""

    @classmethod
    def load(cls) -> Self:
        """Read the `LANEWAY_*` variables of this process.

        Raises:
            ConfigurationError: see the class.
        """
        return cls()

    @property
    def tls_enabled(self) -> bool:
        """Whether Temporal is reached over TLS: `temporal_tls`, or what the credentials imply when it is unset."""
        return self._tls_implied if self.temporal_tls is None else self.temporal_tls

    @property
    def redis_address(self) -> str:
        """`redis_url` with its credentials left out, for messages and logs."""
        return redact_url(self.redis_url)

    @property
    def _tls_implied(self) -> bool:
        return self.temporal_api_key is not None or any(
            (self.temporal_tls_ca_path, self.temporal_tls_cert_path, self.temporal_tls_key_path)
        )

    @field_validator("temporal_address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if "://" in value:
            raise ValueError('must be host:port without a scheme; write it as "localhost:7233"')
        match = _ADDRESS.fullmatch(value)
        if match is None or not 0 < int(match["port"]) < 65_536:
            raise ValueError('must be host:port with a port from 1 to 65535, such as "localhost:7233"')
        return value

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise ValueError("must be a URL with a port from 1 to 65535; fix its host and port") from None
        if parts.scheme not in _REDIS_SCHEMES:
            raise ValueError(f"must start with redis://, rediss:// or unix://; its scheme is {parts.scheme!r}")
        if unusable := _RESERVED_OPTIONS & parse_qs(parts.query).keys():
            # In redis-py the options of a URL win over arguments, and these would change every reply's type.
            raise ValueError(f"must leave {', '.join(sorted(unusable))} to Laneway; remove it from the URL")
        if parts.scheme == "unix":
            if not unquote(parts.path).strip("/"):
                raise ValueError('must name a socket file, such as "unix:///run/valkey/valkey.sock"')
        else:
            if not parts.hostname or port == 0:
                raise ValueError('must name a host and port, such as "redis://localhost:6379/0"')
            database = parts.path.strip("/")
            if database and not database.isdecimal():
                raise ValueError(f"must end in a database number such as /0; its path is {parts.path!r}")
        return value

    @field_validator("redis_prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        if re.search(r"[{}\s]", value) or not value.isprintable():
            raise ValueError('must not hold braces, white space or control characters; use letters, as in "laneway"')
        return value

    @field_validator("temporal_namespace", "task_queue")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value != value.strip() or not value.isprintable():
            raise ValueError("must not begin or end with white space, nor hold control characters; remove them")
        return value

    @field_validator(
        "idle_timeout",
        "min_run_time",
        "heartbeat_timeout",
        "heartbeat_interval",
        "step_timeout",
        "stage_ttl",
        mode="before",
    )
    @classmethod
    def _read_seconds(cls, value: object) -> object:
        # pydantic reads a bare number in code, but not in a string, which is all that a variable can hold.
        if isinstance(value, str):
            with suppress(ValueError):
                return float(value)
        return value

    @field_validator("idle_timeout", "heartbeat_timeout", "step_timeout", "stage_ttl")
    @classmethod
    def _check_duration(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=1):
            raise ValueError("must be at least one second; give a longer duration")
        return value

    @field_validator("min_run_time")
    @classmethod
    def _check_run_time(cls, value: timedelta) -> timedelta:
        if not timedelta(0) <= value <= timedelta(days=1):
            raise ValueError("must be between nothing and a day; give a duration in between")
        return value

    @field_validator("heartbeat_interval")
    @classmethod
    def _check_interval(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=0.1):
            raise ValueError("must be at least 0.1 seconds; give a longer duration")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.temporal_tls_cert_path is None) != (self.temporal_tls_key_path is None):
            raise ValueError(
                f"{ENV_PREFIX}TEMPORAL_TLS_CERT_PATH and {ENV_PREFIX}TEMPORAL_TLS_KEY_PATH belong together; "
                "set both or none"
            )
        if self.temporal_tls is False and self._tls_implied:
            raise ValueError(
                f"{ENV_PREFIX}TEMPORAL_TLS is false, but an API key or a TLS file is given, which would travel or be "
                "ignored in the clear; remove one of the two"
            )
        if self.heartbeat_timeout > self.step_timeout:
            raise ValueError(
                f"{ENV_PREFIX}HEARTBEAT_TIMEOUT ({self.heartbeat_timeout}) must not be longer than "
                f"{ENV_PREFIX}STEP_TIMEOUT ({self.step_timeout}); shorten the first or lengthen the second"
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _translate(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # Here and not in `load`, so that values given in code fail in the same way as variables do.
        try:
            return handler(data)
        except ValidationError as error:
            problems = [_explain(details, cls) for details in error.errors(include_url=False)]
        # Outside of the except block: pydantic's error holds the raw input, secrets included.
        raise ConfigurationError("; ".join(problems))


def redact_url(url: str) -> str:
    """A Redis URL without its user, password and query, for messages and logs."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return SplitResult(parts.scheme, host, parts.path, "", "").geturl()
    except ValueError:
        return "(not a URL)"


def _explain(details: ErrorDetails, settings: type[Settings]) -> str:
    name = str(details["loc"][0]) if details["loc"] else ""
    rule = details["msg"].removeprefix("Value error, ")
    if not name:
        return rule
    variable = f"{ENV_PREFIX}{name.upper()}"
    if details["type"] == "extra_forbidden":
        return f"{name!r} is no setting of Laneway; the settings are {', '.join(settings.model_fields)}"
    value = "(not shown)" if name in _SECRET_FIELDS else repr(details["input"])
    if name == "redis_url" and isinstance(details["input"], str):
        value = repr(redact_url(details["input"]))
    if details["type"] == "value_error":
        return f"{variable}={value} {rule}"
    annotation = str(settings.model_fields[name].annotation)
    advice = next((advice for kind, advice in _ADVICE.items() if kind in annotation), "correct or unset it")
    return f"{variable}={value} is refused: {rule[:1].lower()}{rule[1:]}; {advice}"
