"""What commands write: text and tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "announce",
    "as_duration",
    "as_json_text",
    "as_time",
    "console",
    "note",
    "one_line",
    "safe",
    "table",
    "take_any_text",
    "write",
    "write_json",
]

# What is not a terminal has no width of its own, and lines that are broken are no use to `grep`.
_PIPE_WIDTH = 240
_KEPT_CONTROLS = "\n\t"


def take_any_text() -> None:
    """Have this process's output take text that its encoding has no form for: as an escape, and not as an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def as_json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON: text as it is where standard output can write it, else with JSON's own escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def write_json(value: object, *, pretty: bool = True) -> None:
    """Write a JSON value: laid out, or on one line for streams of them."""
    write(as_json_text(value, indent=2 if pretty and sys.stdout.isatty() else None) + "\n")


def write(text: str) -> None:
    """Write to standard output, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Say something to whoever watches, beside the output."""
    sys.stderr.write(f"{safe(text)}\n")
    sys.stderr.flush()


def console(*, stderr: bool = False) -> Console:
    """A console that shows text as it is: data is never read as markup."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - rich calls it while it handles one, and would end the process with 1

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Screen(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """Write a table.

    Args:
        columns: their titles.
        rows: a cell for each column.
        right: the titles of columns of numbers.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numbers = set(right)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(safe(value)) for value in row))
    console().print(made)


def safe(text: str) -> str:
    """Text that cannot steer a terminal: control characters but for line ends and tabs are shown as `�`."""
    return "".join(
        char if char in _KEPT_CONTROLS or unicodedata.category(char) != "Cc" else "�"
        for char in text.replace("\r\n", "\n")
    )


def one_line(text: str, *, limit: int = 120) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(safe(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_time(seconds: float | None) -> str | None:
    """A moment in ISO 8601, UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_duration(duration: timedelta) -> str:
    """A duration for people."""
    seconds = duration.total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def announce(event: str, text: str, *, as_json: bool, **fields: object) -> None:
    """Say that something has happened in a command that runs on: a line of text, or of JSON with its fields."""
    if as_json:
        write_json({"event": event, **fields}, pretty=False)
    else:
        write(f"{safe(text)}\n")
