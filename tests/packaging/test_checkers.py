"""The checkers see every folder, linked ones too, and each module once.

They fail silently: with a wrong setting they skip a linked folder, or check it a second time under its bare name.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("activities", "history", "workflows")
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.long, pytest.mark.packaging, pytest.mark.timeout(300)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project's shape and configuration, with the same mistake in every folder."""
    package = tmp_path / "src/laneway"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for folder in LINKED:
        (tmp_path / folder).mkdir()
        (package / folder).symlink_to(Path("../..") / folder)
    for folder in (package, *(package / name for name in LINKED)):
        (folder / "__init__.py").write_text('"""A package."""\n')
        (folder / "mistaken.py").write_text('"""A module."""\n\nnumber: int = "text"\n')
    (package / "errors.py").write_text('"""A module."""\n')
    return tmp_path


def reported(text: str, pattern: str) -> Counter[str]:
    return Counter(re.findall(pattern, text, re.MULTILINE))


def run(checkout: Path, *command: str | Path) -> str:
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


EVERYWHERE = Counter(f"src/laneway/{folder}mistaken.py" for folder in ("", *(f"{name}/" for name in LINKED)))


def test_mypy_checks_each_module_once(checkout: Path) -> None:
    out = run(checkout, BIN / "mypy", "--cache-dir", checkout / "cache")
    assert reported(out, r"^(\S+mistaken\.py):\d+: error") == EVERYWHERE


def test_pyright_checks_each_module_once_and_strictly(checkout: Path) -> None:
    for folder in ("", *LINKED):
        untyped = checkout / "src/laneway" / folder / "mistaken.py"
        untyped.write_text(untyped.read_text() + "\n\ndef untyped(value):\n    return value\n")
    found = json.loads(run(checkout, BIN / "pyright", "--outputjson"))["generalDiagnostics"]
    rules = Counter((Path(d["file"]).relative_to(checkout).as_posix(), d["rule"]) for d in found)
    assert Counter(file for file, rule in rules if rule == "reportAssignmentType") == EVERYWHERE
    assert Counter(file for file, rule in rules if rule == "reportUnknownParameterType") == EVERYWHERE


def test_ruff_checks_each_module_once_and_refuses_the_bare_names(checkout: Path) -> None:
    for folder in ("src/laneway", *LINKED):
        (checkout / folder / "mistaken.py").write_text('"""A module."""\n\nimport history\n\n__all__ = ["history"]\n')
    out = run(checkout, BIN / "ruff", "check", "--no-cache", "--output-format", "concise", ".")
    assert reported(out, r"^(\S+):3:8: TID251") == Counter(
        f"{folder}/mistaken.py" for folder in ("src/laneway", *LINKED)
    )


@pytest.mark.parametrize(
    ("module", "source", "contract"),
    [
        ("history", "import laneway.workflows.mistaken", "Imports go one way"),
        ("history", "import redis", "Within history only the link of the store imports redis"),
        ("history", "import temporalio", "Nothing in history reaches Temporal"),
        ("workflows", "import laneway.activities.mistaken", "Workflows reach neither redis nor an agent framework"),
    ],
)
def test_a_contract_on_imports_is_broken_by_what_it_forbids(
    checkout: Path, module: str, source: str, contract: str
) -> None:
    (checkout / "activities/mistaken.py").write_text('"""A module."""\n\nimport redis\n')
    (checkout / module / "mistaken.py").write_text(f'"""A module."""\n\n{source}\n')
    found = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as main; main()"
    out = run(checkout, sys.executable, "-c", found, "--no-cache")
    assert reported(out, r"^(.+) BROKEN$") == Counter([contract])
