"""The demo as a process: what it shows, what it exits with, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.demo.__main__ import main
from examples.demo.script import Conversation, reply_to
from tests.support.children import child
from tests.support.provider import Answerable, ProviderRequest, ProviderServer, call

ROOT = Path(__file__).parents[2]
_DEMO_SECONDS = 400

FRAMEWORKS = pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])

pytestmark = [pytest.mark.long, pytest.mark.timeout(_DEMO_SECONDS + 20)]


@dataclass
class Given:
    """A demo that was given."""

    code: int
    report: dict[str, Any]
    shown: str


def environment(scratch: Path, **extra: str) -> dict[str, str]:
    own = ("LANEWAY_", "DIR", "FRAMEWORK")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "TMPDIR": str(scratch), **extra}


def give(scratch: Path, *options: str, **extra: str) -> Given:
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--json", *options],
        cwd=ROOT,
        env=environment(scratch, **extra),
        capture_output=True,
        text=True,
        timeout=_DEMO_SECONDS,
    )
    # Nothing is left, whatever happened.
    assert list(scratch.iterdir()) == []
    return Given(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """A small folder with spaces, other scripts, markup, an empty file, a binary file and a link that leads out."""
    folder = tmp_path / "my files"
    (folder / "ünï cödé").mkdir(parents=True)
    (folder / "ünï cödé" / "日本 語.txt").write_text("grüße an alle Menschen\nwelcome world and all people\n")
    (folder / "a b.txt").write_text("hello world\na second line that is a bit longer\n")
    (folder / "it`s [bold]odd.txt").write_text("odd [red]names[/red] in this world\n")
    (folder / "empty.txt").touch()
    (folder / "bin.dat").write_bytes(b"\0\1\2" * 50)
    (folder / "passwords").symlink_to(tmp_path)
    return folder


def check_figures(figures: Mapping[str, Any]) -> None:
    assert figures["turns_committed"] == 10
    assert figures["workers_killed"] == 3
    assert figures["stack_restarts"] == 1
    assert figures["model_calls_repeated_after_staged"] == 0
    assert figures["tool_calls_repeated"] == 0
    assert figures["texts_in_temporal"] == 0
    # A head, ten turns, and two entries or more for each of these.
    assert figures["digests_verified"] >= 31


@FRAMEWORKS
def test_on_this_checkout_it_survives_three_kills_and_a_restart_and_every_answer_is_right(
    tmp_path: Path, framework: str
) -> None:
    given = give(tmp_path / "scratch", FRAMEWORK=framework)
    assert given.code == 0, given.shown
    assert given.report["ok"]
    check_figures(given.report["figures"])
    assert given.report["figures"]["answers_right"] == 10
    assert given.report["figures"]["model_calls"] == 18
    assert given.report["figures"]["model_calls_repeated"] == 1
    for point in ("during a model request", "after an answer was staged", "during a batch of tools"):
        assert point in given.shown


def test_a_wrong_expectation_and_an_altered_entry_are_found_and_make_it_fail(tmp_path: Path, odd_folder: Path) -> None:
    given = give(tmp_path / "scratch", "--dir", str(odd_folder), "--plant", "answer", "--plant", "entry")
    assert given.code == 1
    assert not given.report["ok"]
    assert len(given.report["problems"]) == 2, given.report["problems"]
    answers, digests = sorted(given.report["problems"])
    assert answers.startswith("answers right: turn-5 lacks '(planted)'")
    assert digests.startswith("digests verified in Redis: entry 3 of")


@FRAMEWORKS
async def test_on_a_folder_with_odd_names_a_real_sdk_has_the_same_conversation_and_answers_are_only_reported(
    tmp_path: Path, odd_folder: Path, framework: str
) -> None:
    """All are right but the one that is wrong on purpose, which a real model may be: it is told, and no failure."""

    def script(request: ProviderRequest) -> Answerable:
        reply = reply_to(as_conversation(request))
        if not isinstance(reply, str):
            return [call(wanted.tool, wanted.arguments) for wanted in reply]
        return "I forgot." if request.turn == 8 else reply

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with ProviderServer(script) as server:
        extra = {
            "DIR": str(odd_folder),
            "LANEWAY_DEMO_MODEL": "openai:gpt-5-mini",
            "OPENAI_API_KEY": "test",
            "OPENAI_BASE_URL": server.openai_url,
        }
        async with (
            asyncio.timeout(_DEMO_SECONDS),
            child(
                *(sys.executable, "-m", "examples.demo", "--json", "--framework", framework),
                cwd=ROOT,
                env=environment(scratch, **extra),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process,
        ):
            out, shown = await process.communicate()
    assert process.returncode == 0, shown.decode()
    report, told = json.loads(out), shown.decode()
    check_figures(report["figures"])
    assert report["figures"]["answers_right"] == 9
    assert "turn-8 lacks" in told
    assert "There are 4 `.txt` files in this folder, and 5 files of any kind." in told
    assert "日本 語.txt" in told


def as_conversation(request: ProviderRequest) -> Conversation:
    """What a provider was sent, as the script reads it."""
    conversation = Conversation()
    for entry in request.transcript:
        match entry.role:
            case "user":
                conversation.asked(entry.text)
            case "assistant":
                conversation.answered(entry.text)
            case "call":
                conversation.called(entry.id, entry.name, json.loads(entry.text))
            case "result":
                try:
                    conversation.returned(entry.id, json.loads(entry.text))
                except ValueError:
                    conversation.returned(entry.id, entry.text)
            case "system" | "thinking":
                pass
    return conversation


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_all_that_it_started(tmp_path: Path, odd_folder: Path, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--dir", str(odd_folder)],
        cwd=ROOT,
        env=environment(scratch, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "turn 1" in line:
                    break
            process.send_signal(number)
            rest = process.stdout.read()
            assert process.wait(120) == 130
        finally:
            process.kill()  # of one that has ended it takes no notice
    assert "interrupted" in rest
    assert list(scratch.iterdir()) == []
    assert [line for line in running() if str(scratch) in line] == []


def running() -> list[str]:
    return subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("arrange", "said"),
    [
        ("missing", "is no folder"),
        ("empty", "holds no text to ask about"),
        ("binary", "holds no text to ask about"),
        ("model", "give openai:NAME or anthropic:NAME"),
        ("key", "cannot be used"),
        ("framework", "FRAMEWORK='crewai' is refused: give pydantic_ai or langchain"),
    ],
)
@FRAMEWORKS
def test_what_cannot_be_given_is_said_in_one_line(
    tmp_path: Path,
    arrange: str,
    said: str,
    framework: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "folder"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("LANEWAY_DEMO_MODEL", raising=False)
    monkeypatch.setenv("FRAMEWORK", "crewai" if arrange == "framework" else framework)
    if arrange != "missing":
        folder.mkdir()
    if arrange == "binary":
        (folder / "x.bin").write_bytes(b"\0")
    if arrange == "model":
        monkeypatch.setenv("LANEWAY_DEMO_MODEL", "gpt-5")
    if arrange == "key":
        monkeypatch.setenv("LANEWAY_DEMO_MODEL", "openai:gpt-5")
    assert main(["--dir", str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
