"""How the command fails: lines, JSON, exit codes, and never a bare traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from laneway.cli.commands import run
from laneway.cli.failures import guarded
from laneway.errors import TurnFailed

HEAVY = ("pydantic", "pydantic_ai", "temporalio", "redis", "rich", "langgraph", "watchfiles")


def test_help_imports_no_framework():
    """So it is there at once."""
    code = f"""
import sys
sys.argv[1:] = ["--help"]
from laneway.cli import main
try:
    main()
except SystemExit:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "doctor" in done.stdout


@pytest.mark.parametrize(
    "command", ["dev", "worker", "chat", "send", "lanes", "show", "export", "import", "cancel", "doctor"]
)
def test_each_command_has_help_and_json(command: str, capsys: pytest.CaptureFixture[str]):
    assert run([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frobnicate"], "laneway: No such command 'frobnicate'; see `laneway --help`\n"),
        (["show", "only-one"], "laneway: Missing argument 'AGENT'; see `laneway show --help`\n"),
        (["lanes", "--nope"], "laneway: No such option: --nope; see `laneway lanes --help`\n"),
    ],
)
def test_a_command_line_that_is_none_is_one_line_with_where_to_look(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == 2
    assert capsys.readouterr().err == line


def test_a_timeout_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):
    for value in ("0", "-1", "nan", "inf", "soon"):
        assert run(["send", "app.py", "c", "a", "p", "--timeout", value]) == 2
        assert "--timeout" in capsys.readouterr().err


def test_with_json_an_error_is_an_object_on_standard_output(capsys: pytest.CaptureFixture[str]):
    """With a stable code and the message."""
    assert run(["frobnicate", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found == {"error": "BadUsage", "message": "No such command 'frobnicate'; see `laneway --help`"}
    assert run(["send", "missing.py", "c", "a", "p", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "ConfigurationError"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["send", "shop.py", "c", "nobody", "hi"],
            "no agent 'nobody' is registered here; registered: 'pricer', 'talker'",
        ),
        (["send", "shop.py", "c", "talker", "  "], "the prompt is empty: give it some text"),
        (["send", "shop.py", "", "talker", "hi"], "the conversation id is empty: give it 1 to 200 characters"),
        (["send", "shop.py", "x" * 201, "talker", "hi"], "the conversation id has 201 characters"),
        (["send", "shop.py", "c", "talker", "hi", "--turn-id", "a\nb"], "the turn id 'a\\nb' has a control character"),
        (["show", "c", " a"], "the agent's name ' a' has"),
        (["lanes", "-c", "c\t"], "the conversation id 'c\\t' has a control character"),
        (["cancel", "c", "a", ""], "the turn id is empty: give it 1 to 200 characters"),
        (["dev", "nothing.py"], "APP 'nothing.py': the file nothing.py does not exist; APP is"),
        (["worker", "nothing.py"], "APP 'nothing.py': the file nothing.py does not exist; APP is"),
        (["chat", "nothing.py", "a"], "APP 'nothing.py': the file nothing.py does not exist; APP is"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_before_anything_is_connected(
    arguments: list[str],
    line: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """No server is there, and none is missed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LANEWAY_REDIS_URL", "redis://127.0.0.1:1/0")
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"laneway: {line}")
    assert (told.out, told.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["lanes"],
        ["show", "c", "talker"],
        ["export", "c", "talker"],
        ["cancel", "c", "talker", "t"],
        ["send", "shop.py", "c", "talker", "hi"],
        ["chat", "shop.py", "talker"],
        ["worker", "shop.py"],
    ],
)
def test_servers_that_are_down_are_one_line_that_says_where_was_looked(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Neither a `laneway dev` nor what the variables name."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LANEWAY_REDIS_URL", "redis://:secret@127.0.0.1:1/0")
    assert run(arguments) == 1
    assert capsys.readouterr().err == (
        "laneway: no `laneway dev` runs on .laneway, and Redis does not answer at redis://127.0.0.1:1/0 (connection "
        "refused); start it, for example with `laneway dev`, or set LANEWAY_REDIS_URL\n"
    )


def test_a_variable_that_cannot_work_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LANEWAY_REDIS_URL", "http://elsewhere")
    assert run(["doctor"]) == 2
    assert "LANEWAY_REDIS_URL='http://elsewhere' must start with redis://" in capsys.readouterr().err


def _fail() -> None:
    raise RuntimeError("a bug")


def test_an_error_that_nobody_meant_is_one_line_that_says_how_to_see_more(capsys: pytest.CaptureFixture[str]):
    assert guarded(_fail, as_json=False) == 1
    told = capsys.readouterr().err
    assert told.startswith(
        "laneway: this should not have happened: RuntimeError: a bug; run it again with LANEWAY_DEBUG=1"
    )
    assert "Traceback" not in told


def test_debug_shows_the_traceback_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LANEWAY_DEBUG", "1")
    assert guarded(_fail, as_json=True) == 1
    told = capsys.readouterr()
    assert "Traceback" in told.err
    assert json.loads(told.out)["error"] == "InternalError"


def test_a_message_of_many_lines_is_told_on_one(capsys: pytest.CaptureFixture[str]):
    def fail() -> None:
        raise TurnFailed(
            "turn 't' failed:\n  ValueError: a\n  b", turn_id="t", error_type="ValueError", error_message="a"
        )

    assert guarded(fail, as_json=False) == 1
    assert capsys.readouterr().err == "laneway: turn 't' failed: ValueError: a b\n"


def test_ctrl_c_is_quiet(capsys: pytest.CaptureFixture[str]):
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert guarded(interrupted, as_json=False) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_has_gone_is_no_error():
    """As in `laneway show … | head -1`."""
    code = """
import sys
from laneway.cli.failures import guarded
sys.exit(guarded(lambda: print("x" * 1_000_000), as_json=False))
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141
