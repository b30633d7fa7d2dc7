"""Compaction on demand: a turn of its own kind, which sums up a lane's history and asks nobody anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, cast

from laneway.history.editing import EditOutcome, EditReceipt
from laneway.history.processor_chain import ProcessorChain
from laneway.history.processor_summary import SummarizationProcessor
from laneway.history.records import TurnRecord, TurnUsage

__all__ = ["COMPACT_MARK", "Compaction", "CompactionReport", "compactor", "summaries_of", "why_not"]

COMPACT_MARK: Final = b'{"compact":'
"""How the stored form of a compaction begins, by which a step tells it from a prompt."""


@dataclass(frozen=True)
class Compaction:
    """What is asked for.

    Attributes:
        focus: what the summary should pay attention to.
        keep: how many of the newest messages stay; an exchange of which one stays, stays whole.
    """

    focus: str | None = None
    keep: int = 2

    def to_bytes(self) -> bytes:
        """The stored form."""
        return COMPACT_MARK + json.dumps([self.focus, self.keep], ensure_ascii=False).encode() + b"}"

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Read what `to_bytes` gives."""
        focus, keep = json.loads(blob)["compact"]
        return cls(focus, keep)


@dataclass(frozen=True)
class CompactionReport:
    """What a compaction came to.

    Attributes:
        turn_id: its turn.
        compacted: whether the history was rewritten.
        reason: why it was not.
        receipt: the rewrite, or the model calls that came to nothing; None where no model was asked.
        usage: what the summary used.
    """

    turn_id: str
    compacted: bool
    reason: str | None = None
    receipt: EditReceipt | None = None
    usage: TurnUsage = field(default_factory=TurnUsage)

    @classmethod
    def of(cls, record: TurnRecord) -> Self:
        """The report of a committed compaction."""
        data: Mapping[str, Any] = json.loads(record.output or "{}")
        edits = record.tally.edits
        return cls(
            record.turn_id,
            bool(data.get("compacted")),
            data.get("reason"),
            edits[-1] if edits else None,
            record.usage,
        )


def compactor(configured: object, compaction: Compaction, *, model: object) -> SummarizationProcessor:
    """The processor that compacts: the adapter's own summaries where it makes any, else those of the agent's model.

    Args:
        configured: the adapter's history processor, if any.
        compaction: what is asked for.
        model: the agent's model.
    """
    found = summaries_of(configured)
    if found is None:
        found = SummarizationProcessor(model, trim_tokens_to_summarize=None)
    return replace(
        found,
        trigger=("messages", 0),
        keep=("messages", compaction.keep + 1),  # what stands for the request is counted too
        on_failure="keep",
        focus=compaction.focus,
    )


def summaries_of(processor: object) -> SummarizationProcessor | None:
    """What makes summaries among history processors; None where nothing does."""
    if isinstance(processor, SummarizationProcessor):
        return processor
    if isinstance(processor, ProcessorChain):
        inner = cast("ProcessorChain[Any]", processor).processors
        return next((found for one in inner if (found := summaries_of(one)) is not None), None)
    return None


def why_not(outcome: EditOutcome[Any], compaction: Compaction) -> str | None:
    """Why a compaction changed nothing; None where it did."""
    if outcome.verdict == "accepted":
        return None
    if outcome.receipt is not None:
        errors = "; ".join(call.error for call in outcome.receipt.calls if call.error)
        return f"the summary failed, and the history is as before: {errors or 'it came to nothing'}"
    return (
        f"there is nothing to sum up: whatever is before the last {compaction.keep} messages is protected, or a "
        "summary already"
    )
