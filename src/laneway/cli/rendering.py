"""Turns on the screen: live on a terminal, step by step into a pipe, or as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from laneway.cli.edits import edit_line
from laneway.cli.failures import describe, message_of
from laneway.cli.output import console, note, one_line, safe, write, write_json
from laneway.cli.questions import question_line, where_to_answer
from laneway.cli.transcript import Called, Edited, Said, Transcript
from laneway.history.records import EventKind, LaneEvent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.text import Text

    from laneway.cli.previews import Line
    from laneway.cli.transcript import Piece
    from laneway.errors import LanewayError
    from laneway.turns import TurnResult

__all__ = ["JsonLines", "LiveScreen", "Pipe", "TurnDisplay", "output_text", "result_json"]


class TurnDisplay:
    """Shows turns, one after another. `begin` and `end` stand around each. This one shows nothing."""

    def history(self, lines: Sequence[tuple[int, Line]], *, left_out: int) -> None:
        """Show the end of a conversation that is resumed: lines by the index of their message."""

    def begin(self) -> None:
        """A turn is about to be submitted."""

    def take(self, event: LaneEvent) -> None:
        """Something happened in the turn."""

    def committed(self, result: TurnResult[Any]) -> None:
        """The turn has its output."""

    def failed(self, error: LanewayError) -> None:
        """The turn ended in another way, or was not accepted."""

    def say(self, text: str) -> None:
        """Tell the reader something that is not of the turn."""

    def end(self) -> None:
        """The turn is over, or left."""


def _output_json(output: object) -> object:
    """An output as JSON has it."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(output, fallback=repr)


def _event_json(event: LaneEvent) -> dict[str, object]:
    """An event as JSON has it."""
    return {
        "event": event.kind.value,
        "turn_id": event.turn_id,
        "step": event.step,
        "attempt": event.attempt,
        "data": dict(event.data),
        "event_id": event.event_id,
    }


def result_json(result: TurnResult[Any]) -> dict[str, object]:
    """A committed turn as JSON has it."""
    return {
        "turn_id": result.turn_id,
        "outcome": result.outcome,
        "output": _output_json(result.output),
        "usage": asdict(result.usage),
        "checkpoint": asdict(result.checkpoint),
        "steps": result.steps,
        "steered_into": result.steered_into,
    }


def output_text(output: object) -> str:
    """An output for people: text as it is, anything else as JSON."""
    return output if isinstance(output, str) else json.dumps(_output_json(output), ensure_ascii=False, indent=2)


class JsonLines(TurnDisplay):
    """Each event on a line of standard output, then the result or the error."""

    @override
    def take(self, event: LaneEvent) -> None:
        write_json(_event_json(event), pretty=False)

    @override
    def committed(self, result: TurnResult[Any]) -> None:
        write_json({"event": "result", **result_json(result)}, pretty=False)

    @override
    def failed(self, error: LanewayError) -> None:
        write_json(describe(error), pretty=False)


class Pipe(TurnDisplay):
    """Answers on standard output, all else on standard error. A step's text is written once it stands."""

    def __init__(self) -> None:
        self._turn = Transcript()

    @override
    def history(self, lines: Sequence[tuple[int, Line]], *, left_out: int) -> None:
        if left_out:
            note(f"({left_out} earlier messages)")
        for _, line in lines:
            note(f"{line.role}{f' {line.tool}' if line.tool else ''}: {one_line(line.text, limit=500)}")

    @override
    def begin(self) -> None:
        self._turn = Transcript()

    @override
    def take(self, event: LaneEvent) -> None:
        self._write(self._turn.take(event))
        tool = event.data.get("tool")
        match event.kind:
            case EventKind.TOOL_CALLED:
                note(f"tool {tool} {one_line(str(event.data.get('arguments', '')))}")
            case EventKind.TOOL_FINISHED:
                note(f"tool {tool}: {event.data.get('outcome')}")
            case EventKind.STEP_RETRIED:
                note(f"step {event.step} is tried again, attempt {event.attempt}")
            case EventKind.HISTORY_REWRITTEN | EventKind.HISTORY_KEPT:
                note(edit_line(event.data))
            case _:
                if question := question_line(event):
                    note(f"{question}: {where_to_answer(event)}")

    @override
    def committed(self, result: TurnResult[Any]) -> None:
        self._write(self._turn.close())
        if missing := self._turn.missing(output_text(result.output)):
            write(missing + "\n")

    @override
    def failed(self, error: LanewayError) -> None:
        note(f"laneway: {one_line(message_of(error), limit=1000)}")

    @override
    def say(self, text: str) -> None:
        note(text)

    def _write(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Said) and piece.text:
                write(piece.text + "\n")


