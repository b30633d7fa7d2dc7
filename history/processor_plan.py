"""Where a stock processor cuts: which groups are left once a history has reached a size.

A cut is a place in the messages; what goes is the whole groups on its far side that may go at all. So a cut inside a
group keeps the group, and what has to stay does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

from laneway.errors import InvalidArgument
from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.given import check_model, is_function
from laneway.history.groups import HistoryGroup
from laneway.history.processor_native import called, is_settled, native_text
from laneway.history.triggers import Size, TokenCounter, check_tokens, is_whole, size_of, sizes_of, window_of

__all__ = ["Cut", "Measure"]


@dataclass(frozen=True, slots=True)
class Measure:
    """How sizes are measured.

    Attributes:
        token_counter: the caller's own counter; None for the estimate.
        max_input_tokens: what fractions are fractions of; None for the window of the model that is asked.
        fallback_window: in its place, where nothing is known of that model's.
    """

    token_counter: TokenCounter | None = None
    max_input_tokens: int | None = None
    fallback_window: int | None = None

    @classmethod
    def of(
        cls, sizes: Sequence[Size], *, token_counter: TokenCounter | None, max_input_tokens: int | None, model: object
    ) -> Self:
        """The measure for some sizes.

        Raises:
            InvalidArgument: one of them is a fraction, and of nothing that is known; or another argument is none.
        """
        check_model("model", model)
        check_tokens(max_input_tokens, "max_input_tokens")
        if token_counter is not None and not is_function(token_counter):
            raise InvalidArgument(
                f"token_counter={token_counter!r} cannot be called: give a function of a list of messages"
            )
        window: int | None = None
        fraction = next((size for size in sizes if size.unit == "fraction"), None)
        if fraction is not None and max_input_tokens is None:
            window = None if model is None else window_of(model)
            if window is None:
                raise InvalidArgument(
                    f"the size ('fraction', {fraction.amount!r}) needs max_input_tokens: the window of "
                    f"model={model!r} is not known"
                )
        return cls(token_counter, max_input_tokens, window)

    async def has_reached(self, ctx: HistoryProcessorContext[MessageT], triggers: Sequence[Size]) -> bool:
        """Whether the history is as large as any of these sizes."""
        if any(size.unit == "messages" and len(ctx.messages) >= size.amount for size in triggers):
            return True
        limits = [self.tokens_in(size, ctx) for size in triggers if size.unit != "messages"]
        if not limits:
            return False
        if self.token_counter is None:
            return ctx.estimated_tokens >= min(limits)
        return await self.tokens(ctx, range(len(ctx.messages))) >= min(limits)

    def tokens_in(self, size: Size, ctx: HistoryProcessorContext[MessageT]) -> float:
        """A size in tokens, of a unit that is not messages."""
        if size.unit == "tokens":
            return size.amount
        window = self.max_input_tokens or window_of(ctx.model_id) or self.fallback_window
        assert window is not None, "a fraction of nothing was refused when it was given"
        return size.amount * window

    async def tokens(self, ctx: HistoryProcessorContext[MessageT], indices: Sequence[int]) -> int:
        """The tokens of some of the messages.

        Raises:
            TypeError: the caller's counter did not return a nonnegative int.
        """
        if not indices:
            return 0  # not asked of a counter: some count a constant for each request
        if self.token_counter is None:
            return sum(estimate_of(ctx, index) for index in indices)
        messages = [ctx.messages[index] for index in indices]
        answer = await called(self.token_counter, messages)
        if not is_whole(answer, least=0):
            raise TypeError(f"token_counter returned {answer!r}: it has to return a nonnegative int, now or later")
        return cast("int", answer)


def estimate_of(ctx: HistoryProcessorContext[MessageT], index: int) -> int:
    """The estimate of one message, in tokens."""
    known = ctx.entries[index].estimated_tokens
    return native_text(ctx).tokens(ctx.messages[index]) if known is None else known


@dataclass(frozen=True, slots=True)
class Cut:
    """When to cut, and what to keep.

    Attributes:
        triggers: sizes of which any is enough.
        keep: how much of the end stays.
        keep_head: how much of the beginning stays.
        measure: how they are measured.
    """

    triggers: tuple[Size, ...]
    keep: Size
    keep_head: Size | None
    measure: Measure

    @classmethod
    def of(
        cls,
        *,
        trigger: object,
        keep: object,
        keep_head: object,
        max_input_tokens: int | None,
        token_counter: TokenCounter | None,
        model: object,
    ) -> Self:
        """A cut as callers of a processor describe it.

        Raises:
            InvalidArgument: something in it can never work.
        """
        triggers, kept = sizes_of(trigger, "trigger"), size_of(keep, "keep")
        # A bare number of messages is what most people mean by a head.
        is_number = isinstance(keep_head, int) and not isinstance(keep_head, bool)
        head = None if keep_head is None else size_of(("messages", keep_head) if is_number else keep_head, "keep_head")
        sizes = [*triggers, kept, *(() if head is None else (head,))]
        measure = Measure.of(sizes, token_counter=token_counter, max_input_tokens=max_input_tokens, model=model)
        return cls(triggers, kept, head, measure)

    async def groups(self, ctx: HistoryProcessorContext[MessageT]) -> list[HistoryGroup]:
        """The groups that go before this request, in order; none while no size is reached."""
        if not is_settled(ctx) or not await self.measure.has_reached(ctx, self.triggers):
            return []
        # System text stays whatever happens, and a window that counted it would be a message short.
        counted = [
            index
            for group in ctx.groups
            if "system" not in group.protected_reasons or "current" in group.protected_reasons
            for index in range(group.entry_start, group.entry_end)
        ]
        tail = await self._tail(ctx, counted)
        start = counted[tail] if tail < len(counted) else len(ctx.messages)
        head = await self._head(ctx, counted)
        end = counted[head] if head < len(counted) else len(ctx.messages)
        return [
            group
            for group in ctx.groups
            if group.closed and not group.protected and group.entry_end <= start and group.entry_start >= end
        ]

    async def _tail(self, ctx: HistoryProcessorContext[MessageT], counted: Sequence[int]) -> int:
        """Position in `counted` of the first message of the longest end that fits `keep`."""
        if self.keep.unit == "messages":
            return max(len(counted) - int(self.keep.amount), 0)
        limit = self.measure.tokens_in(self.keep, ctx)
        low, high = 0, len(counted)
        while low < high:
            middle = (low + high) // 2
            if await self.measure.tokens(ctx, counted[middle:]) <= limit:
                high = middle
            else:
                low = middle + 1
        return low

    async def _head(self, ctx: HistoryProcessorContext[MessageT], counted: Sequence[int]) -> int:
        """Position in `counted` after the longest beginning that fits `keep_head`."""
        if self.keep_head is None:
            return 0
        if self.keep_head.unit == "messages":
            return min(int(self.keep_head.amount), len(counted))
        limit = self.measure.tokens_in(self.keep_head, ctx)
        low, high = 0, len(counted)
        while low < high:
            middle = (low + high + 1) // 2
            if await self.measure.tokens(ctx, counted[:middle]) <= limit:
                low = middle
            else:
                high = middle - 1
        return low
