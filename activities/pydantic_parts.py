"""What the parts of Pydantic AI's messages are: of which kind, with which facts, and which only a provider can make."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal, TypeGuard

from pydantic_ai.messages import (
    CompactionPart,
    FilePart,
    InstructionBaselinePart,
    InstructionDeltaPart,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.history.dialect import EntryFacts

__all__ = ["PartKind", "facts_of_request", "facts_of_response", "is_bound", "is_result", "kind_of", "name_of_block"]

PartKind = Literal["results", "system", "checkpoint", "feedback", "prompt", "rider"]
"""What a part of a request is: an answer to a call, lasting system text, a summary that stands for earlier history,
feedback on the model's answer, something a user said, or a record that rides along (of a change of tools, say)."""

_SIGNATURE_KEYS: Final = frozenset(
    {"thought_signature", "encrypted_content", "signature", "redacted_content", "raw_content", "reasoning_details"}
)
"""Keys of `provider_details` whose values only the provider can have made and has to get back."""

_CLAUDE_PROVIDERS: Final = frozenset({"anthropic", "bedrock", "google-cloud", "google-vertex"})

_Result = ToolReturnPart | RetryPromptPart  # pyright: ignore[reportDeprecated]


def is_result(part: ModelRequestPart) -> TypeGuard[_Result]:
    """Whether a part answers a tool call. A retry prompt that names a tool does; one without is feedback."""
    return isinstance(part, _Result) and part.tool_name is not None


def kind_of(part: ModelRequestPart) -> PartKind:
    """What a part of a request is."""
    match part:
        case ToolReturnPart():
            return "results"
        case RetryPromptPart():  # pyright: ignore[reportDeprecated]
            return "feedback" if part.tool_name is None else "results"
        case RetryFeedbackPart():
            return "feedback"
        case SystemPromptPart():
            # One that is scoped to its request is out of the model's sight with the next, so it is no lasting text.
            return "system" if part.scope == "conversation" else "prompt"
        case InstructionDeltaPart() | InstructionBaselinePart():
            return "system"
        case CompactionPart():
            return "checkpoint"
        case UserPromptPart() | SpeechPart():
            return "prompt"
        case _:
            return "rider"


def facts_of_request(message: ModelRequest) -> EntryFacts:
    """The facts of a request whose parts are of one kind."""
    kinds = {kind_of(part) for part in message.parts}
    texts = [_texts(part) for part in message.parts]
    plain = bool(texts) and all(text is not None for text in texts)
    return EntryFacts(
        role="tool" if "results" in kinds else "system" if "system" in kinds else "user",
        results=tuple(part.tool_call_id for part in message.parts if is_result(part)),
        continues="feedback" in kinds and "prompt" not in kinds,
        unfinished=message.state == "interrupted",
        checkpoint="checkpoint" in kinds,
        plain_text=plain,
        empty=not texts or any(text is not None and not _is_visible(text) for text in texts),
    )


def facts_of_response(message: ModelResponse) -> EntryFacts:
    """The facts of a response."""
    is_text = bool(message.parts) and all(
        isinstance(part, TextPart) and part.id is None and not part.provider_details for part in message.parts
    )
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    return EntryFacts(
        role="model",
        calls=tuple(part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)),
        unfinished=message.state != "complete" or _has_open_native_call(message),
        provider=tuple(name for part in message.parts if (name := _provider_record(part)) is not None),
        checkpoint=any(isinstance(part, CompactionPart) for part in message.parts),
        # An id of a response is how its provider continues from it: that is a record, not text.
        plain_text=is_text and message.provider_response_id is None and not message.provider_details,
        empty=not message.parts or (is_text and not _is_visible(texts)),
    )


def is_bound(message: ModelResponse, part: ModelResponsePart) -> bool:
    """Whether a part is a thinking block that Claude signed. Other providers' reasoning is never sent to it."""
    if not isinstance(part, ThinkingPart) or not part.signature:
        return False
    if message.canonical_system is not None:
        return message.canonical_system == "anthropic"
    name = part.provider_name or message.provider_name
    return name == "anthropic" or (name in _CLAUDE_PROVIDERS and "claude" in (message.model_name or ""))


def name_of_block(part: ThinkingPart) -> str:
    """A name that tells one reasoning block from another and says nothing of what is in it."""
    kind = part.id if part.id in ("redacted_thinking", "redacted_content") else "thinking"
    digest = sha256((part.signature or part.id or part.content).encode()).hexdigest()[:12]
    return f"{part.provider_name or 'unknown'}:{kind}:{digest}"


def _texts(part: ModelRequestPart) -> list[str] | None:
    """The texts of a prompt that is nothing but text, else None."""
    if not isinstance(part, UserPromptPart):
        return None
    if isinstance(part.content, str):
        return [part.content]
    texts = [item.content if isinstance(item, TextContent) else item for item in part.content]
    return [text for text in texts if isinstance(text, str)] if all(isinstance(text, str) for text in texts) else None


def _is_visible(texts: list[str]) -> bool:
    return bool(texts) and all(text.strip() for text in texts)


def _provider_record(part: ModelResponsePart) -> str | None:
    """The name of the record that a part is, if only the provider can have made it. An empty signature makes none."""
    match part:
        case NativeToolCallPart() | NativeToolReturnPart():
            return f"native_tool:{part.tool_name}"
        case CompactionPart():
            return None  # a checkpoint, which is protected as one
        case ThinkingPart():
            # OpenAI's reasoning items are known by their id alone where the provider keeps what is in them.
            is_item = part.id is not None and part.id.startswith("rs_")
            return name_of_block(part) if part.signature or is_item or _is_signed(part.provider_details) else None
        case TextPart() | ToolCallPart() | FilePart() | SpeechPart():
            return f"signed:{part.part_kind}" if _is_signed(part.provider_details) else None


def _is_signed(details: Mapping[str, object] | None) -> bool:
    return details is not None and any(details.get(key) for key in _SIGNATURE_KEYS)


def _has_open_native_call(message: ModelResponse) -> bool:
    returned = {part.tool_call_id for part in message.parts if isinstance(part, NativeToolReturnPart)}
    return any(isinstance(part, NativeToolCallPart) and part.tool_call_id not in returned for part in message.parts)
