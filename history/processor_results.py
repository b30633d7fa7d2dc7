"""Clearing of tool results: what tools returned long ago goes, what was asked and answered stays, as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from laneway.errors import InvalidArgument
from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.given import listed
from laneway.history.groups import HistoryGroup
from laneway.history.processor_native import Line, NativeText, is_settled, messages_of, native_text
from laneway.history.processor_plan import Measure
from laneway.history.triggers import Size, TokenCounter, Triggers, is_whole, sizes_of

__all__ = ["CLEARED_OPENING", "ClearToolResultsProcessor"]

CLEARED_OPENING: Final = "An earlier exchange, without what its tools returned:"
"""How the text begins that stands in place of an exchange."""

_EXCHANGE: Final = frozenset({"call", "result", "retry"})


@dataclass(frozen=True)
class ClearToolResultsProcessor:
    """Replaces old exchanges that used tools with their text, without what the tools returned.

    One result inside an exchange cannot be changed by itself (see docs/history.md), so the exchange becomes one text:
    what the user said, which tools were called with what, and what the assistant answered. Protected groups and the
    current request stay, and so does an exchange with files outside its results, since text cannot stand for them.

    Attributes:
        trigger: when to clear; see `SlidingWindowProcessor`.
        keep: how many tool results stay at least, the newest of finished, unprotected exchanges. An exchange of which
            one result stays, stays whole.
        exclude_tools: an exchange with a result of one of these tools stays.
        max_input_tokens, token_counter, model: see `SlidingWindowProcessor`.

    Raises:
        InvalidArgument: a size makes no sense (see `SlidingWindowProcessor`), or `keep` is negative or no int.
    """

    trigger: Triggers = ("tokens", 100_000)
    keep: int = 3
    exclude_tools: Collection[str] = field(default=(), kw_only=True)
    max_input_tokens: int | None = field(default=None, kw_only=True)
    token_counter: TokenCounter | None = field(default=None, kw_only=True)
    model: object = field(default=None, kw_only=True)
    _triggers: tuple[Size, ...] = field(init=False, repr=False, compare=False)
    _measure: Measure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_whole(self.keep, least=0):
            raise InvalidArgument(
                f"keep={self.keep!r} is not a nonnegative int: give the number of tool results to keep"
            )
        excluded = listed(
            "exclude_tools", self.exclude_tools, "a list of tool names", is_one=lambda one: isinstance(one, str)
        )
        triggers = sizes_of(self.trigger, "trigger")
        measure = Measure.of(
            triggers, token_counter=self.token_counter, max_input_tokens=self.max_input_tokens, model=self.model
        )
        object.__setattr__(self, "exclude_tools", frozenset(excluded))
        object.__setattr__(self, "_triggers", triggers)
        object.__setattr__(self, "_measure", measure)

    async def __call__(self, ctx: HistoryProcessorContext[MessageT]) -> list[MessageT]:
        """The history with text in place of old exchanges that used tools."""
        if not is_settled(ctx) or not await self._measure.has_reached(ctx, self._triggers):
            return ctx.messages
        native = native_text(ctx)
        cleared = self._cleared(ctx, native)
        return [
            message
            for group in ctx.groups
            for message in (
                [native.user_text(cleared[group.group_id])] if group.group_id in cleared else messages_of(ctx, group)
            )
        ]

    def _cleared(self, ctx: HistoryProcessorContext[MessageT], native: NativeText[MessageT]) -> dict[str, str]:
        """The groups that give way, by id, and the text of each."""
        cleared: dict[str, str] = {}
        newer = 0
        for group in reversed(ctx.groups):
            if group.protected or not group.closed:
                continue
            lines = _lines_of(ctx, native, group)
            results = [line for line in lines if line.kind == "result"]
            if newer >= self.keep and self._may_go(lines, results):
                cleared[group.group_id] = _text_of(lines)
            newer += len(results)
        return cleared

    def _may_go(self, lines: Sequence[Line], results: Sequence[Line]) -> bool:
        return (
            bool(results)
            and not any(line.tool in self.exclude_tools for line in results)
            and not any(line.is_file for line in lines if line.kind != "result")
        )


def _lines_of(ctx: HistoryProcessorContext[MessageT], native: NativeText[MessageT], group: HistoryGroup) -> list[Line]:
    return [line for message in messages_of(ctx, group) for line in native.lines(message)]


def _text_of(lines: Sequence[Line]) -> str:
    """The exchange as text. What stands for an exchange before it stays as it is, not as something that was said."""
    before = [line.text for line in lines if _is_cleared(line)]
    said: list[str] = []
    for line in lines:
        if line.kind in ("call", "user", "assistant") and not _is_cleared(line):
            said.append(str(line))
        elif line.kind == "result" and not line.is_file:
            said.append(f"{line.tool} returned: (cleared)")
    return "\n\n".join([*before, "\n".join([CLEARED_OPENING, *said])])


def _is_cleared(line: Line) -> bool:
    return line.kind == "user" and line.text.startswith(CLEARED_OPENING)
