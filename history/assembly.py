"""From the messages that a processor returned back to the native history that is stored and sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

from laneway.history.dialect import MessageDialect, MessageT
from laneway.history.estimation import estimate_message
from laneway.history.matching import Match
from laneway.history.origins import EntryMetadata, HistoryOrigin, joined
from laneway.history.views import HistoryView

__all__ = ["AssembledHistory", "assemble", "estimated", "settle"]


@dataclass(frozen=True)
class AssembledHistory(Generic[MessageT]):
    """An edited history of native messages.

    Attributes:
        messages: the messages: the stored ones where they were kept, never the processor's copies of them.
        entries: the metadata of each.
        first_changed: index of the first message that is not the input's message at that index.
        current_start: index of the message with the turn's prompt; None if the turn began without one.
    """

    messages: list[MessageT]
    entries: list[EntryMetadata]
    first_changed: int
    current_start: int | None


def assemble(
    dialect: MessageDialect[MessageT],
    messages: Sequence[MessageT],
    entries: Sequence[EntryMetadata],
    view: HistoryView[MessageT],
    returned: Sequence[MessageT],
    match: Match,
    *,
    processor: str,
    run_id: str | None,
) -> AssembledHistory[MessageT]:
    """Put a validated edit together.

    Args:
        dialect: what describes the messages.
        messages: the native history before the edit.
        entries: the metadata of each of its messages.
        view: that history as the processor saw it.
        returned: what the processor returned.
        match: which message of the view each returned one is.
        processor: the processor's name: the source of what it added.
        run_id: the turn in which it was added.
    """
    added = EntryMetadata(origins=(HistoryOrigin("processor", run_id=run_id, source_location=processor),))
    result: list[MessageT] = []
    result_entries: list[EntryMetadata] = []
    current_start: int | None = None
    position = 0
    while position < len(returned):
        piece = match.inputs[position]
        pieces = 1
        if piece is None:
            # Detached, for the processor may keep what it returned and go on changing it.
            result.append(dialect.detached(returned[position]))
            result_entries.append(added)
        elif pieces := _whole_native(view, match, position):
            result.append(messages[view.sources[piece]])
            result_entries.append(entries[view.sources[piece]])
        else:
            pieces = 1
            result.append(view.messages[piece])
            result_entries.append(view.entries[piece])
        if view.current_prompt is not None and view.current_prompt in match.inputs[position : position + pieces]:
            current_start = len(result) - 1
        position += pieces
    return AssembledHistory(result, result_entries, _first_changed(messages, result), current_start)


def settle(
    dialect: MessageDialect[MessageT], messages: Sequence[MessageT], entries: Sequence[EntryMetadata]
) -> tuple[list[MessageT], list[EntryMetadata]]:
    """Bring a history into its framework's normal form, so that loading it again changes nothing."""
    settled: list[MessageT] = []
    settled_entries: list[EntryMetadata] = []
    start = 0
    for message, count in dialect.settle(messages):
        settled.append(message)
        merged = entries[start : start + count]
        settled_entries.append(merged[0] if count == 1 and message is messages[start] else joined(merged))
        start += count
    return settled, settled_entries


def estimated(
    dialect: MessageDialect[MessageT], messages: Sequence[MessageT], entries: Sequence[EntryMetadata]
) -> list[EntryMetadata]:
    """The metadata with the estimate of each message filled in."""
    return [
        replace(entry, estimated_tokens=estimate_message(dialect, message)) if entry.estimated_tokens is None else entry
        for message, entry in zip(messages, entries, strict=True)
    ]


def _whole_native(view: HistoryView[MessageT], match: Match, position: int) -> int:
    """How many returned messages, from `position` on, are all the pieces of one native message; 0 if it is not so."""
    first = match.inputs[position]
    assert first is not None
    source = view.sources[first]
    if first > 0 and view.sources[first - 1] == source:
        return 0
    end = first
    while end < len(view.sources) and view.sources[end] == source:
        end += 1
    pieces = tuple(range(first, end))
    return len(pieces) if match.inputs[position : position + len(pieces)] == pieces else 0


def _first_changed(before: Sequence[MessageT], after: Sequence[MessageT]) -> int:
    same = 0
    while same < min(len(before), len(after)) and before[same] is after[same]:
        same += 1
    return same
