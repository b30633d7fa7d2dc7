"""The stock history processors: what people reach for first, as ordinary processors over `ctx.groups`.

None of them holds anything between two requests: what they know, they read from the history. So one instance can serve
every lane of an adapter at once. Lists of processors run in order, each on what the one before it returned.
"""

from __future__ import annotations

from typing import Literal

from laneway.history.processor_chain import ProcessorChain, compose
from laneway.history.processor_limits import LimitWarnerProcessor
from laneway.history.processor_native import Summarizer
from laneway.history.processor_results import ClearToolResultsProcessor
from laneway.history.processor_summary import SUMMARY_PROMPT, SummarizationProcessor
from laneway.history.processor_window import SlidingWindowProcessor
from laneway.history.triggers import ContextSize, TokenCounter, Triggers

__all__ = [
    "SUMMARY_PROMPT",
    "ClearToolResultsProcessor",
    "ContextSize",
    "LimitWarnerProcessor",
    "ProcessorChain",
    "SlidingWindowProcessor",
    "SummarizationProcessor",
    "Summarizer",
    "TokenCounter",
    "Triggers",
    "compose",
    "create_sliding_window_processor",
    "create_summarization_processor",
]


def create_sliding_window_processor(
    trigger: Triggers | None = None,
    keep: ContextSize | None = None,
    *,
    keep_head: ContextSize | int | None = None,
    max_input_tokens: int | None = None,
    token_counter: TokenCounter | None = None,
    model: object = None,
) -> SlidingWindowProcessor:
    """A `SlidingWindowProcessor`; what is None is its default.

    Raises:
        InvalidArgument: see `SlidingWindowProcessor`.
    """
    return SlidingWindowProcessor(
        SlidingWindowProcessor.trigger if trigger is None else trigger,
        SlidingWindowProcessor.keep if keep is None else keep,
        keep_head=keep_head,
        max_input_tokens=max_input_tokens,
        token_counter=token_counter,
        model=model,
    )


def create_summarization_processor(
    model: object = None,
    *,
    summarizer: Summarizer | None = None,
    trigger: Triggers | None = None,
    keep: ContextSize | None = None,
    keep_head: ContextSize | int | None = None,
    max_input_tokens: int | None = None,
    token_counter: TokenCounter | None = None,
    summary_prompt: str | None = None,
    trim_tokens_to_summarize: int | None = SummarizationProcessor.trim_tokens_to_summarize,
    on_failure: Literal["keep", "raise"] = "raise",
) -> SummarizationProcessor:
    """A `SummarizationProcessor`; what is None is its default, but for the trimming, which None switches off.

    Raises:
        InvalidArgument: see `SummarizationProcessor`.
    """
    return SummarizationProcessor(
        model,
        summarizer=summarizer,
        trigger=SummarizationProcessor.trigger if trigger is None else trigger,
        keep=SummarizationProcessor.keep if keep is None else keep,
        keep_head=keep_head,
        max_input_tokens=max_input_tokens,
        token_counter=token_counter,
        summary_prompt=SUMMARY_PROMPT if summary_prompt is None else summary_prompt,
        trim_tokens_to_summarize=trim_tokens_to_summarize,
        on_failure=on_failure,
    )
