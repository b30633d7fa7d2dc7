"""The same history in both frameworks' messages, and the same edits of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter as Messages

from laneway.activities.langchain_summary import LangChainText

from tests.history.histories import Token, changed, new_message


def twin(piece: ModelMessage) -> list[BaseMessage]:
    """A message of one role in LangChain's form: one message, but one for each result and each text."""
    if isinstance(piece, ModelResponse):
        return [_answer(piece)]
    return [_said(part) for part in piece.parts]


def _said(part: ModelRequestPart) -> BaseMessage:
    match part:
        case ToolReturnPart():
            return _result(part)
        case RetryPromptPart(tool_call_id=call):  # pyright: ignore[reportDeprecated]
            return ToolMessage(part.model_response(), tool_call_id=call, name=part.tool_name, status="error")
        case SystemPromptPart():
            return SystemMessage(part.content)
        case CompactionPart():
            return AIMessage([{"type": "compaction", "content": part.content}])
        case UserPromptPart():
            is_text = isinstance(part.content, str)
            return HumanMessage(part.content if is_text else [_item(item) for item in part.content])
        case unknown:
            raise AssertionError(unknown)


def _result(part: ToolReturnPart) -> ToolMessage:
    status = "error" if part.outcome == "retried" else "success"
    return ToolMessage(part.model_response_str(), tool_call_id=part.tool_call_id, name=part.tool_name, status=status)


def _item(item: object) -> Any:
    match item:
        case str():
            return {"type": "text", "text": item}
        case TextContent():
            return {"type": "text", "text": item.content}
        case ImageUrl():
            return {"type": "image_url", "image_url": {"url": item.url}}
        case BinaryContent():
            return {"type": "file", "base64": item.base64, "mime_type": item.media_type, "filename": "a.pdf"}
        case unknown:
            raise AssertionError(unknown)


def _answer(response: ModelResponse) -> AIMessage:
    content: list[Any] = []
    calls: list[Any] = []
    for part in response.parts:
        match part:
            case TextPart():
                content.append({"type": "text", "text": part.content})
            case ThinkingPart():
                content.append({"type": "thinking", "thinking": part.content, "signature": part.signature or ""})
            case ToolCallPart():
                calls.append({"id": part.tool_call_id, "name": part.tool_name, "args": part.args_as_dict()})
            case NativeToolCallPart():
                content.append({"type": "web_search_call", "id": "ws_1", "status": "completed"})
            case NativeToolReturnPart():
                continue
            case CompactionPart():
                content.append({"type": "compaction", "content": part.content})
            case unknown:
                raise AssertionError(unknown)
    metadata: dict[str, Any] = {}
    if response.provider_name is not None:
        metadata["model_provider"] = response.provider_name
    if response.state == "suspended":
        metadata["stop_reason"] = "pause_turn"
    if response.provider_response_id is not None:
        metadata["id"] = response.provider_response_id
    texts = [block["text"] for block in content if block["type"] == "text"]
    plain = texts[0] if len(content) == len(texts) == 1 else content or ""
    return AIMessage(plain, tool_calls=calls, response_metadata=metadata)


def twins(pieces: Sequence[ModelMessage]) -> list[BaseMessage]:
    """A history in LangChain's form."""
    return [message for piece in pieces for message in twin(piece)]


def lines_of(messages: Sequence[BaseMessage]) -> list[str]:
    """What a history says, however it is cut into messages."""
    return [str(line) for message in messages for line in LangChainText().lines(message)]


def pieces_of(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """A native history of Pydantic AI, each part of a request as a message of its own."""
    pieces: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            pieces.append(message)
        else:
            pieces += [replace(message, parts=[part]) for part in message.parts]
    return pieces


def places(pieces: Sequence[ModelMessage]) -> list[int]:
    """Where each piece begins in the twin history, and where that ends."""
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(twin(piece)))
    return starts


def returned(messages: Sequence[BaseMessage], pieces: Sequence[ModelMessage], tokens: Sequence[Token]) -> list[Any]:
    """What a processor returns that makes of the twin what `tests.history.test_properties.returned` makes."""
    starts = places(pieces)
    result: list[BaseMessage] = []
    for number, token in enumerate(tokens):
        if token.old is None:
            result += twin(new_message(token.kind, number))
        elif token.kind == "changed":
            result += twin(changed(Messages.validate_json(Messages.dump_json([pieces[token.old]]))[0]))
        else:
            result += messages[starts[token.old] : starts[token.old + 1]]
    return result


def has_feedback(pieces: Sequence[ModelMessage]) -> bool:
    """Whether the framework speaks in it, which LangChain has no message for."""
    return any(isinstance(piece, ModelRequest) and piece.parts[0].part_kind == "retry-feedback" for piece in pieces)
