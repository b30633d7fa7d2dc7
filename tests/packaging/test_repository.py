"""What the repository promises whoever installs from it: pins without addresses, links, and the error tree."""

import ast
import inspect
import re
import subprocess
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from laneway import errors

ROOT = Path(__file__).parents[2]
LOCK_FILES = re.compile(
    r"(poetry|uv|pdm|conda|pixi|bun)\.lock|Pipfile\.lock|pylock(\..+)?\.toml|yarn\.lock|pnpm-lock\.yaml"
    r"|package-lock\.json|npm-shrinkwrap\.json"
)


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def committed() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [Path(name) for name in listed.split("\0") if name]


def test_constraints_are_names_and_versions_only_sorted_and_each_once() -> None:
    header, *lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert header.startswith("# ")
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+", line)] == []
    names = [canonicalize_name(line.partition("==")[0]) for line in lines]
    assert len(set(names)) == len(names)
    assert [line.lower() for line in lines] == sorted(line.lower() for line in lines)


def test_everything_that_the_package_and_its_extras_need_is_pinned_to_what_is_installed(pins: dict[str, str]) -> None:
    pinned = {str(canonicalize_name(name)): version for name, version in pins.items()}
    installed = {name: distribution(name).version for name in needed_here()}
    assert {name: version for name, version in installed.items() if pinned.get(name) != version} == {}
    only_elsewhere = set(pinned) - set(installed)
    assert only_elsewhere <= needed_on_other_pythons(installed)


def needed_here() -> set[str]:
    """The distributions that pyproject.toml asks for with all extras, and theirs, as far as they are installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    waiting = [Requirement(requirement) for requirement in asked]
    needed: dict[str, set[str]] = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in needed and requirement.extras <= needed[name]:
            continue
        extras = needed.setdefault(name, set())
        extras |= requirement.extras
        waiting += [r for r in requirements_of(name) if any(applies(r, extra) for extra in ("", *extras))]
    return {name for name in needed if is_installed(name)}


def needed_on_other_pythons(names: Iterable[str]) -> set[str]:
    requirements = [r for name in names for r in requirements_of(name) if "python" in str(r.marker)]
    return {canonicalize_name(requirement.name) for requirement in requirements}


def requirements_of(name: str) -> list[Requirement]:
    return [Requirement(r) for r in distribution(name).requires or []] if is_installed(name) else []


def is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_no_lock_file_that_holds_addresses_is_committed() -> None:
    assert [path.as_posix() for path in committed() if LOCK_FILES.fullmatch(path.name)] == []


def test_the_three_links_are_committed_as_links() -> None:
    for folder in ("activities", "history", "workflows"):
        link = ROOT / "src/laneway" / folder
        assert link.is_symlink()
        assert link.readlink() == Path("../..") / folder


def test_the_error_tree_s_all_is_exactly_its_exception_classes() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and not name.startswith("_")
    }
    assert defined == set(errors.__all__)
    assert list(errors.__all__) == sorted(errors.__all__)


def test_every_error_hangs_under_the_root_and_carries_its_name_as_its_code() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)
        assert issubclass(error, errors.LanewayError)
        assert error.code == ("fit-overflow" if name == "RequestTooLarge" else name)
        assert error.__doc__


def test_no_class_exists_twice_for_sync_and_async() -> None:
    """Two copies of one class drift apart: what takes callers of both kinds is one class."""
    shipped = [path for folder in ("activities", "history", "workflows", "src/laneway") for path in _modules(folder)]
    names = {
        node.name
        for path in shipped
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert "SummarizationProcessor" in names
    copies = {form for name in names for form in (f"Async{name}", f"Sync{name}", f"{name}Async", f"{name}Sync")}
    assert copies & names == set()


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))
