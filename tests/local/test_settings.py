"""Settings: where they come from, what they refuse, and what they never show."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from laneway.errors import ConfigurationError
from laneway.settings import Settings, redact_url

SECRET = "s3cr3t-w0rd"


def test_defaults_name_servers_on_this_machine() -> None:
    """Without any variable the settings fit a developer's own servers."""
    settings = Settings.load()
    assert settings.temporal_address == "localhost:7233"
    assert settings.redis_url == "redis://localhost:6379/0"
    assert (settings.temporal_namespace, settings.task_queue, settings.redis_prefix) == (
        "default",
        "laneway",
        "laneway",
    )
    assert settings.idle_timeout == timedelta(hours=1)
    assert not settings.tls_enabled


def test_variables_are_read_when_settings_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field has a `LANEWAY_` variable, an empty one counts as unset, and values in code win."""
    monkeypatch.setenv("LANEWAY_TASK_QUEUE", "billing")
    monkeypatch.setenv("LANEWAY_QUEUE_LIMIT", "7")
    monkeypatch.setenv("LANEWAY_TEMPORAL_API_KEY", "")
    settings = Settings.load()
    assert (settings.task_queue, settings.queue_limit, settings.temporal_api_key) == ("billing", 7, None)
    assert Settings(task_queue="other").task_queue == "other"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("01:30:00", timedelta(hours=1.5)),
        ("PT5M", timedelta(minutes=5)),
    ],
)
def test_durations_are_seconds_clock_time_or_iso(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: timedelta
) -> None:
    """A bare number in a variable is seconds, like a number in code."""
    monkeypatch.setenv("LANEWAY_IDLE_TIMEOUT", text)
    assert Settings.load().idle_timeout == expected


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("TEMPORAL_ADDRESS", "http://host:7233", "without a scheme"),
        ("TEMPORAL_ADDRESS", "host", "host:port"),
        ("TEMPORAL_ADDRESS", "host:70000", "65535"),
        ("TEMPORAL_NAMESPACE", " default", "white space"),
        ("TEMPORAL_TLS", "perhaps", '"true" or "false"'),
        ("REDIS_PREFIX", "a{b}", "braces"),
        ("REDIS_PREFIX", "a b", "white space"),
        ("REDIS_DURABILITY", "maybe", "'auto', 'aof' or 'none'"),
        ("QUEUE_LIMIT", "many", "whole number"),
        ("QUEUE_LIMIT", "0", "greater than or equal to 1"),
        ("IDLE_TIMEOUT", "soon", "ISO 8601"),
        ("HEARTBEAT_TIMEOUT", "0", "at least one second"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_rule(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rule: str
) -> None:
    """The message names the variable, the value and the rule that it breaks."""
    monkeypatch.setenv(f"LANEWAY_{variable}", value)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    assert f"LANEWAY_{variable}=" in str(caught.value)
    assert rule in str(caught.value)
    assert value.strip() in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@host/0",
        f"redis://user:{SECRET}@host:99999/0",
        f"redis://user:{SECRET}@host/zero",
        f"redis://user:{SECRET}@/0",
        f"unix://user:{SECRET}@?db=1",
        f"redis://host/0?password={SECRET}&decode_responses=true",
    ],
)
def test_a_bad_redis_url_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Neither the message nor a chained exception shows the credentials."""
    monkeypatch.setenv("LANEWAY_REDIS_URL", url)
    with pytest.raises(ConfigurationError, match="LANEWAY_REDIS_URL") as caught:
        Settings.load()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://:pw@host:6380/3",
        "rediss://user:pw@host:6380/0?ssl_cert_reqs=none",
        "unix:///run/valkey.sock?db=2",
    ],
)
def test_redis_urls_of_three_schemes_are_accepted(url: str) -> None:
    """TCP, TLS and a socket file, with what redis-py knows of options."""
    assert Settings(redis_url=url).redis_url == url


def test_secrets_are_in_no_representation() -> None:
    """A logged settings object gives nothing away."""
    settings = Settings(
        temporal_api_key=SecretStr(SECRET), redis_url=f"redis://user:{SECRET}@host:1/2?password={SECRET}"
    )
    assert SECRET not in repr(settings) + str(settings)
    assert settings.redis_address == "redis://host:1/2"
    assert redact_url("redis://[broken") == "(not a URL)"


def test_an_api_key_or_a_certificate_turns_tls_on() -> None:
    """Credentials never travel in the clear, unless that is what someone set."""
    assert Settings(temporal_api_key=SecretStr("key")).tls_enabled
    assert Settings(temporal_tls_ca_path=Path("ca.pem")).tls_enabled
    with pytest.raises(ConfigurationError, match="LANEWAY_TEMPORAL_TLS is false"):
        Settings(temporal_api_key=SecretStr("key"), temporal_tls=False)


def test_a_certificate_needs_its_key() -> None:
    """Half of a client certificate is refused at once, not at the handshake."""
    with pytest.raises(ConfigurationError, match="belong together"):
        Settings(temporal_tls_cert_path=Path("client.pem"))


def test_heartbeats_closer_than_a_tenth_of_a_second_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(heartbeat_interval=timedelta(seconds=2)).heartbeat_interval == timedelta(seconds=2)
    monkeypatch.setenv("LANEWAY_HEARTBEAT_INTERVAL", "0.01")
    with pytest.raises(ConfigurationError, match=r"LANEWAY_HEARTBEAT_INTERVAL='0.01' must be at least 0.1 seconds"):
        Settings.load()


def test_a_run_of_a_lane_may_be_as_short_as_it_is_and_not_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_MIN_RUN_TIME", "0")
    assert Settings.load().min_run_time == timedelta(0)
    for value in ("-1", "1000000"):
        monkeypatch.setenv("LANEWAY_MIN_RUN_TIME", value)
        with pytest.raises(
            ConfigurationError, match=rf"LANEWAY_MIN_RUN_TIME='{value}' must be between nothing and a day"
        ):
            Settings.load()


def test_a_heartbeat_outlasting_its_step_is_refused() -> None:
    """Such a worker's death would be seen only when the step times out."""
    with pytest.raises(ConfigurationError, match="must not be longer than LANEWAY_STEP_TIMEOUT"):
        Settings(heartbeat_timeout=timedelta(minutes=1), step_timeout=timedelta(seconds=30))


def test_unknown_settings_in_code_are_refused() -> None:
    """A misspelt argument is an error that lists the right ones."""
    with pytest.raises(
        ConfigurationError, match=r"'queue_size' is no setting of Laneway; the settings are .*queue_limit"
    ):
        Settings.model_validate({"queue_size": 5})


def test_settings_are_frozen() -> None:
    """What a worker was started with cannot change under it."""
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.queue_limit = 5


def test_settings_survive_json() -> None:
    """Another process can be handed the very same settings."""
    settings = Settings(queue_limit=5, idle_timeout=timedelta(minutes=3))
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings
