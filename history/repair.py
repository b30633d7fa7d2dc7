"""Importing a history that was made elsewhere: validated whole, repaired only where that was asked for, and recorded.

Providers refuse a history whose calls and results do not pair, and for good: each later request carries it again. So it
is refused here, with the message at fault, or repaired in the three ways that invent nothing: an unanswered call is
answered with the statement that no result was recorded, a result without a call is removed, and a call id that was used
before is replaced, in the call and in its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, cast

from laneway.history.dialect import EntryFacts, MessageT, RepairableDialect
from laneway.history.rules import EditRule, refuse

__all__ = ["ImportRepair", "ImportedHistory", "RepairKind", "validate_import"]

RepairKind = Literal["call_closed", "result_removed", "call_renamed"]

_SUBJECT = "the imported history"
_ID_LENGTH = 60  # a provider takes ids of 64 characters; some are left for the number that makes one unique


@dataclass(frozen=True, slots=True)
class ImportRepair:
    """One repair.

    Attributes:
        kind: what was done.
        index: the message in the list that was given.
        tool_call_id: the call, by the id it came with.
        new_tool_call_id: the id that it has now, if it was renamed.
    """

    kind: RepairKind
    index: int
    tool_call_id: str
    new_tool_call_id: str | None = None


@dataclass(frozen=True)
class ImportedHistory(Generic[MessageT]):
    """A history that can open a lane.

    Attributes:
        messages: native messages in their framework's normal form.
        repairs: what was repaired, in the order of the messages; empty if nothing was.
    """

    messages: list[MessageT]
    repairs: tuple[ImportRepair, ...]


def validate_import(
    dialect: RepairableDialect[MessageT], messages: object, *, repair: bool = False
) -> ImportedHistory[MessageT]:
    """Check a history whole, and repair it if that was asked for. The messages that were given are not changed.

    Raises:
        HistoryProcessingValidationError: it may not be sent; `index` is that of the message at fault.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
        refuse(EditRule.NOT_A_SEQUENCE, None, subject=_SUBJECT)
    importer = _Importer(dialect, is_repair=repair)
    for index, message in enumerate(cast("Sequence[object]", messages)):
        if not dialect.is_native(message):
            refuse(EditRule.NOT_NATIVE, index, subject=_SUBJECT)
        importer.take(index, message)
    return importer.result()


@dataclass(frozen=True, slots=True)
class _OpenCall:
    position: int
    given_id: str
    new_id: str


class _Importer(Generic[MessageT]):
    """Walks a history once, with the calls in mind that the last answer of the model left open."""

    def __init__(self, dialect: RepairableDialect[MessageT], *, is_repair: bool) -> None:
        self._dialect = dialect
        self._is_repair = is_repair
        self._taken: list[MessageT] = []
        self._repairs: list[ImportRepair] = []
        self._used: set[str] = set()
        self._open: list[_OpenCall] = []
        self._asking: tuple[int, MessageT] | None = None
        self._has_opened = False

    def take(self, index: int, message: MessageT) -> None:
        pieces = self._dialect.split(message)
        taken = [taken for piece in pieces for taken in self._pieces(index, piece)]
        whole = len(taken) == len(pieces) and all(map(_is, taken, pieces))
        self._taken.extend((message,) if whole else taken)

    def result(self) -> ImportedHistory[MessageT]:
        self._taken.extend(self._close())
        if not self._taken:
            refuse(EditRule.EMPTY, None, subject=_SUBJECT)
        return ImportedHistory([message for message, _ in self._dialect.settle(self._taken)], tuple(self._repairs))

    def _pieces(self, index: int, piece: MessageT) -> list[MessageT]:
        """What stands for a message of one role: itself, changed or not, and before it what had to be closed."""
        facts = self._dialect.facts(piece)
        match facts.role:
            case "system":
                return [piece]
            case "tool":
                answered = self._answer(index, piece, facts)
                return [] if answered is None else [answered]
            case "user":
                self._has_opened = True
                return [*self._close(), piece]
            case "model":
                if not self._has_opened:
                    refuse(EditRule.OPENS_WITH_MODEL, index, subject=_SUBJECT)
                return [*self._close(), self._ask(index, piece, facts)]

    def _ask(self, index: int, model: MessageT, facts: EntryFacts) -> MessageT:
        for position, given in enumerate(facts.calls):
            new = given
            if given in self._used:
                self._require_repair(EditRule.REUSED_CALL_ID, index)
                new = self._unused(given)
                self._repairs.append(ImportRepair("call_renamed", index, given, new))
            self._used.add(new)
            self._open.append(_OpenCall(position, given, new))
        ids = [call.new_id for call in self._open]
        renamed = model if tuple(ids) == facts.calls else self._dialect.with_ids(model, ids)
        self._asking = (index, renamed)
        return renamed

    def _answer(self, index: int, results: MessageT, facts: EntryFacts) -> MessageT | None:
        ids: list[str] = []
        orphans: list[int] = []
        for position, given in enumerate(facts.results):
            # Calls that share an id within one answer are answered in their order.
            call = next((call for call in self._open if call.given_id == given), None)
            if call is None:
                self._require_repair(EditRule.ORPHAN_RESULT, index)
                self._repairs.append(ImportRepair("result_removed", index, given))
                orphans.append(position)
            else:
                self._open.remove(call)
                ids.append(call.new_id)
        kept = self._dialect.without_results(results, orphans) if orphans else results
        if kept is None or tuple(ids) == self._dialect.facts(kept).results:
            return kept
        return self._dialect.with_ids(kept, ids)

    def _close(self) -> list[MessageT]:
        if not self._open or self._asking is None:
            return []
        index, model = self._asking
        self._require_repair(EditRule.ORPHAN_CALL, index)
        self._repairs.extend(ImportRepair("call_closed", index, call.given_id) for call in self._open)
        positions = [call.position for call in self._open]
        self._open.clear()
        return list(self._dialect.answers(model, positions))

    def _require_repair(self, rule: EditRule, index: int) -> None:
        if not self._is_repair:
            refuse(rule, index, subject=_SUBJECT)

    def _unused(self, given: str) -> str:
        number = 2
        while (new := f"{given[:_ID_LENGTH]}-{number}") in self._used:
            number += 1
        return new


def _is(one: object, other: object) -> bool:
    return one is other
