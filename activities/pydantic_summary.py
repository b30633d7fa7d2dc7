"""What the stock processors need of Pydantic AI: the text of its messages, text messages, and a model that summarizes.

It is offered to them when this module is imported, which the adapter does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    BinaryContent,
    CachePoint,
    CompactionPart,
    FilePart,
    FileUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    SpeechPart,
    StructuredContent,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    UploadedFile,
    UserPromptPart,
)
from pydantic_ai.models import Model, infer_model

from laneway.activities.adapter import RetryPolicy
from laneway.activities.pydantic_framing import RequestFraming, is_same_model
from laneway.activities.pydantic_messages import PydanticDialect
from laneway.activities.pydantic_models import stop_sdk_retries, told_apart
from laneway.activities.pydantic_telemetry import instrumentation_of
from laneway.activities.summary_requests import SUMMARY_RETRIES, SummaryRequests
from laneway.activities.telemetry import telemetry_here
from laneway.history.context import HistoryProcessor
from laneway.history.estimation import estimate_message
from laneway.history.model_calls import CallAnswer, CallFailed, ModelCalls
from laneway.history.processor_native import Line, ModelSummarizer, SummaryRequest, offer_native_text

__all__ = ["Processors", "PydanticSummarizer", "PydanticText", "is_cut_off"]

Processors: TypeAlias = HistoryProcessor[ModelMessage] | Sequence[HistoryProcessor[ModelMessage]]
"""A history processor, or several that run one after the other."""

_DIALECT: Final = PydanticDialect()


@dataclass(frozen=True)
class PydanticSummarizer:
    """Asks a Pydantic AI model for a summary. It is retried as the turn's own requests are, though not for as long.

    Attributes:
        model: the model, or its name.
        retry_policy: how requests that failed on their way are retried.
    """

    model: Model | str
    retry_policy: RetryPolicy = SUMMARY_RETRIES

    async def summarize(self, request: SummaryRequest, calls: ModelCalls | None) -> CallAnswer:
        """The model's answer.

        Raises:
            CallFailed: there is none, or it was cut off: what it leaves out would be lost.
        """
        model = infer_model(self.model)
        stop_sdk_retries(model)
        requests = SummaryRequests(calls, self.retry_policy, told_apart)
        framing = None if calls is None else calls.framing
        try:
            if request.prefix and isinstance(framing, RequestFraming) and is_same_model(model, framing.model):
                instruction = ModelRequest.user_text_prompt(request.instruction)
                prefix = cast("Sequence[ModelMessage]", request.prefix)
                text = await _text(model, requests, [*prefix, instruction], framing)
                if text.strip():
                    return CallAnswer(text, model.model_id, requests.usage)
                # It called tools instead. Asked about a text, it has none.
            text = await _text(model, requests, [ModelRequest.user_text_prompt(request.text)], None)
        except Exception as error:
            raise CallFailed(error, requests.usage, model=model.model_id) from error
        return CallAnswer(text, model.model_id, requests.usage)


def is_cut_off(response: ModelResponse) -> bool:
    """Whether an answer ended before its end."""
    return response.finish_reason in ("length", "content_filter", "error") or response.state != "complete"


async def _text(
    model: Model, requests: SummaryRequests, messages: list[ModelMessage], framing: RequestFraming | None
) -> str:
    step = telemetry_here()
    instrument = None if step is None else instrumentation_of(step)

    async def ask() -> ModelResponse:
        if framing is None:
            return await model_request(model, messages, instrument=instrument)
        return await model_request(
            model,
            messages,
            model_settings=framing.settings,
            model_request_parameters=framing.parameters,
            instrument=instrument,
        )

    size = sum(estimate_message(_DIALECT, message) for message in messages)
    response = await requests.send(ask, tokens=size if framing is None else size + framing.tokens)
    used = response.usage
    requests.used(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )
    if is_cut_off(response):
        raise ValueError(f"the summary of {model.model_id} was cut off ({response.finish_reason or response.state})")
    return "\n".join(part.content for part in response.parts if isinstance(part, TextPart))


class PydanticText:
    """Text of `ModelMessage`s, as `NativeText` asks."""

    def tokens(self, message: ModelMessage) -> int:
        """The conservative estimate of one message, in tokens."""
        return estimate_message(_DIALECT, message)

    def lines(self, message: ModelMessage) -> Sequence[Line]:
        """Everything that a message says, in order."""
        parts: Sequence[ModelRequestPart | ModelResponsePart] = message.parts
        return [line for part in parts for line in _lines(part) if line.text or line.kind == "call"]

    def user_text(self, text: str) -> ModelMessage:
        """A request with this text as its prompt."""
        return ModelRequest(parts=[UserPromptPart(text)])

    def is_bound(self, message: ModelMessage) -> bool:
        """Whether it holds thinking that Claude signed."""
        return bool(_DIALECT.bound_reasoning(message))

    def summarizer(self, model: object) -> ModelSummarizer:
        """What asks a model of Pydantic AI, by instance or name, or a chat model of LangChain.

        Raises:
            TypeError: it is none of these.
        """
        if isinstance(model, Model | str):
            return PydanticSummarizer(cast("Model | str", model))
        if "langchain_core" in sys.modules:  # where its models come from
            from laneway.activities.langchain_summary import LangChainText

            if (summarizer := LangChainText().own_summarizer(model)) is not None:
                return summarizer
        raise TypeError(
            f"model={model!r} cannot summarize: give a Pydantic AI model, the name of one, or a LangChain chat model"
        )


def _lines(part: ModelRequestPart | ModelResponsePart) -> Iterator[Line]:
    match part:
        case SystemPromptPart():
            yield Line("system", part.content)
        case UserPromptPart():
            items: Sequence[object] = [part.content] if isinstance(part.content, str) else part.content
            for item in items:
                match item:
                    case StructuredContent():
                        yield Line("user", item.render())
                    case TextContent():
                        yield Line("user", item.content)
                    case CachePoint():
                        continue
                    case str():
                        yield Line("user", item)
                    case _:
                        yield Line("user", str(_described(item)), is_file=True)
        case BaseToolReturnPart():
            yield Line("result", _result_text(part), part.tool_name)
        case RetryPromptPart() | RetryFeedbackPart():  # pyright: ignore[reportDeprecated]
            tool = part.tool_name if isinstance(part, RetryPromptPart) else None  # pyright: ignore[reportDeprecated]
            yield Line("result" if tool else "retry", part.model_response(), tool)
        case BaseToolCallPart():
            yield Line("call", part.args_as_json_str(), part.tool_name)
        case ThinkingPart():
            yield Line("thinking", part.content)
        case TextPart() | SpeechPart():
            is_user = isinstance(part, SpeechPart) and part.speaker == "user"
            yield Line("user" if is_user else "assistant", part.content)
        case CompactionPart():
            yield Line("assistant", part.content or "")
        case FilePart():
            yield Line("assistant", str(_described(part.content)), is_file=True)
        case _:
            return  # a record of changed tools, instructions or settings: nothing that was said


def _result_text(part: BaseToolReturnPart) -> str:
    described = replace(part, content=_described(part.content))
    return "\n".join(str(item) for item in described.content_items(mode="str"))


def _described(value: object) -> object:
    """The value, with a description in place of whatever in it is binary. Bytes as text would be noise, and charged."""
    match value:
        case BinaryContent():
            return f"[{value.media_type}, {len(value.data)} bytes]"
        case bytes() | bytearray():
            return f"[binary data, {len(value)} bytes]"
        case FileUrl():
            return f"[file at {value.url}]"
        case UploadedFile():
            return f"[uploaded file {value.file_id}]"
        case Mapping():
            items = cast("Mapping[object, object]", value)
            if items.get("kind") == "binary" and isinstance(data := items.get("data"), str):
                # As it is after it was stored inside something else: base64, four characters to three bytes.
                return f"[{items.get('media_type')}, {len(data.rstrip('=')) * 3 // 4} bytes]"
            return {key: _described(item) for key, item in items.items()}
        case list() | tuple():
            return [_described(item) for item in cast("Sequence[object]", value)]
        case _:
            return value


offer_native_text("pydantic_ai", PydanticText())
