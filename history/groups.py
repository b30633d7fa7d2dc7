"""Groups: the pieces of a history that an edit may take as a whole, and only as a whole.

A group is a cycle: what a user said and everything that it led to, tool exchanges included, up to the next thing a user
says. Cutting inside one is what breaks agents' histories (a result without its call, an answer without its question),
so nothing here ever does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, Literal

from laneway.history.dialect import EntryFacts, MessageDialect, MessageT
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.views import HistoryView, is_note

__all__ = ["HistoryGroup", "ProtectedReason", "find_groups"]

ProtectedReason = Literal["system", "current", "unfinished", "checkpoint", "provider"]
"""Why a group may not be edited: it holds system text; it is what the model is being asked now; work in it waits for an
answer; it stands for history that is gone; or it holds records that only a provider can make."""

REASONS: tuple[ProtectedReason, ...] = ("system", "current", "unfinished", "checkpoint", "provider")


@dataclass(frozen=True, slots=True)
class HistoryGroup:
    """One atomic piece of a history.

    Attributes:
        group_id: names the group; the same while the group is in the history, whatever is edited around it.
        entry_start: index of its first message in the context's `messages`.
        entry_end: index after its last message.
        closed: nothing in it is open and it is not the current request.
        protected: it must come back whole and unchanged, in its place.
        protected_reasons: why, in a fixed order; empty if it is not protected.
        origins: where its messages came from, each once, in order.
    """

    group_id: str
    entry_start: int
    entry_end: int
    closed: bool
    protected: bool
    protected_reasons: tuple[ProtectedReason, ...]
    origins: tuple[HistoryOrigin, ...]

    def __len__(self) -> int:
        return self.entry_end - self.entry_start


def find_groups(dialect: MessageDialect[MessageT], view: HistoryView[MessageT]) -> tuple[HistoryGroup, ...]:
    """The groups of a history: together they are the whole of it, in order. The last is the current request's."""
    starts = _Boundaries(view).starts()
    ids = _GroupIds(dialect)
    return tuple(
        _group(ids, view, start, end, is_current=end == len(view.messages))
        for start, end in zip(starts, [*starts[1:], len(view.messages)], strict=True)
    )


class _Boundaries(Generic[MessageT]):
    """Where the groups of a view begin."""

    def __init__(self, view: HistoryView[MessageT]) -> None:
        self._facts = view.facts
        self._entries = view.entries
        self._prompt = view.current_prompt

    def starts(self) -> list[int]:
        starts: list[int] = []
        previous: int | None = None  # the message before, system messages that stand alone left out
        open_calls: set[str] = set()
        for index, facts in enumerate(self._facts):
            alone = self._stands_alone(index, previous, open_calls)
            if index == 0 or alone or previous is None or self._opens(index, previous, open_calls):
                starts.append(index)
                open_calls = set()
            previous = None if alone else index
            open_calls.update(facts.calls)
            open_calls.difference_update(facts.results)
        return starts

    def _opens(self, index: int, previous: int, open_calls: set[str]) -> bool:
        """Whether a message begins a cycle, given the message before it in the cycle that it might belong to."""
        facts, before = self._facts[index], self._facts[previous]
        if self._prompt is not None and index >= self._prompt:
            # Whatever a turn adds after its prompt belongs to the turn: text that a tool returned beside its result
            # looks like a new prompt, and taking it for one would leave the real one unprotected.
            return index == self._prompt
        if facts.role != "user" or facts.continues:
            return False
        if before.role == "user" and not before.continues:
            return is_note(self._entries[previous]) and not is_note(self._entries[index])
        if before.role == "tool" and not open_calls:
            return not self._within_run(index)
        return before.role != "system" or bool(open_calls)

    def _within_run(self, index: int) -> bool:
        """Whether the answers before and after a message are of one run, so that it only continues a tool exchange."""
        before = next((i for i in range(index - 1, -1, -1) if self._facts[i].role == "model"), None)
        after = next((i for i in range(index + 1, len(self._facts)) if self._facts[i].role == "model"), None)
        if before is None or after is None:
            return False
        run = self._entries[before].run_id
        return run is not None and run == self._entries[after].run_id

    def _stands_alone(self, index: int, previous: int | None, open_calls: set[str]) -> bool:
        """Whether a message is a group of its own: system text between cycles, or text that stands for history."""
        if not self._is_standing(index) or (self._prompt is not None and index > self._prompt):
            return False
        if previous is None:
            return True
        following = next((i for i in range(index + 1, len(self._facts)) if not self._is_standing(i)), None)
        if following is None:
            return self._facts[previous].role == "model" and not open_calls
        return self._opens(following, previous, open_calls)

    def _is_standing(self, index: int) -> bool:
        facts = self._facts[index]
        archived = self._entries[index].is_archive and facts.plain_text
        return facts.role == "system" or (facts.role == "user" and facts.checkpoint) or archived


def _group(
    ids: _GroupIds[MessageT], view: HistoryView[MessageT], start: int, end: int, *, is_current: bool
) -> HistoryGroup:
    facts, entries = view.facts[start:end], view.entries[start:end]
    unfinished = _has_open_calls(facts) or any(fact.unfinished for fact in facts)
    holds: dict[ProtectedReason, bool] = {
        "system": any(fact.role == "system" for fact in facts),
        "current": is_current,
        "unfinished": unfinished,
        "checkpoint": any(fact.checkpoint for fact in facts) or any(entry.is_archive for entry in entries),
        "provider": any(fact.provider for fact in facts),
    }
    reasons: tuple[ProtectedReason, ...] = tuple(reason for reason in REASONS if holds[reason])
    return HistoryGroup(
        group_id=ids.next(view.messages[start], entries[0]),
        entry_start=start,
        entry_end=end,
        closed=not unfinished and not is_current,
        protected=bool(reasons),
        protected_reasons=reasons,
        origins=tuple(dict.fromkeys(origin for entry in entries for origin in entry.origins)),
    )


def _has_open_calls(facts: Sequence[EntryFacts]) -> bool:
    open_calls: list[str] = []
    for fact in facts:
        open_calls.extend(fact.calls)
        for result in fact.results:
            if result in open_calls:
                open_calls.remove(result)
    return bool(open_calls)


class _GroupIds(Generic[MessageT]):
    """Ids from how a group opens: its first message does not change while the group grows or its neighbours go."""

    def __init__(self, dialect: MessageDialect[MessageT]) -> None:
        self._dialect = dialect
        self._seen: dict[str, int] = {}

    def next(self, first: MessageT, entry: EntryMetadata) -> str:
        digest = sha256((entry.run_id or "").encode())
        digest.update(b"\0")
        digest.update(self._dialect.content(first))
        name = digest.hexdigest()[:16]
        count = self._seen[name] = self._seen.get(name, 0) + 1
        return name if count == 1 else f"{name}-{count}"
