"""What was done to histories, in words: receipts of edits, and the repairs of an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from laneway.cli.output import one_line

if TYPE_CHECKING:
    from laneway.history.editing import EditReceipt
    from laneway.history.model_calls import CallReceipt
    from laneway.history.records import TurnRecord
    from laneway.history.repair import ImportRepair

__all__ = ["RECEIPT_COLUMNS", "edit_line", "receipt_row", "repair_line", "was_processed"]

RECEIPT_COLUMNS = ("#", "request", "processor", "groups", "messages", "tokens", "epoch", "asked", "released reasoning")


def edit_line(figures: Mapping[str, object]) -> str:
    """An edit on one short line.

    Args:
        figures: the receipt's fields, as the events `history.rewritten` and `history.kept` carry them.
    """
    processor = str(figures.get("processor", "")).rpartition(":")[2]
    if "epoch_before" in figures and figures["epoch_before"] == figures["epoch_after"]:
        calls = cast("Sequence[Mapping[str, object]]", figures.get("calls") or ())
        errors = "; ".join(str(call["error"]) for call in calls if call.get("error"))
        return one_line(f"history left as it is by {processor}: {errors or 'nothing came of it'}", limit=200)
    count = len(cast("Sequence[str]", figures.get("released_reasoning") or ()))
    return one_line(
        f"history edited by {processor}: {_change(figures, 'entries')} messages, {_change(figures, 'tokens')} tokens, "
        f"epoch {_change(figures, 'epoch')}" + (f", reasoning released: {count}" if count else ""),
        limit=200,
    )


def _change(figures: Mapping[str, object], what: str) -> str:
    return f"{figures.get(f'{what}_before', '?')} → {figures.get(f'{what}_after', '?')}"


def receipt_row(number: int, edit: EditReceipt) -> Sequence[str]:
    """A receipt as a row under `RECEIPT_COLUMNS`, of the turn with this number."""
    return (
        str(number),
        str(edit.request_index),
        one_line(edit.processor),
        f"{edit.groups_before} → {edit.groups_after}",
        f"{edit.entries_before} → {edit.entries_after}",
        f"{edit.tokens_before} → {edit.tokens_after}",
        f"{edit.epoch_before} → {edit.epoch_after}",
        one_line("; ".join(map(_call_words, edit.calls))),
        one_line(", ".join(edit.released_reasoning)),
    )


def _call_words(call: CallReceipt) -> str:
    """A model call of a processor."""
    if call.outcome == "put_off":
        return f"{call.purpose} put off: {call.error}"
    tokens = f"{call.usage.input_tokens} → {call.usage.output_tokens} tokens"
    return f"{call.purpose} {call.outcome}, {tokens}" + (f", {call.error}" if call.error else "")


def was_processed(turn: TurnRecord) -> bool:
    """Whether a history processor, or at least its condition, was asked in a turn."""
    return bool(turn.tally.edits or turn.tally.noops or turn.tally.skips)


def repair_line(repair: ImportRepair) -> str:
    """What an import's repair did."""
    call = one_line(repr(repair.tool_call_id))
    match repair.kind:
        case "call_closed":
            return f"call {call} had no result: it is answered with that"
        case "result_removed":
            return f"a result for {call}, which was not called, is removed"
        case "call_renamed":
            return f"call {call} reused an id: it is {one_line(repr(repair.new_tool_call_id))} now"