class LiveScreen(TurnDisplay):
    """A terminal. What may still be taken back is in a region that is redrawn; what stands is printed above it.

    Args:
        asks: whether the person who watches is asked for answers; else it says where they can be given.
    """

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._console = console()
        self._turn = Transcript()
        self._live: Live | None = None

    @override
    def history(self, lines: Sequence[tuple[int, Line]], *, left_out: int) -> None:
        from rich.text import Text

        if left_out:
            self._print(Text(f"({left_out} earlier messages)", "dim"))
        for _, line in lines:
            match line.role:
                case "user":
                    self._print(Text(f"> {safe(line.text)}", "bold"))
                case "assistant":
                    self._print(Text(safe(line.text)))
                case "call":
                    self._print(Text(f"· {line.tool} {one_line(line.text)}", "dim"))
                case "system" | "thinking" | "result" | "retry" | "other":
                    pass  # what was never on the screen of a chat

    @override
    def begin(self) -> None:
        from rich.live import Live

        self._turn = Transcript()
        self._live = Live(
            get_renderable=lambda: _Tail(self._turn.open), console=self._console, transient=True, refresh_per_second=12
        )
        self._live.start()

    @override
    def take(self, event: LaneEvent) -> None:
        from rich.text import Text

        for piece in self._turn.take(event):
            self._print(_line(piece))
        if question := question_line(event):
            where = "" if self._asks else f": {where_to_answer(event)}"
            self._print(Text(f"· {question}{where}", "bold"))

    @override
    def committed(self, result: TurnResult[Any]) -> None:
        from rich.text import Text

        for piece in self._turn.close():
            self._print(_line(piece))
        if missing := self._turn.missing(output_text(result.output)):
            self._print(Text(safe(missing)))

    @override
    def failed(self, error: LanewayError) -> None:
        from rich.text import Text

        for piece in self._turn.close():
            line = _line(piece)
            line.stylize("dim strike" if isinstance(piece, Said) else "dim")
            self._print(line)
        self._print(Text(one_line(message_of(error), limit=1000), "red"))

    @override
    def say(self, text: str) -> None:
        from rich.text import Text

        self._print(Text(safe(text), "dim"))

    @override
    def end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._turn.open = []
            live.stop()

    def _print(self, text: Text) -> None:
        self._console.print(text)


class _Tail:
    """The last lines of what a step has shown, as many as the screen has room for."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = list(pieces)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        shown = [_line(piece) for piece in self._pieces] or [Text("…", "dim")]
        lines = [line for text in shown for line in console.render_lines(text, options, pad=False)]
        for line in lines[-max(console.size.height - 2, 1) :]:
            yield from line
            yield Segment.line()


def _line(piece: Piece) -> Text:
    from rich.text import Text

    match piece:
        case Said(text):
            return Text(safe(text))
        case Edited(text):
            return Text(f"· {text}", "dim")
        case Called(tool=tool, arguments=arguments, outcome=outcome):
            mark = {None: "…", "returned": "✓"}.get(outcome, f"✗ {outcome}")
            return Text(one_line(f"· {tool} {arguments}") + f" {mark}", "dim")
