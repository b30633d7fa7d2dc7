"""Summarization: once a history has reached a size, its oldest groups give way to one text that sums them up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from laneway.errors import (
    BudgetExceeded,
    HistoryProcessingError,
    InvalidArgument,
    RequestTooLarge,
    ServiceUnavailable,
    StoreError,
)
from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.estimation import estimate_text
from laneway.history.given import check_callable, check_text
from laneway.history.groups import HistoryGroup
from laneway.history.model_calls import CallAnswer, CallFailed
from laneway.history.processor_native import (
    Line,
    NativeText,
    Summarizer,
    SummaryRequest,
    called,
    messages_of,
    native_text,
    written_by_processor,
)
from laneway.history.processor_plan import Cut
from laneway.history.triggers import ContextSize, TokenCounter, Triggers, check_tokens

__all__ = ["SUMMARY_OPENING", "SUMMARY_PROMPT", "SummarizationProcessor"]

logger = logging.getLogger(__name__)

SUMMARY_OPENING: Final = "Summary of the earlier conversation, which is no longer shown:"
"""How a summary begins in the history. With its origin, it is how the next summary knows it."""

SUMMARY_PROMPT: Final = """\
Below is the earlier part of a conversation between a user and an assistant that works with tools. It will be removed,
and your summary will stand in its place, so whatever you leave out is lost.

Keep: what the user wants and has decided; names, numbers, paths, identifiers and other facts, word for word; what was
done and what came of it, failed attempts too; what is still open. If it begins with an earlier summary, carry all that
still matters over into yours. Leave out pleasantries and repetition. Answer with the summary alone.

