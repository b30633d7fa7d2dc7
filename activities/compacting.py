"""What a compaction comes to, as the result of its one step: the same for every adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from laneway.activities.adapter import StepResult
from laneway.history.editing import EditReceipt
from laneway.history.origins import EntryMetadata
from laneway.history.records import TurnUsage

__all__ = ["rewritten", "unchanged"]


def unchanged(reason: str) -> StepResult[Any]:
    """A compaction that left the history as it was."""
    return StepResult(
        appended=(),
        state=b"",
        usage=TurnUsage(),
        done=True,
        output=json.dumps({"compacted": False, "reason": reason}, ensure_ascii=False),
    )


def rewritten(
    messages: Sequence[Any],
    entries: Sequence[EntryMetadata],
    *,
    extras: Mapping[str, object],
    usage: TurnUsage,
    receipt: EditReceipt,
) -> StepResult[Any]:
    """A compaction that wrote the history anew.

    Args:
        messages: the history.
        entries: what is known of each of its messages.
        extras: what the adapter keeps beside it.
        usage: what the summary took.
        receipt: the edit's.
    """
    return StepResult(
        appended=(),
        rewritten=messages,
        entries=entries,
        extras={**extras, "live": len(messages)},
        state=b"",
        usage=usage,
        done=True,
        output=json.dumps({"compacted": True}),
        edits=(receipt,),
    )
