"""APP: what it can name, and what is said where it cannot be loaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from laneway.cli.apps import AppTarget, load_app
from laneway.errors import ConfigurationError

APP = """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from laneway import Laneway, PydanticAdapter

app = Laneway(agents={"a": PydanticAdapter(Agent(TestModel()))})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(dedent(text))


def agents_of(text: str) -> list[str]:
    return sorted(load_app(AppTarget.parse(text)).agents)


@pytest.mark.parametrize("text", ["app_one.py", "app_one.py:app", "app_one:app", "app_one", "./app_one.py"])
def test_a_file_or_a_module_names_its_application(text: str):
    """With the variable's name or, where there is one only, without."""
    write("app_one.py", APP)
    assert agents_of(text) == ["a"]


def test_two_names_of_one_application_are_one():
    """`from x import app as application` does not make a second one."""
    write("app_two.py", APP + "again = app\n")
    assert agents_of("app_two.py") == ["a"]


def test_a_file_can_import_what_stands_beside_it():
    """Also where the current folder is another."""
    write("sub/beside_it.py", APP)
    write("sub/app_three.py", "from beside_it import app")
    assert agents_of("sub/app_three.py") == ["a"]


def test_a_file_of_a_package_can_import_relatively():
    """It is imported as what it is: a module of the package."""
    write("shop_package/__init__.py", "")
    write("shop_package/parts.py", APP)
    write("shop_package/main.py", "from .parts import app")
    assert agents_of("shop_package/main.py") == ["a"]
    assert agents_of("shop_package.main:app") == ["a"]


def test_a_file_may_have_the_name_of_an_imported_module():
    """It takes nobody's place."""
    write("redis.py", APP)
    import redis

    assert agents_of("redis.py") == ["a"]
    assert sys.modules["redis"] is redis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "missing.py",
            "APP 'missing.py': the file missing.py does not exist; APP is file.py, file.py:name or module:name",
        ),
        ("folder.py", "APP 'folder.py': the file folder.py is a folder; APP is"),
        ("no_such_module:app", "APP 'no_such_module:app': there is no module 'no_such_module' here; APP is"),
        ("some thing", "APP 'some thing' is neither a file nor a module; APP is"),
        ("", "APP '' is neither a file nor a module; APP is"),
        ("app.py:1x", "'1x' in APP 'app.py:1x' is no name of a variable; APP is"),
    ],
)
def test_what_is_no_app_is_refused(text: str, message: str):
    """With the forms that an APP has."""
    Path("folder.py").mkdir()
    with pytest.raises(ConfigurationError, match="^" + re.escape(message)):
        load_app(AppTarget.parse(text))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import nothing_like_it",
            "ModuleNotFoundError: No module named 'nothing_like_it' (bad.py, line 1: import nothing_like_it)",
        ),
        ("x = (", "SyntaxError: '(' was never closed (bad.py, line 1: x = ()"),
        ("def f():\n    return {}['key']\nf()", "KeyError: 'key' (bad.py, line 2: return {}['key'])"),
        (
            "import json\njson.loads('no')",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (bad.py, line 2: json.loads('no'))",
        ),
        (
            "from laneway import Laneway\napp = Laneway(agents={})",
            "ConfigurationError: Laneway needs at least one agent",
        ),
    ],
)
def test_an_app_that_does_not_import_is_told_with_the_users_own_last_line(source: str, message: str):
    """In one line: the exception, its message, and where it came from in code of the user's."""
    write("bad.py", source)
    with pytest.raises(ConfigurationError) as caught:
        load_app(AppTarget.parse("bad.py"))
    assert str(caught.value).startswith(f"bad.py does not import: {message}")
    assert str(caught.value).endswith("; correct it and try again")


def test_an_app_that_ends_the_process_is_told():
    """`sys.exit()` at import must not end the command in silence."""
    write("leaves.py", "import sys\nsys.exit(0)")
    with pytest.raises(ConfigurationError, match=r"^leaves.py ended the process: SystemExit: 0 \(leaves.py, line 2: "):
        load_app(AppTarget.parse("leaves.py"))


def test_an_app_without_a_laneway_is_told_what_to_write():
    write("without.py", "x = 1")
    with pytest.raises(ConfigurationError, match=r"^without.py holds no Laneway; write app = Laneway\("):
        load_app(AppTarget.parse("without.py"))


def test_an_app_with_several_laneways_is_told_to_choose():
    write("several.py", APP + "other = Laneway(agents=app.agents)\n")
    message = r"^several.py holds several Laneways \(app, other\); say several.py:app or several.py:other$"
    with pytest.raises(ConfigurationError, match=message):
        load_app(AppTarget.parse("several.py"))
    assert agents_of("several.py:other") == ["a"]


def test_a_name_that_is_missing_or_no_laneway_is_told_with_the_ones_that_are():
    write("named.py", APP + "number = 1\n")
    with pytest.raises(ConfigurationError, match=r"^named.py has no 'wrong'; say named.py:app$"):
        load_app(AppTarget.parse("named.py:wrong"))
    with pytest.raises(ConfigurationError, match=r"^'number' in named.py is a int, not a Laneway; say named.py:app$"):
        load_app(AppTarget.parse("named.py:number"))


def test_the_watched_folder_is_that_of_the_file_or_of_the_top_package():
    write("code/app.py", "")
    write("pack/__init__.py", "")
    write("pack/deep/__init__.py", "")
    assert AppTarget.parse("code/app.py").folder == Path.cwd() / "code"
    assert AppTarget.parse("pack.deep:app").folder == Path.cwd() / "pack"
    assert AppTarget.parse("alone:app").folder == Path.cwd()
