"""A history as a processor sees it: each message of one role, with the way back to the native messages.

Frameworks pack things of different lives into one message: Pydantic AI puts the system prompt, the last results of a
finished turn and the next prompt into a single request. An edit must be able to drop the prompt's cycle and keep the
system text, so the view takes such messages apart; putting them together again is exact, because an untouched message
is never rebuilt but used as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from laneway.history.dialect import EntryFacts, MessageDialect, MessageT, Role
from laneway.history.origins import EntryMetadata, OriginKind

__all__ = ["HistoryView", "is_note", "view_of"]

_ORIGINS_OF_ROLE: dict[Role, tuple[OriginKind, ...]] = {
    "system": ("system",),
    "user": ("user", "framework", "processor", "archive"),
    "tool": ("tool",),
    "model": ("model",),
}


@dataclass(frozen=True)
class HistoryView(Generic[MessageT]):
    """A history of messages of one role each. All sequences are of the same length.

    Attributes:
        messages: the messages, the originals where they were of one role already.
        facts: what the rules know of each.
        entries: the metadata of each.
        sources: for each, the index of the native message that it is, or is a piece of.
        current_prompt: index of the prompt that the current request is about, or None where the turn began without one.
    """

    messages: tuple[MessageT, ...]
    facts: tuple[EntryFacts, ...]
    entries: tuple[EntryMetadata, ...]
    sources: tuple[int, ...]
    current_prompt: int | None


def view_of(
    dialect: MessageDialect[MessageT],
    messages: Sequence[MessageT],
    entries: Sequence[EntryMetadata],
    *,
    request_index: int,
    current_start: int | None = None,
) -> HistoryView[MessageT]:
    """Take a history apart for editing.

    Args:
        dialect: what describes the messages.
        messages: the native history, the current request last.
        entries: the metadata of each native message.
        request_index: which request of the turn this is, from 1: the turn's answers so far are one less.
        current_start: index of the native message that holds the turn's prompt, where the caller knows it; else it is
            found by counting the turn's answers back from the end, which at worst protects too much.
    """
    pieces: list[MessageT] = []
    facts: list[EntryFacts] = []
    piece_entries: list[EntryMetadata] = []
    sources: list[int] = []
    for index, (message, entry) in enumerate(zip(messages, entries, strict=True)):
        split = dialect.split(message)
        for piece in split:
            fact = dialect.facts(piece)
            pieces.append(piece)
            facts.append(fact)
            piece_entries.append(entry if len(split) == 1 else _entry_of_piece(entry, fact.role))
            sources.append(index)
    return HistoryView(
        messages=tuple(pieces),
        facts=tuple(facts),
        entries=tuple(piece_entries),
        sources=tuple(sources),
        current_prompt=_prompt_in(facts, piece_entries, sources, current_start)
        if current_start is not None
        else _prompt_before(facts, piece_entries, answers=request_index - 1),
    )


def _entry_of_piece(entry: EntryMetadata, role: Role) -> EntryMetadata:
    mine = tuple(origin for origin in entry.origins if origin.kind in _ORIGINS_OF_ROLE[role])
    return EntryMetadata(origins=mine or entry.origins)


def _is_prompt(facts: EntryFacts, entry: EntryMetadata) -> bool:
    standing = facts.checkpoint or entry.is_archive
    return facts.role == "user" and not facts.continues and not standing and not is_note(entry)


def _prompt_in(
    facts: Sequence[EntryFacts], entries: Sequence[EntryMetadata], sources: Sequence[int], native: int
) -> int | None:
    return next((i for i, fact in enumerate(facts) if sources[i] == native and _is_prompt(fact, entries[i])), None)


def _prompt_before(facts: Sequence[EntryFacts], entries: Sequence[EntryMetadata], *, answers: int) -> int | None:
    """The first prompt in the messages between the turn's first answer and the answer before it."""
    index = len(facts) - 1
    while index >= 0 and (facts[index].role != "model" or answers > 0):
        answers -= facts[index].role == "model"
        index -= 1
    # Going on from `index`, the last answer of an earlier turn, up to the first of this one.
    for candidate in range(index + 1, len(facts)):
        if facts[candidate].role == "model":
            return None
        if _is_prompt(facts[candidate], entries[candidate]):
            return candidate
    return None


def is_note(entry: EntryMetadata) -> bool:
    """Whether a processor wrote the message: text in place of a group is a group, not part of the prompt after it."""
    return bool(entry.origins) and all(origin.kind == "processor" for origin in entry.origins)
