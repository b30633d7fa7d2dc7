"""Reasoning that a model ties to everything before it, and what becomes of it when that changes.

Newer Claude models sign a thinking block over the system prompt, the tools and every message before it, and refuse it
for good once any of that is different. In finished cycles such a block is worth little, so it is released, by name and
for the record; in the cycle that is still running it carries the work, so the change is refused instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from laneway.history.dialect import MessageDialect, MessageT
from laneway.history.groups import find_groups
from laneway.history.origins import EntryMetadata
from laneway.history.rules import EditRule, refuse
from laneway.history.views import view_of

__all__ = ["ReleasedHistory", "release_bound_reasoning"]


@dataclass(frozen=True)
class ReleasedHistory(Generic[MessageT]):
    """A history without the reasoning that would be refused.

    Attributes:
        messages: the native history.
        entries: the metadata of each message.
        released: names of the released blocks, from the front; empty if the history is as it was.
    """

    messages: list[MessageT]
    entries: list[EntryMetadata]
    released: tuple[str, ...]


def release_bound_reasoning(
    dialect: MessageDialect[MessageT],
    messages: Sequence[MessageT],
    entries: Sequence[EntryMetadata],
    *,
    request_index: int,
    first_changed: int = 0,
    current_start: int | None = None,
    keep_open: bool = False,
) -> ReleasedHistory[MessageT]:
    """Release the blocks that follow a change, from the front.

    Call it only for a model that binds reasoning. After a change of instructions or tools, which come before every
    message, leave `first_changed` at 0.

    Args:
        dialect: what describes the messages.
        messages: the native history as it is after the change, the current request last.
        entries: the metadata of each message.
        request_index: which request of the turn this is, from 1.
        first_changed: index of the first message that is not what it was when the reasoning was signed.
        current_start: index of the native message with the turn's prompt, where it is known.
        keep_open: whether the open cycle keeps its blocks, for the provider to judge.

    Raises:
        HistoryProcessingValidationError: a block of the open cycle is bound to what changed (rule `bound_reasoning`).
    """
    view = view_of(dialect, messages, entries, request_index=request_index, current_start=current_start)
    open_start = find_groups(dialect, view)[-1].entry_start if view.messages else 0
    open_from = view.sources[open_start] if view.messages else 0
    kept: list[MessageT] = []
    kept_entries: list[EntryMetadata] = []
    released: list[str] = []
    for index, (message, entry) in enumerate(zip(messages, entries, strict=True)):
        is_judged = index >= first_changed and not (keep_open and index >= open_from)
        names = dialect.bound_reasoning(message) if is_judged else ()
        if not names:
            kept.append(message)
            kept_entries.append(entry)
            continue
        if index >= open_from:
            refuse(EditRule.BOUND_REASONING, index, subject="the history before this request")
        released.extend(names)
        remaining = dialect.without_bound_reasoning(message)
        if remaining is not None:
            kept.append(remaining)
            kept_entries.append(EntryMetadata(origins=entry.origins))
    return ReleasedHistory(kept, kept_entries, tuple(released))
