"""What a turn's fields in Redis say to its steps: what was staged last, which attempts failed, what is uncertain.

`sN` is what step N came to and `mN` what it staged on its way, each a tally and the adapter's state; `fN:A` is how
attempt A at step N failed; `jN:…` are the tool calls of the batch that step N began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from laneway.activities.journal import UNCERTAIN, ToolJournal
from laneway.history.records import StepAttempt, TurnTally, UncertainCall

__all__ = ["failed_attempts", "last_tally", "latest_staged", "staged_value", "steps_staged", "uncertain_calls"]


def staged_value(tally: TurnTally, state: bytes) -> bytes:
    """A tally and the adapter's state, as a step stages them."""
    head = tally.to_json()
    return b"%d|%s%s" % (len(head), head, state)


def latest_staged(fields: Mapping[str, bytes], step: int) -> tuple[TurnTally, bytes | None]:
    """The tally and the adapter's state that were staged last before what step `step` is to do."""
    value = fields.get(f"m{step}")
    if value is None:
        if step == 0:
            return TurnTally(), None
        value = fields[f"s{step - 1}"]
    length, _, rest = value.partition(b"|")
    return TurnTally.from_json(rest[: int(length)]), rest[int(length) :]


def last_tally(fields: Mapping[str, bytes]) -> TurnTally:
    """What a turn had used and edited when it was stopped, as far as it was staged."""
    staged = [(int(name[1:]), name) for name in fields if name[0] in "ms" and name[1:].isdigit()]
    if not staged:
        return TurnTally()
    length, _, rest = fields[max(staged)[1]].partition(b"|")
    # What it had taken in is not lost with it: each message is a turn of its own now.
    return replace(TurnTally.from_json(rest[: int(length)]), steered=())


def steps_staged(fields: Iterable[str]) -> int:
    """How many steps of a turn have come to something, by the names of its fields."""
    return max((int(name[1:]) + 1 for name in fields if name[0] == "s" and name[1:].isdigit()), default=0)


def failed_attempts(fields: Mapping[str, bytes]) -> list[StepAttempt]:
    """The attempts at a turn's steps that failed, in order."""
    found: list[StepAttempt] = []
    for name, value in fields.items():
        if name.startswith("f") and ":" in name:
            step, _, attempt = name[1:].partition(":")
            kind, message = json.loads(value)
            found.append(StepAttempt(int(step), int(attempt), kind, message))
    return sorted(found, key=lambda one: (one.step, one.attempt))


def uncertain_calls(fields: Mapping[str, bytes], journal: ToolJournal | None = None) -> tuple[UncertainCall, ...]:
    """The calls of a turn whose outcome is unknown, those that a step found out itself included."""
    found = {name.partition(":")[2]: call for name, call in fields.items() if name[0] == "j" and name[-1] == UNCERTAIN}
    if journal is not None:
        found |= journal.uncertain
    return tuple(map(UncertainCall.from_json, found.values()))
