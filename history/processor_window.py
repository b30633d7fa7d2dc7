"""A sliding window: once a history has reached a size, its oldest groups go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.groups import HistoryGroup
from laneway.history.processor_native import messages_of
from laneway.history.processor_plan import Cut
from laneway.history.triggers import ContextSize, TokenCounter, Triggers

__all__ = ["SlidingWindowProcessor", "without"]


@dataclass(frozen=True)
class SlidingWindowProcessor:
    """Drops the oldest exchanges once the history has reached a size. It asks no model.

    Whole groups go. A cut that falls inside one keeps it, and protected groups, system text and the current request
    stay, so what is left can be larger than `keep`; system messages do not count towards it.

    Attributes:
        trigger: when to cut: `("messages", n)`, `("tokens", n)`, `("fraction", f)` of the window, or a list of them of
            which any is enough. A history that is exactly as large has reached it.
        keep: how much of the end stays, in the same units; an amount of 0 keeps what has to stay.
        keep_head: how much of the beginning stays besides: a size, or a number of messages.
        max_input_tokens: what fractions are fractions of. Where it is left out: the window of the model that is asked,
            and where nothing is known of that, the window of `model`.
        token_counter: counts the tokens of a list of native messages, sync or async. Where it is left out: what the
            provider measured, and estimates of what came since.
        model: the name of a model, or a model, whose window is taken for fractions.

    Raises:
        InvalidArgument: a unit is unknown, a number is negative, a fraction is not in (0, 1] or of nothing that is
            known; or an argument is of another type than it has to be.
    """

    trigger: Triggers = ("messages", 100)
    keep: ContextSize = ("messages", 50)
    keep_head: ContextSize | int | None = field(default=None, kw_only=True)
    max_input_tokens: int | None = field(default=None, kw_only=True)
    token_counter: TokenCounter | None = field(default=None, kw_only=True)
    model: object = field(default=None, kw_only=True)
    _cut: Cut = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cut = Cut.of(
            trigger=self.trigger,
            keep=self.keep,
            keep_head=self.keep_head,
            max_input_tokens=self.max_input_tokens,
            token_counter=self.token_counter,
            model=self.model,
        )
        object.__setattr__(self, "_cut", cut)

    async def __call__(self, ctx: HistoryProcessorContext[MessageT]) -> list[MessageT]:
        """The history that stays."""
        return without(ctx, await self._cut.groups(ctx))


def without(ctx: HistoryProcessorContext[MessageT], dropped: Collection[HistoryGroup]) -> list[MessageT]:
    """The messages of a context but for those of some groups."""
    gone = {group.group_id for group in dropped}
    return [message for group in ctx.groups if group.group_id not in gone for message in messages_of(ctx, group)]
