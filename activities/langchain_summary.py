"""What the stock processors need of LangChain: the text of its messages, text messages, and a model that summarizes.

It is offered to them when this module is imported, which the adapter does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from laneway.activities.adapter import RetryPolicy
from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_models import IN_LANE_REQUEST, stop_sdk_retries, told_apart
from laneway.activities.langchain_parts import pieces_of
from laneway.activities.langchain_traits import inner_models, model_id_of
from laneway.activities.retries import TransientFailure
from laneway.history.estimation import estimate_message
from laneway.history.model_calls import CallAnswer, CallFailed, CallUsage, ModelCalls
from laneway.history.processor_native import Line, LineKind, ModelSummarizer, SummaryRequest, offer_native_text

__all__ = ["LangChainSummarizer", "LangChainText"]

_DIALECT: Final = LangChainDialect()
_CUT_OFF: Final = frozenset({"length", "max_tokens", "content_filter", "refusal", "incomplete", "MAX_TOKENS", "SAFETY"})


@dataclass(frozen=True)
class LangChainSummarizer:
    """Asks a LangChain chat model for a summary. It is retried as the turn's own requests are, though not for as long.

    Attributes:
        model: the model.
        retry_policy: how requests that failed on their way are retried.
    """

    model: BaseChatModel
    retry_policy: RetryPolicy = field(
        default=RetryPolicy(max_attempts=3, first_delay=timedelta(seconds=1), max_delay=timedelta(seconds=20))
    )

    async def summarize(self, request: SummaryRequest, calls: ModelCalls | None) -> CallAnswer:
        """The model's answer to the request as a text.

        Raises:
            CallFailed: there is none, or it was cut off: what it leaves out would be lost.
        """
        stop_sdk_retries()
        model = model_id_of(self.model)
        usage = CallUsage()
        try:
            answer, requests = await self._answer([HumanMessage(request.text)], calls)
            usage = _usage_of(answer, requests)
            metadata = answer.response_metadata
            for key in ("finish_reason", "stop_reason", "status"):
                if metadata.get(key) in _CUT_OFF:
                    raise ValueError(f"the summary of {model} was cut off ({metadata[key]})")
        except _Refused as error:
            raise CallFailed(error.cause, CallUsage(error.requests), model=model) from error
        except Exception as error:
            raise CallFailed(error, usage, model=model) from error
        return CallAnswer("\n".join(piece.text for piece in pieces_of(answer) if piece.kind == "text"), model, usage)

    async def _answer(self, messages: list[BaseMessage], calls: ModelCalls | None) -> tuple[AIMessage, int]:
        """The answer, and how many requests it took."""
        delay, policy = self.retry_policy.first_delay, self.retry_policy
        for attempt in range(1, policy.max_attempts + 1):
            if calls is not None:
                await calls.admit(sum(estimate_message(_DIALECT, message) for message in messages))
            token = IN_LANE_REQUEST.set(True)
            try:
                return await self.model.ainvoke(messages), attempt
            except Exception as error:
                told = told_apart(error)
                if not isinstance(told, TransientFailure) or attempt == policy.max_attempts:
                    raise _Refused(error, attempt) from error
                wait = delay if told.retry_after is None else told.retry_after
                if wait > policy.max_delay:
                    raise _Refused(error, attempt) from error
            finally:
                IN_LANE_REQUEST.reset(token)
            await asyncio.sleep(wait.total_seconds())
            delay = min(delay * policy.backoff, policy.max_delay)
        raise AssertionError("the last attempt returns or raises")


class _Refused(Exception):
    """No request was answered."""

    def __init__(self, cause: Exception, requests: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.requests = requests


def _usage_of(answer: AIMessage, requests: int) -> CallUsage:
    usage = answer.usage_metadata
    if usage is None:
        return CallUsage(requests)
    details = usage.get("input_token_details", {})
    return CallUsage(
        requests,
        usage["input_tokens"],
        usage["output_tokens"],
        details.get("cache_read", 0),
        details.get("cache_creation", 0),
    )


class LangChainText:
    """Text of `BaseMessage`s, as `NativeText` asks."""

    def tokens(self, message: BaseMessage) -> int:
        """The conservative estimate of one message, in tokens."""
        return estimate_message(_DIALECT, message)

    def lines(self, message: BaseMessage) -> Sequence[Line]:
        """Everything that a message says, in order."""
        return [line for line in _lines(message) if line.text or line.kind == "call"]

    def user_text(self, text: str) -> BaseMessage:
        """A message of the user's with this text. It gets its id where the edit is taken up."""
        return HumanMessage(text)

    def is_bound(self, message: BaseMessage) -> bool:
        """Whether it holds thinking that Claude signed."""
        return bool(_DIALECT.bound_reasoning(message))

    def summarizer(self, model: object) -> ModelSummarizer:
        """What asks a chat model of LangChain, or a model of Pydantic AI, by instance or name.

        Raises:
            TypeError: it is none of these.
        """
        own = self.own_summarizer(model)
        if own is not None:
            return own
        # Names are Pydantic AI's on every adapter, so that a processor means the same wherever it is used.
        from laneway.activities.pydantic_summary import PydanticText

        return PydanticText().summarizer(model)

    def own_summarizer(self, model: object) -> LangChainSummarizer | None:
        """What asks a chat model of LangChain; None if it is none.

        Raises:
            TypeError: there is one inside of it, with tools or parsers around it.
        """
        if isinstance(model, BaseChatModel):
            return LangChainSummarizer(model)
        if next(inner_models(model), None) is not None:
            raise TypeError(f"model={model!r} cannot summarize: give the chat model itself, without tools or parsers")
        return None


def _lines(message: BaseMessage) -> Iterator[Line]:
    role = _DIALECT.facts(message).role
    if role == "tool":
        tool = message.name or (message.tool_call_id if isinstance(message, ToolMessage) else None)
        yield Line("result", "\n".join(piece.text for piece in pieces_of(message)), tool)
        return
    speaker: LineKind = "assistant" if role == "model" else role
    for piece in pieces_of(message):
        match piece.kind:
            case "thinking":
                yield Line("thinking", piece.text)
            case "call":
                yield Line("call", piece.text, piece.tool)
            case "file":
                yield Line(speaker, piece.text, is_file=True)
            case "record":
                yield Line("result", piece.text, "provider")
            case "text":
                yield Line(speaker, piece.text)


offer_native_text("langchain", LangChainText())
