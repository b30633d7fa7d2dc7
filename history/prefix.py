"""What the engine does to a history by itself when something that comes before every message has changed.

After a deploy with other instructions or tools, reasoning that a model tied to the old ones would be refused for good.
Where nobody has edited anything, nobody but the engine can release it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from laneway.history.assembly import estimated
from laneway.history.dialect import MessageDialect, MessageT
from laneway.history.editing import EditOutcome, EditReceipt, EditRequest, receipt_of
from laneway.history.groups import find_groups
from laneway.history.reasoning import release_bound_reasoning
from laneway.history.views import view_of

__all__ = ["RELEASE", "receipts_of", "release_reasoning"]

RELEASE: Final = "laneway:bound_reasoning"
"""What receipts of a release name in place of a processor."""


def release_reasoning(
    dialect: MessageDialect[MessageT], request: EditRequest[MessageT], *, name: str, keep_open: bool = False
) -> EditOutcome[MessageT]:
    """Release the reasoning of closed cycles: a rewrite like an accepted edit, or none where there is none of it.

    The result is not in the framework's normal form: the framework still holds the request that is being sent.

    Args:
        dialect: what describes the messages.
        request: the request; call this only for a model that binds reasoning.
        name: what the receipt names in place of a processor.
        keep_open: see `release_bound_reasoning`.

    Raises:
        HistoryProcessingValidationError: the open cycle holds such reasoning (rule `bound_reasoning`).
    """
    history = release_bound_reasoning(
        dialect,
        request.messages,
        request.entries,
        request_index=request.request_index,
        current_start=request.current_start,
        keep_open=keep_open,
    )
    if not history.released:
        return EditOutcome("unprocessed", request.messages, request.entries)
    before = view_of(
        dialect,
        request.messages,
        request.entries,
        request_index=request.request_index,
        current_start=request.current_start,
    )
    entries = estimated(dialect, history.messages, history.entries)
    receipt = receipt_of(
        dialect,
        request,
        history.messages,
        entries,
        processor=name,
        groups_before=len(find_groups(dialect, before)),
        released=history.released,
    )
    return EditOutcome("accepted", history.messages, entries, receipt)


def receipts_of(outcomes: Iterable[EditOutcome[MessageT] | None]) -> tuple[EditReceipt, ...]:
    """The receipts of what happened to a history before one request, in order.

    All rewrites are staged as one epoch, so they are one, and have one receipt.
    """
    happened = [outcome for outcome in outcomes if outcome is not None and outcome.receipt is not None]
    # One that changed nothing and has a receipt asked a model in vain.
    kept = tuple(one.receipt for one in happened if one.verdict != "accepted" and one.receipt is not None)
    receipts = [one.receipt for one in happened if one.verdict == "accepted" and one.receipt is not None]
    if len(receipts) < 2:
        return (*kept, *receipts)
    last = receipts[-1]
    whole = replace(
        receipts[0],
        processor=", ".join(dict.fromkeys(one.processor for one in receipts if one.processor != RELEASE)),
        groups_after=last.groups_after,
        entries_after=last.entries_after,
        tokens_after=last.tokens_after,
        released_reasoning=tuple(name for one in receipts for name in one.released_reasoning),
        calls=tuple(call for one in receipts for call in one.calls),
    )
    return (*kept, whole)
