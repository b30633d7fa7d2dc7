"""What a compaction comes to, as the result of its one step: the same for every adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    before: int,
) -> StepResult[Any]:
    """A compaction that wrote the history anew.

    Args:
        messages: the history.
        entries: what is known of each of its messages.
        extras: what the adapter keeps beside it.
        usage: what the summary took.
        receipt: the edit's, which counts what stood for a request too.
        before: how many messages the history had.
    """
    counted = replace(
        receipt,
        entries_before=before,
        entries_after=len(messages),
        groups_before=receipt.groups_before - 1,
        groups_after=receipt.groups_after - 1,
    )
    return StepResult(
        appended=(),
        rewritten=messages,
        entries=entries,
        extras={**extras, "live": len(messages)},
        state=b"",
        usage=usage,
        done=True,
        output=json.dumps({"compacted": True}),
        edits=(counted,),
    )
