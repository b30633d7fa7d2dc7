"""The files in deploy/ are well formed, hang together, and keep the promises that the documentation makes for them."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTRUCTION = re.compile(
    r"ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, each with its arguments on one line."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    logical = re.sub(r"\\[ \t]*\n\s*", " ", text).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in logical if line.strip())]


def arguments(dockerfile: list[tuple[str, str]], instruction: str) -> list[str]:
    return [rest for word, rest in dockerfile if word == instruction]


def words(value: str) -> list[str]:
    """The exec form: a JSON list of strings."""
    found = json.loads(value)
    assert isinstance(found, list)
    assert all(isinstance(word, str) for word in found)
    return found


def options(command: list[str]) -> dict[str, str]:
    return dict(zip(command[1::2], command[2::2], strict=True))


# compose.yaml


def test_the_compose_file_fits_its_schema(compose: dict[str, Any]) -> None:
    schema = json.loads((Path(__file__).parent / "compose.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    errors = [f"{'.'.join(map(str, e.path))}: {e.message}" for e in Draft202012Validator(schema).iter_errors(compose)]
    assert errors == []


def test_the_schema_refuses_what_compose_would_refuse(compose: dict[str, Any]) -> None:
    validator = Draft202012Validator(json.loads((Path(__file__).parent / "compose.schema.json").read_text()))
    for change in (
        {"image": "valkey/valkey"},
        {"comand": ["valkey-server"]},
        {"depends_on": {"postgres": {"condition": "healthy"}}},
        {"ports": ["6379:6379"]},
        {"environment": {"DB_PORT": 5432}},
    ):
        broken = {**compose, "services": {**compose["services"], "valkey": {**compose["services"]["valkey"], **change}}}
        assert not validator.is_valid(broken), change


def test_services_wait_for_services_that_exist_and_can_fulfil_the_condition(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, (name, needed)
            match how["condition"]:
                case "service_healthy":
                    assert "healthcheck" in services[needed], (name, needed)
                case "service_completed_successfully":
                    assert services[needed]["restart"].startswith("on-failure"), (name, needed)


def test_every_lasting_service_is_health_checked_and_restarted(compose: dict[str, Any]) -> None:
    lasting = {name: s for name, s in compose["services"].items() if not s["restart"].startswith("on-failure")}
    assert set(lasting) == {"postgres", "temporal", "valkey", "worker"}
    assert all(service["restart"] == "unless-stopped" and service["healthcheck"] for service in lasting.values())


def test_valkey_never_evicts_and_has_every_commit_on_disk_and_on_a_volume(compose: dict[str, Any]) -> None:
    valkey = compose["services"]["valkey"]
    assert valkey["command"][0] == "valkey-server"
    given = options(valkey["command"])
    assert given["--appendonly"] == "yes"
    assert given["--appendfsync"] == "always"
    assert given["--maxmemory-policy"] == "noeviction"
    assert valkey["volumes"] == ["valkey-data:/data"]


def test_temporal_keeps_its_data_in_postgresql_on_a_volume(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["temporal"]["environment"]["DB"] == "postgres12"
    assert services["temporal"]["environment"]["POSTGRES_SEEDS"] in services
    assert services["postgres"]["volumes"] == ["postgres-data:/var/lib/postgresql/data"]
    assert services["temporal"]["image"].partition(":")[2] == services["temporal-schema"]["image"].partition(":")[2]


def test_two_workers_run_and_reach_both_servers(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert worker["environment"]["LANEWAY_TEMPORAL_ADDRESS"] == "temporal:7233"
    assert worker["environment"]["LANEWAY_REDIS_URL"] == "redis://valkey:6379/0"
    assert set(worker["depends_on"]) == {"temporal-namespace", "valkey"}
    assert worker["healthcheck"]["test"] == ["CMD", "laneway", "doctor", "--json"]


def test_every_mounted_file_and_volume_exists(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            source = re.sub(r"^\$\{\w+:-([^}]*)\}", r"\1", mount).split(":")[0]
            known = (DEPLOY / source).is_file() if source.startswith(".") else source in compose["volumes"]
            assert known, (name, mount)


def test_no_secret_is_written_down(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if key.endswith(("PASSWORD", "PWD", "KEY", "TOKEN")):
                assert value.startswith("${"), (name, key)


def test_every_image_is_pinned_to_a_version(compose: dict[str, Any], dockerfile: list[tuple[str, str]]) -> None:
    images = [service["image"] for service in compose["services"].values()]
    images += [rest.split()[0] for rest in arguments(dockerfile, "FROM")]
    for image in images:
        tag = image.partition(":")[2]
        assert re.match(r"\d+\.\d+", tag), image


def test_temporal_s_dynamic_configuration_parses() -> None:
    found = yaml.safe_load((DEPLOY / "temporal.yaml").read_text())
    assert found
    for key, rules in found.items():
        assert all(set(rule) <= {"value", "constraints"} and "value" in rule for rule in rules), key


# Dockerfile


def test_the_dockerfile_is_made_of_instructions_and_begins_with_from(dockerfile: list[tuple[str, str]]) -> None:
    assert dockerfile[0][0] == "FROM"
    for instruction, rest in dockerfile:
        assert INSTRUCTION.fullmatch(instruction), instruction
        assert rest, instruction


def test_every_copied_source_exists_and_is_let_into_the_build(dockerfile: list[tuple[str, str]]) -> None:
    let_in = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    stages = {rest.split()[2] for rest in arguments(dockerfile, "FROM") if " AS " in rest}
    copied: set[str] = set()
    for rest in arguments(dockerfile, "COPY"):
        flags = [word for word in rest.split() if word.startswith("--")]
        *sources, _ = [word for word in rest.split() if not word.startswith("--")]
        if flags:
            (flag,) = flags
            assert flag.removeprefix("--from=") in stages
            continue
        copied.update(sources)
    assert all((ROOT / source).exists() for source in copied), copied
    assert copied == let_in


def test_the_linked_folders_are_copied_with_the_links(dockerfile: list[tuple[str, str]]) -> None:
    copied = {word for rest in arguments(dockerfile, "COPY") for word in rest.split()}
    for link in (ROOT / "src/laneway").iterdir():
        if link.is_symlink():
            assert Path(os.path.relpath(link.resolve(), ROOT)).as_posix() in copied


def test_the_image_runs_a_worker_as_an_unprivileged_user(dockerfile: list[tuple[str, str]]) -> None:
    *_, user = arguments(dockerfile, "USER")
    assert user not in {"root", "0"}
    assert any("useradd " in rest and rest.endswith(user) for rest in arguments(dockerfile, "RUN"))
    assert words(*arguments(dockerfile, "ENTRYPOINT")) == ["laneway"]
    assert words(*arguments(dockerfile, "CMD")) == ["worker", "app.py"]


def test_the_image_asks_the_doctor_for_its_health(dockerfile: list[tuple[str, str]]) -> None:
    (check,) = arguments(dockerfile, "HEALTHCHECK")
    flags, _, command = check.partition("CMD ")
    assert words(command) == ["laneway", "doctor", "--json"]
    assert all(re.fullmatch(r"--(interval|timeout|start-period)=\d+s|--retries=\d+", flag) for flag in flags.split())


def test_the_image_installs_only_pinned_versions(dockerfile: list[tuple[str, str]]) -> None:
    installs = [part for rest in arguments(dockerfile, "RUN") for part in rest.split("&&") if " install " in part]
    assert installs
    assert all("--constraint constraints.txt" in part for part in installs)
