"""What the demo shows while it runs, and at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laneway import EventKind, LaneEvent

from examples.demo.figures import Figure

__all__ = ["Timeline"]

_LABEL_WIDTH = 9


class Timeline:
    """A line for each thing that happens. A terminal shows an answer's text as it comes, a file when it is whole."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._text = ""
        self._shown = 0
        self._open = False

    @property
    def seconds(self) -> float:
        """How long it has been going."""
        return time.monotonic() - self._began

    def say(self, label: str, text: str, style: str = "") -> None:
        """Show one line."""
        self._end_text()
        self._console.print(self._lead(label, style) + Text(_plain(text), style), soft_wrap=True)

    def event(self, event: LaneEvent) -> None:
        """Show what happens in a turn."""
        match event.kind:
            case EventKind.TEXT_DELTA:
                self._show_text(str(event.data["text"]))
            case EventKind.TOOL_CALLED:
                self.say("tool", f"{event.data['tool']}({_arguments(str(event.data['arguments']))})", "cyan")
            case EventKind.STEP_RETRIED:
                dropped = "; what it had said is dropped" if self._text else ""
                self.say("again", f"step {event.step + 1} goes on in another worker{dropped}", "yellow")
                self._forget_text()
            case EventKind.TURN_FAILED | EventKind.TURN_CANCELLED:
                self.say("failed", f"{event.data.get('error')}: {event.data.get('message')}", "bold red")
            case EventKind.TURN_COMMITTED:
                self._end_text()
                self._forget_text()
            case EventKind.TURN_STARTED | EventKind.TOOL_FINISHED | EventKind.THINKING_DELTA:
                pass

    @property
    def has_text(self) -> bool:
        """Whether an answer has begun to come."""
        return bool(self._text)

    def table(self, figures: Sequence[Figure]) -> None:
        """Show the closing table."""
        self._end_text()
        table = Table("", "counted", "must be", "", title="What the evidence says", title_justify="left", box=SIMPLE)
        for figure in figures:
            mark = Text("ok", "green") if figure.ok else Text("OFF", "bold red")
            table.add_row(figure.title, Text(figure.shown), Text(figure.rule, "dim"), mark)
        self._console.print()
        self._console.print(table)
        for figure in figures:
            if figure.why and (not figure.ok or figure.name == "answers_right"):
                self._console.print(Text(f"{figure.title}: {_plain(figure.why)}", "red"), soft_wrap=True)

    def _show_text(self, text: str) -> None:
        if self._console.is_terminal:
            if not self._open:
                self._console.print(self._lead("agent", "green"), end="")
            self._console.print(Text(_indented(text), "green"), end="", soft_wrap=True)
            self._shown += len(text)
        self._text += text
        self._open = True

    def _end_text(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._console.is_terminal:
            self._console.print()
        else:
            self._console.print(self._lead("agent", "") + Text(_indented(self._text[self._shown :])), soft_wrap=True)
            self._shown = len(self._text)

    def _forget_text(self) -> None:
        self._text, self._shown = "", 0

    def _lead(self, label: str, style: str) -> Text:
        return Text.assemble((f"{self.seconds:6.1f}s ", "dim"), (f" {label:<{_LABEL_WIDTH}}", f"bold {style}".strip()))


def _arguments(text: str) -> str:
    try:
        arguments: Mapping[str, object] = json.loads(text)
    except ValueError:
        return text
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _indented(text: str) -> str:
    return _plain(text).replace("\n", "\n" + " " * (_LABEL_WIDTH + 9))


def _plain(text: str) -> str:
    """Text without what a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text.expandtabs(4))
