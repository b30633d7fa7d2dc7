"""What a lane keeps about its turns, and says while they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from enum import StrEnum
from typing import Literal, Self

from laneway.history.checkpoints import CheckpointRef
from laneway.history.delegation import ChildRef
from laneway.history.editing import EditReceipt
from laneway.history.model_calls import CallReceipt
from laneway.history.repair import ImportRepair
from laneway.history.stored_json import compact_json

__all__ = ["EventKind", "LaneEvent", "Outcome", "StepAttempt", "TurnRecord", "TurnTally", "TurnUsage", "UncertainCall"]

Outcome = Literal["committed", "failed", "cancelled"]
"""How a turn ended; there is no fourth way."""


@dataclass(frozen=True)
class TurnUsage:
    """What a turn used, as its framework counted it. Tokens are the provider's own figures."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True)
class StepAttempt:
    """One failed attempt at a step that was tried again, or that ended the turn."""

    step: int
    attempt: int
    error_type: str
    error_message: str


@dataclass(frozen=True)
class UncertainCall:
    """A tool call that must not be made twice, and was interrupted: nobody knows whether it took effect.

    Attributes:
        tool: the tool.
        call_id: the call's id.
        arguments: what it was called with, as JSON, cut where that is long.
    """

    tool: str
    call_id: str
    arguments: str

    def to_json(self) -> bytes:
        """The stored form."""
        return compact_json(astuple(self))

    @classmethod
    def from_json(cls, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        return cls(*json.loads(blob))


@dataclass(frozen=True)
class TurnTally:
    """What a turn has used and edited so far; kept between its steps.

    Attributes:
        usage: what it has used.
        edits: receipts of the edits of its history that were accepted, and of those that asked a model in vain.
        noops: how often a history processor changed nothing.
        skips: how often its condition answered False.
        steered: the messages that it has taken in while it ran, in order: their turn ids, and their prompts' digests.
    """

    usage: TurnUsage = TurnUsage()
    edits: tuple[EditReceipt, ...] = ()
    noops: int = 0
    skips: int = 0
    steered: tuple[tuple[str, str], ...] = ()

    def add(
        self,
        *,
        usage: TurnUsage,
        edits: Sequence[EditReceipt],
        noops: int,
        skips: int,
        steered: Sequence[tuple[str, str]] = (),
    ) -> TurnTally:
        """The tally after more of the turn; `usage` is of the whole turn, the others are new."""
        return replace(
            self,
            usage=usage,
            edits=(*self.edits, *edits),
            noops=self.noops + noops,
            skips=self.skips + skips,
            steered=(*self.steered, *(one for one in steered if one not in self.steered)),
        )

    @property
    def calls(self) -> list[CallReceipt]:
        """The model calls of its history processors."""
        return [call for edit in self.edits for call in edit.calls]

    @property
    def taken(self) -> list[str]:
        """The turn ids of the messages that it has taken in."""
        return [turn_id for turn_id, _ in self.steered]

    def to_json(self) -> bytes:
        """The stored form."""
        edits = [astuple(edit) for edit in self.edits]
        data: list[object] = [astuple(self.usage), edits, self.noops, self.skips]
        if self.steered:
            data.append(self.steered)
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        usage, edits, noops, skips, *more = json.loads(blob)
        steered = tuple((turn_id, digest) for turn_id, digest in more[0]) if more else ()
        return cls(TurnUsage(*usage), tuple(map(EditReceipt.from_values, edits)), noops, skips, steered)


@dataclass(frozen=True)
class TurnRecord:
    """How a turn ended. Written once, together with the commit or the abort.

    Attributes:
        turn_id: the turn.
        outcome: how it ended.
        number: its place among the lane's ended turns, from 1; the store gives it, 0 until then.
        prompt_digest: names the prompt, so that the same id with another prompt is found out.
        started_at: when its first step began, in seconds since 1970 (UTC); None where none did.
        ended_at: when it ended.
        steps: how many steps it took.
        tally: what it used and edited.
        checkpoint: the lane's head after it.
        output: the output as JSON; None where `output_in_history` or where there is none.
        output_in_history: the output is the text of the turn's last entry, not stored twice.
        error_type: for a failed turn, the class name of the cause.
        error_message: for a failed turn, the cause's message.
        attempts: the attempts that failed on the way.
        repairs: for an import, what was repaired.
        children: the turns that it handed work to, in order.
        uncertain: the calls of tools that must not run twice whose outcome is unknown.
        steered_into: the turn that took this one's message in while it ran: output and checkpoint are that turn's.
            None for a turn that ran by itself.
        output_type: names the type of the output, where its adapter did; None for one that is text in the history.
    """

    turn_id: str
    outcome: Outcome
    prompt_digest: str
    started_at: float | None
    ended_at: float
    number: int = 0
    steps: int = 0
    tally: TurnTally = TurnTally()
    checkpoint: CheckpointRef | None = None
    output: str | None = None
    output_in_history: bool = False
    error_type: str | None = None
    error_message: str | None = None
    attempts: tuple[StepAttempt, ...] = ()
    repairs: tuple[ImportRepair, ...] = ()
    children: tuple[ChildRef, ...] = ()
    uncertain: tuple[UncertainCall, ...] = ()
    steered_into: str | None = None
    output_type: str | None = None

    @property
    def usage(self) -> TurnUsage:
        """What it used."""
        return self.tally.usage

    def to_json(self) -> bytes:
        """The stored form but for the number, which the store puts before it. Default values are left out."""
        data: dict[str, object] = {
            "o": _LETTERS[self.outcome],
            "p": self.prompt_digest,
            "t": [_milliseconds(self.started_at), _milliseconds(self.ended_at)],
            "s": self.steps,
        }
        usage = list(asdict(self.usage).values())
        while usage and not usage[-1]:
            usage.pop()
        if usage:
            data["u"] = usage
        if self.checkpoint is not None:
            data["c"] = str(self.checkpoint)
        if self.output_in_history:
            data["h"] = 1
        if self.output is not None:
            data["r"] = self.output
        if self.output_type is not None:
            data["y"] = self.output_type
        if self.error_type is not None:
            data["e"] = [self.error_type, self.error_message]
        if self.tally.edits or self.tally.noops or self.tally.skips:
            edits = [astuple(edit) for edit in self.tally.edits]
            data["d"] = [edits, self.tally.noops, self.tally.skips]
        if self.repairs:
            data["i"] = [astuple(repair) for repair in self.repairs]
        if self.children:
            data["k"] = [child.to_data() for child in self.children]
        if self.uncertain:
            data["q"] = [astuple(call) for call in self.uncertain]
        if self.tally.steered:
            data["m"] = self.tally.steered
        if self.steered_into is not None:
            data["j"] = self.steered_into
        if self.attempts:
            data["a"] = [[a.step, a.attempt, a.error_type, a.error_message] for a in self.attempts]
        return compact_json(data)

    @classmethod
    def from_stored(cls, turn_id: str, blob: bytes) -> Self:
        """Read what the store keeps: `<number>|<to_json()>`."""
        number, _, body = blob.partition(b"|")
        data = json.loads(body)
        started, ended = data["t"]
        error_type, error_message = data.get("e", (None, None))
        edits, noops, skips = data.get("d", ((), 0, 0))
        return cls(
            turn_id=turn_id,
            outcome=_OUTCOMES[data["o"]],
            number=int(number),
            prompt_digest=data["p"],
            started_at=None if started is None else started / 1000,
            ended_at=ended / 1000,
            steps=data["s"],
            tally=TurnTally(
                TurnUsage(*data.get("u", ())),
                tuple(map(EditReceipt.from_values, edits)),
                noops,
                skips,
                tuple((one, digest) for one, digest in data.get("m", ())),
            ),
            checkpoint=CheckpointRef.parse(data["c"]) if "c" in data else None,
            output=data.get("r"),
            output_in_history=bool(data.get("h")),
            error_type=error_type,
            error_message=error_message,
            attempts=tuple(StepAttempt(*attempt) for attempt in data.get("a", ())),
            repairs=tuple(ImportRepair(*repair) for repair in data.get("i", ())),
            children=tuple(map(ChildRef.from_data, data.get("k", ()))),
            uncertain=tuple(UncertainCall(*call) for call in data.get("q", ())),
            steered_into=data.get("j"),
            output_type=data.get("y"),
        )

    def steered(self) -> list[TurnRecord]:
        """The records of the messages that the turn took in, which committed with it."""
        return [
            TurnRecord(
                turn_id=turn_id,
                outcome=self.outcome,
                prompt_digest=digest,
                started_at=self.started_at,
                ended_at=self.ended_at,
                checkpoint=self.checkpoint,
                output=self.output,
                output_in_history=self.output_in_history,
                steered_into=self.turn_id,
                output_type=self.output_type,
            )
            for turn_id, digest in self.tally.steered
        ]


_OUTCOMES: Mapping[str, Outcome] = {"c": "committed", "f": "failed", "x": "cancelled"}
_LETTERS: Mapping[Outcome, str] = {outcome: letter for letter, outcome in _OUTCOMES.items()}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


class EventKind(StrEnum):
    """What can happen on a lane's stream."""

    TURN_STARTED = "turn.started"
    TEXT_DELTA = "text.delta"
    THINKING_DELTA = "thinking.delta"
    TOOL_CALLED = "tool.called"
    TOOL_FINISHED = "tool.finished"
    STEP_RETRIED = "step.retried"
    CUSTOM = "custom"
    HISTORY_REWRITTEN = "history.rewritten"
    HISTORY_KEPT = "history.kept"
    REQUEST_PENDING = "request.pending"
    REQUEST_ANSWERED = "request.answered"
    MESSAGE_TAKEN = "message.taken"
    TURN_COMMITTED = "turn.committed"
    TURN_FAILED = "turn.failed"
    TURN_CANCELLED = "turn.cancelled"


TERMINAL: Mapping[Outcome, EventKind] = {
    "committed": EventKind.TURN_COMMITTED,
    "failed": EventKind.TURN_FAILED,
    "cancelled": EventKind.TURN_CANCELLED,
}


@dataclass(frozen=True)
class LaneEvent:
    """Something that happened on a lane.

    Attributes:
        kind: what.
        turn_id: in which turn.
        step: in which step of it, from 0.
        attempt: in which attempt at the step, from 1. After `step.retried`, drop what earlier attempts showed.
        data: kind by kind: `text` of a delta; `tool`, `call_id` and `arguments` or `outcome` of a tool call; the
            figures of the receipt of an edit; `request`, `kind`, `name` and, where it is short, `payload` of what
            the turn waits for; `request` and `answer` (its kind) of what was answered; `turn` of a message that was
            taken in while the turn ran, and `into` at that message's own end; `data` of what a graph writes to
            its stream; `error` of a failure.
        event_id: its place on the stream; empty until it is stored.
    """

    kind: EventKind
    turn_id: str
    step: int = 0
    attempt: int = 1
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    event_id: str = ""

    @property
    def terminal(self) -> bool:
        """Whether it ends its turn."""
        return self.kind in TERMINAL.values()

    def to_json(self) -> bytes:
        """The stored form, without the id."""
        body: list[object] = [self.kind.value, self.turn_id, self.step, self.attempt]
        if self.data:
            body.append(self.data)
        return compact_json(body)

    @classmethod
    def from_json(cls, event_id: str, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        kind, turn_id, step, attempt, *rest = json.loads(blob)
        return cls(EventKind(kind), turn_id, step, attempt, rest[0] if rest else {}, event_id)
