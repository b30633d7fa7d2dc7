"""Every test that the page on mistakes names is there, and none of its lines is without one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """The page's lines: the mistake, and the tests as file and name."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for line in (ROOT / "docs/mistakes.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| the mistake ")):
            mistake, tests = line.strip("| ").rsplit(" | ", 1)
            found.append((mistake, NAMED.findall(tests)))
    return found


def test_every_test_that_the_page_names_is_there():
    made: dict[str, set[str]] = {}
    for mistake, tests in rows():
        assert tests, f"no test is named of: {mistake}"
        for path, name in tests:
            if path not in made:
                tree = ast.parse((ROOT / path).read_text())
                made[path] = {
                    node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            assert name in made[path], f"{path} has no {name}, which is to show: {mistake}"


def test_every_test_of_a_processors_mistake_is_on_the_page():
    named = {name for _, tests in rows() for path, name in tests if path == "tests/processors/test_mistakes.py"}
    tree = ast.parse((ROOT / "tests/processors/test_mistakes.py").read_text())
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert {name for name in tests if name.startswith("test_")} == named
