"""Which message of the input each returned message is.

By content, for a processor may rebuild what it keeps; by identity first, so that messages that say the same are told
apart where they can be; and by whole groups before single messages, so that of several equal openings the one is taken
whose group follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laneway.history.groups import HistoryGroup

__all__ = ["Match", "match_messages"]


@dataclass(frozen=True, slots=True)
class Match:
    """How a returned history relates to the input.

    Attributes:
        inputs: for each returned message the index of the input message that it is; None for a new one.
        outputs: for each input message the index of the returned message that is it; None for one that is gone.
        edited_in_place: for a returned message that is no longer what its detached copy was, the index of the input.
        repeats: returned messages that begin a second copy of a whole group.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    edited_in_place: dict[int, int]
    repeats: frozenset[int]


def match_messages(
    groups: Sequence[HistoryGroup],
    copies: Sequence[object],
    contents: Sequence[bytes],
    returned: Sequence[object],
    returned_contents: Sequence[bytes],
) -> Match:
    """Match what a processor returned with what it was given.

    Args:
        groups: the groups of the input.
        copies: the detached messages that the processor was given.
        contents: what each input message says.
        returned: what the processor returned.
        returned_contents: what each returned message says now.
    """
    matcher = _Matcher(groups, copies, contents, returned, returned_contents)
    matcher.match_groups()
    matcher.match_rest()
    return matcher.result()


class _Matcher:
    def __init__(
        self,
        groups: Sequence[HistoryGroup],
        copies: Sequence[object],
        contents: Sequence[bytes],
        returned: Sequence[object],
        returned_contents: Sequence[bytes],
    ) -> None:
        self._groups = groups
        self._contents = list(contents)
        self._returned_contents = list(returned_contents)
        given = {id(copy): index for index, copy in enumerate(copies)}
        self._given = [given.get(id(message)) for message in returned]
        self._inputs: list[int | None] = [None] * len(returned)
        self._outputs: list[int | None] = [None] * len(contents)
        self._group_at = {group.entry_start: number for number, group in enumerate(groups)}
        self._openings: dict[bytes, list[int]] = {}
        for number, group in enumerate(groups):
            self._openings.setdefault(self._contents[group.entry_start], []).append(number)

    def match_groups(self) -> None:
        # The current request first: it can only be at the end, and an earlier group may say the same.
        end = len(self._inputs)
        current = self._groups[-1]
        if end >= len(current) and self._fits(len(self._groups) - 1, end - len(current)):
            end -= len(current)
            self._take(len(self._groups) - 1, end)
        position, last = 0, -1
        while position < end:
            number = self._group_for(position, end, after=last)
            if number is None:
                position += 1
            else:
                self._take(number, position)
                position, last = position + len(self._groups[number]), number

    def match_rest(self) -> None:
        free: dict[bytes, list[int]] = {}
        for index, output in enumerate(self._outputs):
            if output is None:
                free.setdefault(self._contents[index], []).append(index)
        last = -1
        for position, content in enumerate(self._returned_contents):
            if self._inputs[position] is None and (candidates := free.get(content)):
                given = self._given[position]
                index = given if given in candidates else next((i for i in candidates if i > last), candidates[0])
                candidates.remove(index)
                self._inputs[position], self._outputs[index] = index, position
            matched = self._inputs[position]
            last = last if matched is None else matched

    def result(self) -> Match:
        edited = {
            position: given
            for position, given in enumerate(self._given)
            if given is not None and self._returned_contents[position] != self._contents[given]
        }
        repeats = frozenset(
            position
            for position, matched in enumerate(self._inputs)
            if matched is None
            and any(
                self._says(number, position) for number in self._openings.get(self._returned_contents[position], ())
            )
        )
        return Match(tuple(self._inputs), tuple(self._outputs), edited, repeats)

    def _group_for(self, position: int, end: int, *, after: int) -> int | None:
        given = self._given[position]
        likely = [self._group_at.get(given, -1) if given is not None else -1, after + 1]
        for number in likely:
            if 0 <= number < len(self._groups) and self._fits(number, position, end):
                return number
        fitting = [
            number
            for number in self._openings.get(self._returned_contents[position], ())
            if self._fits(number, position, end)
        ]
        return max(fitting, key=lambda number: (len(self._groups[number]), number > after, -number), default=None)

    def _fits(self, number: int, position: int, end: int | None = None) -> bool:
        group = self._groups[number]
        free = self._outputs[group.entry_start] is None
        return free and (end is None or position + len(group) <= end) and self._says(number, position)

    def _says(self, number: int, position: int) -> bool:
        group = self._groups[number]
        theirs = self._returned_contents[position : position + len(group)]
        return theirs == self._contents[group.entry_start : group.entry_end]

    def _take(self, number: int, position: int) -> None:
        group = self._groups[number]
        for offset in range(len(group)):
            self._inputs[position + offset] = group.entry_start + offset
            self._outputs[group.entry_start + offset] = position + offset
