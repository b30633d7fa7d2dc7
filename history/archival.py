"""Exact archival: old tool exchanges of a long tool loop give way to one checkpoint, and can be read back. Pure.

It never takes the request that the turn began with, exchanges that are protected or not finished, earlier checkpoints,
or what is recent; and nothing at all where too little would come of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Generic

from laneway.errors import InvalidArgument
from laneway.history.assembly import estimated, settle
from laneway.history.dialect import EntryFacts, MessageDialect, MessageT
from laneway.history.editing import EditOutcome, EditRequest, receipt_of
from laneway.history.estimation import estimate_message
from laneway.history.groups import find_groups
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.views import view_of

__all__ = [
    "ARCHIVER",
    "READ_TOOL",
    "ArchivePlan",
    "HistoryArchiveSettings",
    "archive",
    "checkpoint_text",
    "plan_archive",
]

ARCHIVER: Final = "laneway:archive"
"""What receipts of archival name in place of a processor."""

READ_TOOL: Final = "read_archived"
"""The tool by which a model reads back what was archived."""

_CHECKPOINT_TOKENS: Final = 150  # about what a checkpoint takes
_OF_EDITING: Final = ("archive", "processor")


@dataclass(frozen=True, slots=True)
class HistoryArchiveSettings:
    """When tool exchanges of a running turn are archived, in tokens.

    Attributes:
        threshold_tokens: from which size of the whole history on.
        preserve_recent_tokens: how much of the end of the history stays.
        minimum_reduction_tokens: how much smaller the history must become: each checkpoint costs the prompt cache.

    Raises:
        InvalidArgument: a number is no int or negative, or the recent tail alone is as large as the threshold.
    """

    threshold_tokens: int = 100_000
    preserve_recent_tokens: int = 20_000
    minimum_reduction_tokens: int = 10_000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidArgument(f"history_archive: {name} is {value!r}: give a nonnegative int")
        if self.preserve_recent_tokens >= self.threshold_tokens:
            raise InvalidArgument(
                f"history_archive: preserve_recent_tokens is {self.preserve_recent_tokens} and threshold_tokens "
                f"{self.threshold_tokens}: nothing could ever be archived. Let the first be well below the second"
            )


@dataclass(frozen=True)
class ArchivePlan:
    """What is to be archived: the native messages from `start` up to `end`."""

    start: int
    end: int
    exchanges: int


def plan_archive(
    dialect: MessageDialect[MessageT],
    messages: Sequence[MessageT],
    entries: Sequence[EntryMetadata],
    settings: HistoryArchiveSettings,
    *,
    turn_id: str,
    estimated_tokens: int,
    given: int = 1,
) -> ArchivePlan | None:
    """Find what may be archived before a request.

    Args:
        dialect: what describes the messages.
        messages: the native history, the request that is about to be sent last.
        entries: what is known of each.
        settings: when, and how much.
        turn_id: the turn that runs; only exchanges of its own are archived.
        estimated_tokens: the size of the history.
        given: how many messages the turn's prompt is.
    """
    if estimated_tokens < settings.threshold_tokens:
        return None
    opening = next((index for index, entry in enumerate(entries) if _is_said(entry, turn_id)), None)
    if opening is None:
        return None
    tokens = [
        estimate_message(dialect, messages[index]) if entry.estimated_tokens is None else entry.estimated_tokens
        for index, entry in enumerate(entries)
    ]
    end = _end(dialect, messages, tokens, settings.preserve_recent_tokens)
    best: ArchivePlan | None = None
    best_tokens = settings.minimum_reduction_tokens + _CHECKPOINT_TOKENS - 1
    history = _Loop(dialect, messages, entries, turn_id)
    for plan in history.runs(opening + given, end):
        taken = sum(tokens[plan.start : plan.end])
        if taken > best_tokens:
            best, best_tokens = plan, taken
    return best


def _is_said(entry: EntryMetadata, turn_id: str) -> bool:
    """Whether a message is the turn's own, and not what editing has put into the history meanwhile."""
    return any(origin.run_id == turn_id and origin.kind not in _OF_EDITING for origin in entry.origins)


