"""What commands write goes out, whatever the encoding of the terminal, and ends well where its reader has gone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from laneway.cli.failures import READER_GONE, guarded, report
from laneway.cli.output import table, take_any_text, write, write_json
from laneway.errors import InvalidInput

TEXTS = ["漢字 ✓", "é", "\U0001f600", "half of an emoji \ud83d"]


ENCODINGS = ["ascii", "latin-1", "utf-8"]


def to_bytes(monkeypatch: pytest.MonkeyPatch, encoding: str) -> io.BytesIO:
    """What standard output is given from now on, in an encoding."""
    found = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(found, encoding=encoding))
    take_any_text()
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_json_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, text: str):
    """With JSON's own escapes where the encoding has no form for a character; errors too."""
    written = to_bytes(monkeypatch, encoding)
    write_json({"text": text})
    report(InvalidInput(text), as_json=True)
    first, second = written.getvalue().decode(encoding).splitlines()
    assert json.loads(first) == {"text": text}
    assert json.loads(second)["message"] == text


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_text_and_tables_are_written_in_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, text: str):
    written = to_bytes(monkeypatch, encoding)
    write(f"{text}\n")
    table(("title",), [(text,)])
    sys.stdout.flush()
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    assert written.getvalue().decode(encoding).count(shown) == 2


def test_a_table_whose_reader_has_gone_ends_as_all_output_does(monkeypatch: pytest.MonkeyPatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert guarded(lambda: table(("title",), [("x" * 100,)] * 2000), as_json=False) == READER_GONE


def test_a_command_takes_an_encoding_without_its_marks():
    """In a process of its own: with `✗`, which ASCII has not."""
    done = subprocess.run(
        [sys.executable, "-m", "laneway.cli", "doctor", "--data-dir", "nowhere"],
        env={
            **os.environ,
            "PYTHONIOENCODING": "ascii",
            "LANEWAY_TEMPORAL_ADDRESS": "127.0.0.1:1",
            "LANEWAY_REDIS_URL": "redis://127.0.0.1:1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert r"\u2717 temporal" in done.stdout
    assert "should not have happened" not in done.stderr
