"""What the stock processors need of LangChain: the text of its messages, text messages, and a model that summarizes.

It is offered to them when this module is imported, which the adapter does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from laneway.activities.adapter import RetryPolicy
from laneway.activities.langchain_framing import GraphFraming
from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_models import IN_LANE_REQUEST, stop_sdk_retries, told_apart
from laneway.activities.langchain_parts import pieces_of
from laneway.activities.langchain_telemetry import GraphSpans
from laneway.activities.langchain_traits import inner_models, model_id_of
from laneway.activities.summary_requests import SUMMARY_RETRIES, SummaryRequests
from laneway.activities.telemetry import telemetry_here
from laneway.history.estimation import estimate_message
from laneway.history.model_calls import CallAnswer, CallFailed, ModelCalls
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
    retry_policy: RetryPolicy = SUMMARY_RETRIES

    async def summarize(self, request: SummaryRequest, calls: ModelCalls | None) -> CallAnswer:
        """The model's answer.

        Raises:
            CallFailed: there is none, or it was cut off: what it leaves out would be lost.
        """
        stop_sdk_retries()
        model = model_id_of(self.model)
        requests = SummaryRequests(calls, self.retry_policy, told_apart)
        framing = None if calls is None else calls.framing
        try:
            if request.prefix and isinstance(framing, GraphFraming) and framing.is_of(self.model):
                asked = [*framing.opening, *request.prefix, HumanMessage(request.instruction)]
                text = await self._text(requests, asked, framing)
                if text.strip():
                    return CallAnswer(text, model, requests.usage)
                # It called tools instead. Asked about a text, it has none.
            text = await self._text(requests, [HumanMessage(request.text)], None)
        except Exception as error:
            raise CallFailed(error, requests.usage, model=model) from error
        return CallAnswer(text, model, requests.usage)

    async def _text(self, requests: SummaryRequests, messages: list[BaseMessage], framing: GraphFraming | None) -> str:
        options = {} if framing is None else framing.options_of(self.model)

        step = telemetry_here()
        config: RunnableConfig | None = None if step is None else {"callbacks": [GraphSpans(step)]}

        async def ask() -> AIMessage:
            token = IN_LANE_REQUEST.set(True)
            try:
                return await self.model.ainvoke(messages, config, **options)
            finally:
                IN_LANE_REQUEST.reset(token)

        size = sum(estimate_message(_DIALECT, message) for message in messages)
        answer = await requests.send(ask, tokens=size if framing is None else size + framing.tools_tokens)
        if (used := answer.usage_metadata) is not None:
            details = used.get("input_token_details", {})
            requests.used(
                input_tokens=used["input_tokens"],
                output_tokens=used["output_tokens"],
                cache_read_tokens=details.get("cache_read", 0),
                cache_write_tokens=details.get("cache_creation", 0),
            )
        for key in ("finish_reason", "stop_reason", "status"):
            if answer.response_metadata.get(key) in _CUT_OFF:
                raise ValueError(
                    f"the summary of {model_id_of(self.model)} was cut off ({answer.response_metadata[key]})"
                )
        return "\n".join(piece.text for piece in pieces_of(answer) if piece.kind == "text")


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
