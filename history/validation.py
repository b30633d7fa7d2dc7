"""Whether an edited history may be sent.

An edit is valid if the history reads as whole groups of the input, each at most once and unchanged, and plain text
between them; if every protected group is there, in its order, and no group has passed one; and if the current request
is last. Anything else is refused with the message at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from laneway.history.dialect import EntryFacts
from laneway.history.groups import HistoryGroup
from laneway.history.matching import Match
from laneway.history.rules import EditRule, refuse

__all__ = ["ReturnedHistory", "validate_edit"]


@dataclass(frozen=True, slots=True)
class ReturnedHistory:
    """An edit to be judged.

    Attributes:
        groups: the groups of the input.
        facts: the facts of each input message.
        returned: the facts of each returned message; more than one where a message mixes roles, as no message of the
            input does.
        match: which input message each returned message is.
    """

    groups: tuple[HistoryGroup, ...]
    facts: tuple[EntryFacts, ...]
    returned: tuple[tuple[EntryFacts, ...], ...]
    match: Match


def validate_edit(history: ReturnedHistory) -> None:
    """Judge an edit.

    Raises:
        HistoryProcessingValidationError: it breaks a rule. The index is that of the input message which was taken away
        or
            changed, or of the returned message which was added.
    """
    for group in history.groups:
        _validate_group(history, group)
    for position, matched in enumerate(history.match.inputs):
        if matched is None:
            _validate_new(history, position)
    _validate_end(history)
    _validate_order(history)
    _validate_opening(history)


def _validate_group(history: ReturnedHistory, group: HistoryGroup) -> None:
    indices = range(group.entry_start, group.entry_end)
    positions = [history.match.outputs[index] for index in indices]
    kept = [position for position in positions if position is not None]
    if not kept:
        if group.protected:
            _refuse_loss(history, group, group.entry_start)
        return
    if len(kept) < len(positions):
        _refuse_partial(history, group)
    for index, (before, after) in enumerate(pairwise(kept), group.entry_start + 1):
        if after < before:
            refuse(EditRule.ORDER_CHANGED, index - 1)
        if after > before + 1:
            _refuse_interruption(history, before + 1, index)


def _refuse_loss(history: ReturnedHistory, group: HistoryGroup, index: int) -> None:
    """Refuse that message `index` of a protected group is gone, by whether something stands in its place."""
    if _has_stand_in(history, index):
        refuse(EditRule.PROTECTED_CHANGED, index)
    if group is history.groups[-1] and (index in (group.entry_start, group.entry_end - 1)):
        refuse(EditRule.CURRENT_REQUEST_MISSING, index)
    refuse(EditRule.PROTECTED_REMOVED, index)


def _refuse_partial(history: ReturnedHistory, group: HistoryGroup) -> None:
    outputs = history.match.outputs
    indices = range(group.entry_start, group.entry_end)
    gone = next(index for index in indices if outputs[index] is None)
    if group.protected:
        _refuse_loss(history, group, gone)
    answered = {call: index for index in indices for call in history.facts[index].calls}
    for index in indices:
        for result in history.facts[index].results if outputs[index] is not None else ():
            asked = answered.get(result)
            if asked is not None and outputs[asked] is None and not _has_stand_in(history, asked):
                refuse(EditRule.ORPHAN_RESULT, index)
    if _has_stand_in(history, gone):
        refuse(EditRule.PARTIAL_GROUP, gone)
    first_kept = next(index for index in indices if outputs[index] is not None)
    if gone < first_kept:
        # The head was cut off: what is at fault is the message that now begins where nothing begins.
        refuse(EditRule.PARTIAL_GROUP, first_kept)
    asked_for = [answered[result] for result in history.facts[gone].results if result in answered]
    is_answer = any(outputs[index] is not None for index in asked_for)
    refuse(EditRule.ORPHAN_CALL if is_answer else EditRule.PARTIAL_GROUP, gone)


def _refuse_interruption(history: ReturnedHistory, position: int, index: int) -> None:
    """Refuse that something stands between two messages of a group: something new, or a message of another group."""
    if history.match.inputs[position] is None:
        _validate_new(history, position)
        refuse(EditRule.PARTIAL_GROUP, position)
    refuse(EditRule.PARTIAL_GROUP, index)


def _has_stand_in(history: ReturnedHistory, index: int) -> bool:
    """Whether a new message of the same role stands where input message `index` stood."""
    if index in history.match.edited_in_place.values():
        return True
    outputs = history.match.outputs
    before = outputs[index - 1] if index > 0 else -1
    after = outputs[index + 1] if index + 1 < len(outputs) else len(history.returned)
    places = (None if before is None else before + 1, None if after is None else after - 1)
    return any(
        place is not None
        and 0 <= place < len(history.returned)
        and history.match.inputs[place] is None
        and history.returned[place][0].role == history.facts[index].role
        for place in places
    )


def _validate_new(history: ReturnedHistory, position: int) -> None:
    if position in history.match.repeats:
        refuse(EditRule.DUPLICATE_GROUP, position)
    for facts in history.returned[position]:
        if facts.results:
            open_calls = _open_calls(history.returned[:position])
            known = all(result in open_calls for result in facts.results)
            refuse(EditRule.FABRICATED_RECORD if known else EditRule.ORPHAN_RESULT, position)
        if facts.calls:
            following = history.returned[position + 1][0].results if position + 1 < len(history.returned) else ()
            known = set(facts.calls) <= set(following)
            refuse(EditRule.FABRICATED_RECORD if known else EditRule.ORPHAN_CALL, position)
        if facts.role == "system":
            refuse(EditRule.SYSTEM_REPLACED, position)
        if facts.provider or facts.checkpoint or facts.unfinished or facts.continues:
            refuse(EditRule.FABRICATED_RECORD, position)
        if facts.empty:
            refuse(EditRule.EMPTY_TEXT, position)
        if not facts.plain_text:
            refuse(EditRule.NOT_TEXT, position)


def _open_calls(returned: Sequence[tuple[EntryFacts, ...]]) -> set[str]:
    open_calls: set[str] = set()
    for pieces in returned:
        for facts in pieces:
            open_calls.update(facts.calls)
            open_calls.difference_update(facts.results)
    return open_calls


def _validate_end(history: ReturnedHistory) -> None:
    """Nothing may be added after the current request. A group that was moved there is `crossed_protected`."""
    end = history.match.outputs[-1]
    assert end is not None, "the current request was found by _validate_group"
    for position in range(end + 1, len(history.returned)):
        if history.match.inputs[position] is None:
            refuse(EditRule.CURRENT_REQUEST_MISSING, position)


def _validate_order(history: ReturnedHistory) -> None:
    # A protected group has an odd place of its own, the free groups between two protected ones share an even one: the
    # order is right if the places never go down.
    places: list[tuple[int, HistoryGroup]] = []
    passed = 0
    for group in history.groups:
        passed += group.protected
        places.append((2 * passed - 1 if group.protected else 2 * passed, group))
    returned = sorted(
        ((place, group) for place, group in places if history.match.outputs[group.entry_start] is not None),
        key=lambda item: history.match.outputs[item[1].entry_start] or 0,
    )
    for at in range(1, len(returned)):
        if returned[at][0] >= returned[at - 1][0]:
            continue
        # Blame the one group without which the order would be right, a free one if either would do.
        suspects = sorted((at - 1, at), key=lambda suspect: returned[suspect][1].protected)
        moved = next(
            (suspect for suspect in suspects if _is_ordered([p for i, (p, _) in enumerate(returned) if i != suspect])),
            at,
        )
        refuse(EditRule.CROSSED_PROTECTED, returned[moved][1].entry_start)


def _is_ordered(places: Sequence[int]) -> bool:
    return all(before <= after for before, after in pairwise(places))


def _validate_opening(history: ReturnedHistory) -> None:
    for position, pieces in enumerate(history.returned):
        for facts in pieces:
            if facts.role == "system":
                continue
            if facts.role == "model":
                matched = history.match.inputs[position]
                refuse(EditRule.OPENS_WITH_MODEL, position if matched is None else matched)
            return
