"""What a user gets: the wheel, its modules, and that it works where there is no checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("activities", "history", "workflows")

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


def run(command: Sequence[str | Path], *, cwd: Path, expect: int = 0) -> str:
    """What the command printed. It sees no variable that could lead it back to the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LANEWAY_", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == expect, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def copy_of_the_sources(to: Path) -> Path:
    """A clean checkout: a build in the real one would take stale files from an earlier build, and leave its own."""
    for folder in (*LINKED, "src"):
        shutil.copytree(
            ROOT / folder, to / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for file in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / file, to)
    return to


def build(sources: Path, into: Path, *what: str) -> Path:
    run([sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", into, sources], cwd=sources)
    (wheel,) = into.glob("*.whl")
    return wheel


def modules_on_disk() -> set[str]:
    """Every module file as the wheel should name it."""
    package = ROOT / "src/laneway"
    return {
        (Path("laneway") / (Path(folder) / file).relative_to(package)).as_posix()
        for folder, _, files in os.walk(package, followlinks=True)
        for file in files
        if file.endswith(".py")
    }


def modules_of(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = copy_of_the_sources(tmp_path_factory.mktemp("sources"))
    return build(sources, tmp_path_factory.mktemp("wheel"), "--wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel, and sees this one's dependencies but not its editable install."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", folder], cwd=folder.parent)
    python = folder / "bin/python"
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run([sys.executable, "-m", "pip", "--python", python, "install", *quiet, wheel], cwd=folder.parent)
    # A folder named in a .pth file is searched for modules, but its own .pth files are not read.
    purelib = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=folder.parent).strip()
    places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    Path(purelib, "dependencies.pth").write_text("".join(f"{place}\n" for place in places))
    return folder


def python_says(installed: Path, code: str) -> list[str]:
    return run([installed / "bin/python", "-I", "-W", "error", "-c", code], cwd=installed.parent).split()


# The wheel


def test_the_wheel_has_every_module_and_nothing_else(wheel: Path) -> None:
    found = modules_of(wheel)
    assert found == modules_on_disk()
    for folder in LINKED:
        assert f"laneway/{folder}/__init__.py" in found


def test_the_wheel_has_the_marker_that_its_types_may_be_used(wheel: Path) -> None:
    assert "laneway/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_no_bare_folder_name_is_installed(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"laneway"}


def test_the_explicit_package_list_names_every_package(wheel: Path) -> None:
    packages = {name.rpartition("/")[0] for name in modules_of(wheel) if name.endswith("/__init__.py")}
    assert {name.rpartition("/")[0] for name in modules_of(wheel)} == packages


def test_a_source_distribution_builds_the_same_modules(tmp_path: Path) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    assert modules_of(build(sources, tmp_path / "out")) == modules_on_disk()


def test_without_its_links_nothing_is_built_rather_than_a_wheel_that_lacks_three_packages(tmp_path: Path) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    for folder in LINKED:
        link = sources / "src/laneway" / folder
        target = link.readlink()
        link.unlink()
        link.write_text(target.as_posix())  # what git leaves where links are switched off
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "out", sources]
    run(command, cwd=tmp_path, expect=1)
    assert not list(tmp_path.glob("out/*.whl"))


# The wheel, installed


def test_it_is_the_installed_copy_that_is_imported(installed: Path) -> None:
    (place,) = python_says(installed, "import laneway; print(laneway.__file__)")
    assert Path(place).is_relative_to(installed)


def test_every_public_name_can_be_imported(installed: Path) -> None:
    code = "import laneway; [getattr(laneway, name) for name in laneway.__all__]; print(*laneway.__all__)"
    assert {"Laneway", "LocalStack", "PydanticAdapter", "Settings"} <= set(python_says(installed, code))


def test_every_module_can_be_imported_first(installed: Path, wheel: Path) -> None:
    """No module needs another one of the package to have been imported before it."""
    names = sorted(file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in modules_of(wheel))
    code = f"""
import importlib, os, sys
for library in ("langgraph.graph", "pydantic_ai", "redis.asyncio", "temporalio.worker", "typer"):
    importlib.import_module(library)  # here once, not in each child
failed = False
for name in {[name for name in names if not name.endswith("__main__")]}:
    if child := os.fork():
        failed |= os.waitpid(child, 0)[1] != 0
    else:
        importlib.import_module(name)
        os._exit(0)
sys.exit(failed)
"""
    python_says(installed, code)


def test_importing_the_package_loads_no_agent_framework(installed: Path) -> None:
    frameworks = {"anthropic", "langchain", "langchain_core", "langgraph", "mcp", "openai", "pydantic_ai"}
    loaded = python_says(installed, "import sys, laneway; print(*{name.partition('.')[0] for name in sys.modules})")
    assert frameworks & set(loaded) == set()


def test_no_bare_folder_name_can_be_imported(installed: Path) -> None:
    code = f"import importlib.util as u; print(*[n for n in {LINKED} if u.find_spec(n)])"
    assert python_says(installed, code) == []


def test_the_command_says_how_it_is_used(installed: Path) -> None:
    assert "worker" in run([installed / "bin/laneway", "--help"], cwd=installed.parent)


PROVES = """
import asyncio, sys

from laneway.testing import AdapterCase, check_adapter
from my_adapter import PlainAdapter

asked = 0


async def answer(messages):
    global asked
    asked += 1
    prompt = max(i for i, one in enumerate(messages) if one["role"] == "user")
    called = len(messages) > prompt + 1
    if "add" in messages[prompt]["text"] and not called:
        return {"role": "assistant", "text": "", "call": ["add", {"value": 1}]}
    return {"role": "assistant", "text": messages[-1]["text"]}


class Forgetful(PlainAdapter):
    def encode(self, message):
        return super().encode({**message, "text": message["text"] + "."})


def case(kind):
    make = lambda: kind(answer, name="mine", tools={"add": lambda value: value + 1})
    return AdapterCase(make, text_prompt="Hello", tool_prompt="add", asked=lambda: asked)


good, bad = (asyncio.run(check_adapter(case(kind))) for kind in (PlainAdapter, Forgetful))
good.raise_for_failures()
print(len(good.results), len(bad.failures), "pytest" in sys.modules)
"""


def test_an_author_elsewhere_proves_an_adapter_with_what_is_installed(installed: Path, tmp_path: Path) -> None:
    """The example of the page on adapters, in a project of its own: the suite passes it, and finds what is broken."""
    shutil.copy(ROOT / "examples/plain_adapter.py", tmp_path / "my_adapter.py")
    (tmp_path / "prove.py").write_text(PROVES)
    printed = run([installed / "bin/python", "-W", "error", tmp_path / "prove.py"], cwd=tmp_path).split()
    checks, found, needs_pytest = int(printed[0]), int(printed[1]), printed[2]
    assert (checks, needs_pytest) == (12, "False")
    assert found >= 1
