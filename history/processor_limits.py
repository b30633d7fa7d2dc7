"""Limit warnings: a model that is told that it is running out can come to an end by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from laneway.errors import InvalidArgument
from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.processor_native import NativeText, is_settled, native_text, written_by_processor
from laneway.history.processor_plan import Measure
from laneway.history.triggers import Size, TokenCounter, check_tokens, is_whole, size_of

__all__ = ["LimitWarnerProcessor"]

Level = Literal["Warning", "Critical"]

_OPENINGS: Final[dict[Level, str]] = {"Warning": "[Limit warning]", "Critical": "[Critical limit warning]"}


@dataclass(frozen=True)
class LimitWarnerProcessor:
    """Tells the model, before the current request, that a limit comes near. It never takes anything away.

    A warning is said once: of requests once a turn at each level, of the context once at each level while that warning
    is in the history. What it says holds for the moment at which it was said, so an old one misleads nobody.

    Attributes:
        max_requests: how many model requests a turn may take, such as the `request_limit` of its usage limits.
        max_context_tokens: how many tokens the history may take.
        warning_threshold: from which part of a limit on a warning is said, in (0, 1].
        critical_remaining_requests: at how many requests left, the one that is about to be sent included, the warning
            becomes critical. That of the context is critical at the limit.
        token_counter: see `SlidingWindowProcessor`.

    Raises:
        InvalidArgument: a limit is not a positive int, the threshold is not in (0, 1], or there is no limit.
    """

    max_requests: int | None = None
    max_context_tokens: int | None = None
    warning_threshold: float = field(default=0.7, kw_only=True)
    critical_remaining_requests: int = field(default=3, kw_only=True)
    token_counter: TokenCounter | None = field(default=None, kw_only=True)
    _measure: Measure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_requests is not None and not is_whole(self.max_requests, least=1):
            raise InvalidArgument(f"max_requests={self.max_requests!r} is not a positive whole number of requests")
        check_tokens(self.max_context_tokens, "max_context_tokens")
        if self.max_requests is None and self.max_context_tokens is None:
            raise InvalidArgument("there is no limit to warn of: give max_requests, max_context_tokens or both")
        size_of(("fraction", self.warning_threshold), "warning_threshold")
        if not is_whole(self.critical_remaining_requests, least=0):
            raise InvalidArgument(
                f"critical_remaining_requests={self.critical_remaining_requests!r} is negative or no int"
            )
        measure = Measure.of((), token_counter=self.token_counter, max_input_tokens=None, model=None)
        object.__setattr__(self, "_measure", measure)

    async def __call__(self, ctx: HistoryProcessorContext[MessageT]) -> list[MessageT]:
        """The history, with what has to be said now before the current request."""
        if not is_settled(ctx):
            return ctx.messages
        warnings = [self._of_requests(ctx), await self._of_context(ctx)]
        said = [text for text in warnings if text]
        current = ctx.groups[-1].entry_start
        if not said:
            return ctx.messages
        return [*ctx.messages[:current], native_text(ctx).user_text("\n".join(said)), *ctx.messages[current:]]

    def _of_requests(self, ctx: HistoryProcessorContext[MessageT]) -> str | None:
        if self.max_requests is None:
            return None
        done = ctx.request_index - 1
        left = max(self.max_requests - done, 0)
        level: Level | None = "Warning" if done / self.max_requests >= self.warning_threshold else None
        if left <= self.critical_remaining_requests:
            level = "Critical"
        if level is None:
            return None
        opening = f"{_OPENINGS[level]} Model requests:"
        if _is_said(ctx, native_text(ctx), opening, _start_of_turn(ctx)):
            return None
        end = "Come to an end: give your best answer now." if level == "Critical" else "Begin to come to an end."
        return f"{opening} {done} of {self.max_requests} of this turn were made at this point, {left} are left. {end}"

    async def _of_context(self, ctx: HistoryProcessorContext[MessageT]) -> str | None:
        limit = self.max_context_tokens
        if limit is None or not await self._measure.has_reached(ctx, [Size("tokens", limit * self.warning_threshold)]):
            return None
        level: Level = "Critical" if await self._measure.has_reached(ctx, [Size("tokens", limit)]) else "Warning"
        opening = f"{_OPENINGS[level]} Context:"
        if _is_said(ctx, native_text(ctx), opening, 0):
            return None
        full = "used up" if level == "Critical" else f"used to {self.warning_threshold:.0%} or more"
        return f"{opening} at this point {limit} tokens were {full}. Be brief, and read no more than you need."


def _start_of_turn(ctx: HistoryProcessorContext[MessageT]) -> int:
    """Index of the first message of the turn: its prompt, or what a processor has put right before it."""
    start = ctx.groups[-1].entry_start
    while start > 0 and (origins := ctx.entries[start - 1].origins):
        if any(origin.kind != "processor" for origin in origins):
            break
        start -= 1
    return start


def _is_said(ctx: HistoryProcessorContext[MessageT], native: NativeText[MessageT], opening: str, start: int) -> bool:
    """Whether a processor has said something that begins so, from message `start` on."""
    return any(
        opening in line.text
        for index in range(start, len(ctx.messages))
        if written_by_processor(ctx.entries[index].origins)
        for line in native.lines(ctx.messages[index])
        if line.kind == "user"
    )
