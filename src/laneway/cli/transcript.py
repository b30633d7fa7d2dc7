"""What a turn has shown so far: its events, sorted into what stands and what may still be taken back.

A step that is tried again says everything anew. So what a step has said stands only once a later step, or the turn's
end, shows that the step is done; a tool call stands as soon as it has finished, since no finished call runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from laneway.cli.edits import edit_line
from laneway.history.records import EventKind, LaneEvent

__all__ = ["Called", "Edited", "Piece", "Said", "Transcript"]


@dataclass(frozen=True)
class Said:
    """Text of the model."""

    text: str


@dataclass(frozen=True)
class Called:
    """A tool call.

    Attributes:
        call_id: names it within its step.
        tool: the tool.
        arguments: what it was given, as JSON.
        outcome: how it finished; None while it runs.
    """

    call_id: str
    tool: str
    arguments: str
    outcome: str | None = None


@dataclass(frozen=True)
class Edited:
    """An edit of the history that the step's request was sent with, in words."""

    text: str


Piece = Said | Called | Edited


@dataclass
class Transcript:
    """One turn, as its events come.

    Attributes:
        step, attempt: where the turn is.
        open: what the step has shown, and may still be taken back.
        said: the last text that stands.
    """

    step: int = 0
    attempt: int = 1
    open: list[Piece] = field(default_factory=list[Piece])
    said: str = ""

    def take(self, event: LaneEvent) -> Sequence[Piece]:
        """Add an event, and return what stands by it: in order, each piece once."""
        if event.terminal or event.kind is EventKind.REQUEST_PENDING:
            # A step that ended waiting is done: what it waits for is told when that is kept.
            return self.close()
        if event.step < self.step or (event.step == self.step and event.attempt < self.attempt):
            return ()  # an attempt that was replaced, and does not know it yet
        stands: Sequence[Piece] = ()
        if event.step > self.step:
            stands = self.close()
        elif event.attempt > self.attempt:
            self.open = [piece for piece in self.open if isinstance(piece, Called) and piece.outcome is not None]
        self.step, self.attempt = event.step, event.attempt
        self._add(event)
        return stands

    def close(self) -> Sequence[Piece]:
        """The step is done: what it has shown stands."""
        stands, self.open = self.open, []
        for piece in stands:
            if isinstance(piece, Said):
                self.said = piece.text
        return stands

    def _add(self, event: LaneEvent) -> None:
        data = event.data
        call_id = str(data.get("call_id") or "")
        match event.kind:
            case EventKind.TEXT_DELTA:
                last = self.open[-1] if self.open else None
                if isinstance(last, Said):
                    self.open[-1] = Said(last.text + str(data.get("text", "")))
                else:
                    self.open.append(Said(str(data.get("text", ""))))
            case EventKind.TOOL_CALLED:
                self.open.append(Called(call_id, str(data.get("tool", "")), str(data.get("arguments", ""))))
            case EventKind.TOOL_FINISHED:
                outcome = str(data.get("outcome", "returned"))
                for index, piece in enumerate(self.open):
                    if isinstance(piece, Called) and piece.call_id == call_id and piece.outcome is None:
                        self.open[index] = replace(piece, outcome=outcome)
                        return
                self.open.append(Called(call_id, str(data.get("tool", "")), "", outcome))
            case EventKind.HISTORY_REWRITTEN | EventKind.HISTORY_KEPT:
                # Told once the step is done, and done before the step said anything.
                edits = sum(isinstance(piece, Edited) for piece in self.open)
                self.open.insert(edits, Edited(edit_line(data)))
            case _:
                pass

    def missing(self, output: str) -> str:
        """What of a turn's output has not been shown: all of it, or nothing.

        Deltas are lost where a retry finds an answer that was staged before, and where the stream was trimmed.
        """
        return "" if output.strip() == self.said.strip() else output