<conversation>
{messages}
</conversation>"""

_PLACE: Final = "{messages}"
_ABOVE: Final = "(It is the conversation above.)"
_SHORTEST_CHARACTER: Final = 0.33  # tokens of an estimate, at least, for each character of a text


@dataclass(frozen=True)
class SummarizationProcessor:
    """Replaces the oldest exchanges with a summary of them, once the history has reached a size.

    Whole groups are summarized, and protected ones stay where they are, as `SlidingWindowProcessor` cuts. An earlier
    summary is summarized with what followed it: there is never one inside another.

    Attributes:
        model: the model that summarizes: a name, or a model of the agent's framework. Where it is the conversation's
            own, and its provider was sent the same messages before, they are sent again as they were, with
            `summary_prompt` after them, since the provider has them cached; nothing is trimmed then. Its window is
            taken for fractions where that of the conversation's model is not known.
        summarizer: in place of a model: a function that answers the request to summarize, sync or async.
        trigger, keep, keep_head, max_input_tokens, token_counter: see `SlidingWindowProcessor`.
        summary_prompt: the request to summarize. `{messages}` is replaced with the messages as text, and no other
            brace means anything.
        trim_tokens_to_summarize: how many tokens of messages the request holds at most, the newest; None for all. An
            earlier summary does not count, and always reaches the request whole.
        focus: what the summary should pay particular attention to, said after `summary_prompt`.
        on_failure: what a summary that cannot be made does: `"raise"` fails the turn, `"keep"` leaves the history as it
            is and lets the turn go on. Neither changes anything. What was kept is not asked for again in its turn, and
            the lane's next turns wait before they ask: a minute, and twice as long with each further failure, up to a
            quarter of an hour.

    Raises:
        InvalidArgument: a size makes no sense (see `SlidingWindowProcessor`), `summary_prompt` has no place for the
            messages, or there is not exactly one of `model` and `summarizer`.
    """

    model: object = None
    summarizer: Summarizer | None = field(default=None, kw_only=True)
    trigger: Triggers = field(default=("tokens", 170_000), kw_only=True)
    keep: ContextSize = field(default=("messages", 20), kw_only=True)
    keep_head: ContextSize | int | None = field(default=None, kw_only=True)
    max_input_tokens: int | None = field(default=None, kw_only=True)
    token_counter: TokenCounter | None = field(default=None, kw_only=True)
    summary_prompt: str = field(default=SUMMARY_PROMPT, kw_only=True, repr=False)
    trim_tokens_to_summarize: int | None = field(default=4000, kw_only=True)
    on_failure: Literal["keep", "raise"] = field(default="raise", kw_only=True)
    focus: str | None = field(default=None, kw_only=True)
    _cut: Cut = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.model is None) == (self.summarizer is None):
            raise InvalidArgument(
                f"model={self.model!r} and summarizer={self.summarizer!r}: give exactly one of them to summarize with"
            )
        check_callable("summarizer", self.summarizer, "a function from the request's text to the summary")
        check_text("summary_prompt", self.summary_prompt)
        if self.focus is not None:
            check_text("focus", self.focus, give="some text, or None for nothing in particular")
        if _PLACE not in self.summary_prompt:
            raise InvalidArgument(f"summary_prompt has no {_PLACE}: say where in it the messages go")
        check_tokens(self.trim_tokens_to_summarize, "trim_tokens_to_summarize")
        if self.on_failure not in ("keep", "raise"):
            raise InvalidArgument(f"on_failure={self.on_failure!r} is unknown: use 'keep' or 'raise'")
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
        """The history with a summary in place of its oldest groups.

        Raises:
            HistoryProcessingError: there is no summary, and `on_failure` is `"raise"`.
        """
        old = await self._cut.groups(ctx)
        if not old or self._is_put_off(ctx):
            return ctx.messages
        native = native_text(ctx)
        request = await self._request(ctx, native, old)
        if request is None:
            return ctx.messages
        try:
            summary = await self._ask(ctx, native, request, old)
        except (StoreError, ServiceUnavailable):
            raise  # of the step, not of the summary
        except Exception as error:
            return self._failed(ctx, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled the turn: it was the call that was given up.
            if ctx.calls is not None:
                ctx.calls.failed("summary", error)
            return self._failed(ctx, error)
        gone = {group.group_id for group in old}
        edited: list[MessageT] = []
        for group in ctx.groups:
            if group is old[0]:
                edited.append(native.user_text(f"{SUMMARY_OPENING}\n\n{summary}"))
            if group.group_id not in gone:
                edited.extend(messages_of(ctx, group))
        return edited

    def _is_put_off(self, ctx: HistoryProcessorContext[MessageT]) -> bool:
        return self.on_failure == "keep" and ctx.calls is not None and ctx.calls.is_put_off("summary")

    async def _ask(
        self,
        ctx: HistoryProcessorContext[MessageT],
        native: NativeText[MessageT],
        request: str,
        old: Sequence[HistoryGroup],
    ) -> str:
        async def ask() -> CallAnswer:
            if self.summarizer is None:
                prefix = None if ctx.calls is None else ctx.calls.native_prefix(ctx.messages[: old[-1].entry_end])
                instruction = self._asking(_ABOVE)
                whole = SummaryRequest(request, prefix, instruction)
                answer = await native.summarizer(self.model).summarize(whole, ctx.calls)
            else:
                answer = CallAnswer(cast("str", await called(self.summarizer, request)))
            if not isinstance(cast("object", answer.text), str):
                raise TypeError(f"the summarizer returned {answer.text!r}: it has to return a text, now or later")
            if not answer.text.strip():
                raise CallFailed(ValueError("the summary is empty"), answer.usage, model=answer.model)
            return answer

        if ctx.calls is None:
            try:
                return (await ask()).text.strip()
            except CallFailed as error:
                raise error.cause from None
        keeps_failure = self.on_failure == "keep"
        return (await ctx.calls.once("summary", request, ask, keeps_failure=keeps_failure)).strip()

    def _failed(self, ctx: HistoryProcessorContext[MessageT], error: BaseException) -> list[MessageT]:
        if self.on_failure == "raise":
            if isinstance(error, BudgetExceeded | RequestTooLarge):
                raise error
            raise HistoryProcessingError(
                f"the history could not be summarized, and is as before: {type(error).__name__}: {error}"
            ) from error
        logger.warning("the history could not be summarized, and is as before: %s: %s", type(error).__name__, error)
        return ctx.messages

    async def _request(
        self, ctx: HistoryProcessorContext[MessageT], native: NativeText[MessageT], old: Sequence[HistoryGroup]
    ) -> str | None:
        """The request to summarize these groups; None if there is nothing in them but summaries."""
        earlier: list[str] = []
        indices: list[int] = []
        texts: list[str] = []
        for group in old:
            for index in range(group.entry_start, group.entry_end):
                lines = list(native.lines(ctx.messages[index]))
                if written_by_processor(ctx.entries[index].origins):
                    earlier += [line.text for line in lines if _is_summary(line)]
                    lines = [line for line in lines if not _is_summary(line)]
                if lines:
                    indices.append(index)
                    texts.append("\n".join(str(line) for line in lines))
        if not texts:
            return None
        left_out = await self._left_out(ctx, indices, texts)
        if left_out == len(texts):
            shown = [_end_of(texts[-1], self.trim_tokens_to_summarize or 0)]
            left_out -= 1
        else:
            shown = texts[left_out:]
        note = [f"({left_out} earlier messages are left out here.)"] if left_out else []
        return self._asking("\n\n".join([*earlier, *note, *shown]))

    def _asking(self, messages: str) -> str:
        request = self.summary_prompt.replace(_PLACE, messages)
        return request if self.focus is None else f"{request}\n\nPay particular attention to: {self.focus}"

    async def _left_out(self, ctx: HistoryProcessorContext[MessageT], indices: list[int], texts: list[str]) -> int:
        """How many of the oldest messages do not fit `trim_tokens_to_summarize`."""
        limit = self.trim_tokens_to_summarize
        if limit is None:
            return 0
        if self.token_counter is None:
            total = 0
            for fitting, text in enumerate(reversed(texts)):
                total += estimate_text(text)
                if total > limit:
                    return len(texts) - fitting
            return 0
        low, high = 0, len(indices)
        while low < high:
            middle = (low + high) // 2
            if await self._cut.measure.tokens(ctx, indices[middle:]) <= limit:
                high = middle
            else:
                low = middle + 1
        return low


def _is_summary(line: Line) -> bool:
    return line.kind == "user" and line.text.startswith(SUMMARY_OPENING)


def _end_of(text: str, limit_tokens: int) -> str:
    """The end of a text, of at most so many tokens."""
    end = text[-int(limit_tokens / _SHORTEST_CHARACTER) :]
    while len(end) > 1 and estimate_text(end) > limit_tokens:
        end = end[len(end) // 4 + 1 :]
    return f"… {end}"