def _end(dialect: MessageDialect[MessageT], messages: Sequence[MessageT], tokens: Sequence[int], preserve: int) -> int:
    """Index of the first message of the recent tail: at the latest the newest answer, which the request is about."""
    total, index, has_answer = 0, len(tokens), False
    while index > 0 and (not has_answer or total + tokens[index - 1] <= preserve):
        index -= 1
        total += tokens[index]
        has_answer = has_answer or any(one.role == "model" for one in _facts(dialect, messages[index]))
    return index


@dataclass(frozen=True)
class _Loop(Generic[MessageT]):
    """A history in which whole exchanges of one turn are looked for."""

    dialect: MessageDialect[MessageT]
    messages: Sequence[MessageT]
    entries: Sequence[EntryMetadata]
    turn_id: str

    def runs(self, start: int, end: int) -> list[ArchivePlan]:
        """The longest runs of whole exchanges that may go, in order."""
        runs: list[ArchivePlan] = []
        first, exchanges, index = start, 0, start
        while index < end:
            after = self._exchange(index, end)
            if after is None:
                if exchanges:
                    runs.append(ArchivePlan(first, index, exchanges))
                index += 1
                first, exchanges = index, 0
            else:
                index, exchanges = after, exchanges + 1
        if exchanges:
            runs.append(ArchivePlan(first, index, exchanges))
        return runs

    def _exchange(self, index: int, end: int) -> int | None:
        """Where the exchange that begins at a message ends; None where none does that may go."""
        calls = _facts(self.dialect, self.messages[index])
        if len(calls) != 1 or calls[0].role != "model" or not calls[0].calls or not self._may_go(calls[0], index):
            return None
        open_calls = list(calls[0].calls)
        after = index + 1
        while open_calls and after < end:
            for fact in _facts(self.dialect, self.messages[after]):
                if fact.role != "tool" or not self._may_go(fact, after):
                    return None
                for result in fact.results:
                    if result not in open_calls:
                        return None
                    open_calls.remove(result)
            after += 1
        return None if open_calls else after

    def _may_go(self, facts: EntryFacts, index: int) -> bool:
        entry = self.entries[index]
        is_record = facts.provider or facts.unfinished or facts.checkpoint or entry.is_archive
        return not is_record and entry.run_id == self.turn_id


def _facts(dialect: MessageDialect[MessageT], message: MessageT) -> list[EntryFacts]:
    return [dialect.facts(piece) for piece in dialect.split(message)]


def checkpoint_text(reference: str, exchanges: int, results: Sequence[tuple[str, str]]) -> str:
    """What stands in the place of exchanges.

    Args:
        reference: names the archive.
        exchanges: how many there are.
        results: the tool and the outcome of each call.
    """
    tools = ", ".join(f"{tool} x{count}" for tool, count in sorted(Counter(tool for tool, _ in results).items()))
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(Counter(name for _, name in results).items()))
    return (
        f"[Archive {reference}: {exchanges} earlier tool exchanges of this turn are stored and no longer shown. "
        f'Tools: {tools}. Outcomes: {outcomes}. {READ_TOOL}(reference="{reference}") shows them exactly as they were.]'
    )


def archive(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    plan: ArchivePlan,
    reference: str,
    *,
    results: Sequence[tuple[str, str]],
    user_text: Callable[[str], MessageT],
) -> EditOutcome[MessageT]:
    """Put the checkpoint in place of what was archived.

    Args:
        dialect: what describes the messages.
        request: the request that is about to be sent.
        plan: what was archived.
        reference: under what name.
        results: the tool and the outcome of each call in it.
        user_text: makes a native message of a text.
    """
    text = checkpoint_text(reference, plan.exchanges, results)
    origin = HistoryOrigin("archive", request.run_id, reference)
    before = view_of(dialect, request.messages, request.entries, request_index=request.request_index)
    messages = [*request.messages[: plan.start], user_text(text), *request.messages[plan.end :]]
    known = [*request.entries[: plan.start], EntryMetadata((origin,)), *request.entries[plan.end :]]
    messages, known = settle(dialect, messages, known)
    known = estimated(dialect, messages, known)
    receipt = receipt_of(
        dialect,
        request,
        messages,
        known,
        processor=ARCHIVER,
        groups_before=len(find_groups(dialect, before)),
        released=(),
    )
    return EditOutcome("accepted", messages, known, receipt)
