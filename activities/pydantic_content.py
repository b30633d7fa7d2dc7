"""What Pydantic AI's messages hold: canonical form, and what of them a model is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard, cast

from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    BinaryContent,
    CachePoint,
    CapabilityLoadDeltaPart,
    CompactionPart,
    FilePart,
    InstructionBaselinePart,
    InstructionDeltaPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelSettingsDeltaPart,
    MultiModalContent,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    SpeechPart,
    StructuredContent,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.history.dialect import EntryWeight, MediaKind, MediaWeight

__all__ = ["canonical", "is_native_message", "weight_of"]

_REQUEST_PARTS: Final = (
    SystemPromptPart,
    UserPromptPart,
    ToolReturnPart,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    RetryFeedbackPart,
    SpeechPart,
    CompactionPart,
    InstructionDeltaPart,
    InstructionBaselinePart,
    ToolAvailabilityDeltaPart,
    CapabilityLoadDeltaPart,
    ModelSettingsDeltaPart,
)
_RESPONSE_PARTS: Final = (
    TextPart,
    ThinkingPart,
    ToolCallPart,
    NativeToolCallPart,
    NativeToolReturnPart,
    CompactionPart,
    FilePart,
    SpeechPart,
)

# Bookkeeping that no model is ever sent. Everything else is content, provider ids included.
_BOOKKEEPING: Final = {
    "__all__": {
        "timestamp": True,
        "run_id": True,
        "conversation_id": True,
        "metadata": True,
        "usage": True,
        "model_id": True,
        "workspace_ref": True,
        "history_digest": True,
        "failed_attempts": True,
    }
}
_PART_BOOKKEEPING: Final = ("timestamp", "metadata", "content_file_digests")


def is_native_message(value: object) -> TypeGuard[ModelMessage]:
    """Whether a value is a `ModelMessage` all of whose parts are Pydantic AI's own."""
    if isinstance(value, ModelRequest):
        return _are(value.parts, _REQUEST_PARTS)
    return isinstance(value, ModelResponse) and _are(value.parts, _RESPONSE_PARTS)


def canonical(message: ModelMessage) -> bytes:
    """What a message says, as JSON with sorted keys, without bookkeeping.

    Raises:
        pydantic_core.PydanticSerializationError: a tool result or tool arguments hold what JSON cannot.
    """
    dumped = ModelMessagesTypeAdapter.dump_python([message], mode="json", exclude=_BOOKKEEPING, warnings=False)[0]
    for part in dumped["parts"]:
        for key in _PART_BOOKKEEPING:
            part.pop(key, None)
        if part["part_kind"] == "user-prompt" and isinstance(part["content"], list):
            for item in cast("list[dict[str, object] | str]", part["content"]):
                if not isinstance(item, str):
                    item.pop("metadata", None)
    return json.dumps(dumped, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def weight_of(message: ModelMessage) -> EntryWeight:
    """Every text and every file of a message that a model is sent, reasoning and tool exchanges included."""
    texts: list[str] = []
    media: list[MediaWeight] = []
    parts: Sequence[ModelRequestPart | ModelResponsePart] = message.parts
    for part in parts:
        for item in _sent(part):
            if isinstance(item, str):
                texts.append(item)
            else:
                media.append(_media(item))
    return EntryWeight(tuple(texts), tuple(media))


def _sent(part: ModelRequestPart | ModelResponsePart) -> Iterator[str | MultiModalContent]:
    """What of a part is sent, piece by piece."""
    match part:
        case SystemPromptPart() | TextPart():
            yield part.content
        case UserPromptPart():
            yield from _sent_of_prompt(part)
        case BaseToolReturnPart():
            yield part.tool_name
            yield from part.content_items(mode="str")
        case BaseToolCallPart():
            yield part.tool_name
            yield part.args_as_json_str()
        case RetryPromptPart() | RetryFeedbackPart():  # pyright: ignore[reportDeprecated]
            yield part.model_response()
        case ThinkingPart():
            yield part.content
            # An encrypted block is sent and charged for although none of its text is here.
            yield part.signature or ""
        case CompactionPart():
            yield part.content or ""
            yield from _texts(part.provider_details)
        case FilePart():
            yield part.content
        case SpeechPart():
            yield part.content
            if part.audio is not None:
                yield part.audio
        case InstructionDeltaPart():
            yield part.render()
        case ToolAvailabilityDeltaPart():
            yield " ".join(part.tools_added)
        case InstructionBaselinePart() | CapabilityLoadDeltaPart() | ModelSettingsDeltaPart():
            return


def _sent_of_prompt(part: UserPromptPart) -> Iterator[str | MultiModalContent]:
    if isinstance(part.content, str):
        yield part.content
        return
    for item in part.content:
        match item:
            case str():
                yield item
            case StructuredContent():
                yield item.render()
            case TextContent():
                yield item.content
            case CachePoint():
                continue
            case _:
                yield item


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            yield from _texts(item)


def _media(item: MultiModalContent) -> MediaWeight:
    kind: MediaKind
    media_type = _media_type(item)
    for kind in ("image", "audio", "video"):
        if media_type.startswith(f"{kind}/"):
            break
    else:
        kind = "document"
    return MediaWeight(kind, len(item.data) if isinstance(item, BinaryContent) else None)


def _media_type(item: MultiModalContent) -> str:
    if item.kind in ("image-url", "audio-url", "video-url", "document-url"):
        return item.kind.replace("-url", "/")
    try:
        return item.media_type
    except ValueError:  # an uploaded file whose name says nothing
        return "application/octet-stream"


def _are(parts: object, types: tuple[type, ...]) -> bool:
    if not isinstance(parts, Sequence) or isinstance(parts, str | bytes):
        return False
    return all(isinstance(part, types) for part in cast("Sequence[object]", parts))
