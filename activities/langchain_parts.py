"""What the content blocks of LangChain's messages are: text, calls, results, files, or a provider's own records.

Blocks come in many shapes for the same things: LangChain's standard ones (v1), those of its older versions, and those
that Anthropic, OpenAI, Google and Bedrock put out. All of them are told apart here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage

from laneway.history.dialect import MediaKind, MediaWeight

__all__ = [
    "CALL_KEYS",
    "Block",
    "Piece",
    "blocks_of",
    "call_id_of",
    "is_bound",
    "is_plain_text",
    "is_unsigned_thinking",
    "name_of_block",
    "pieces_of",
    "provider_of",
    "record_of",
    "signature_of",
    "texts_of",
]

Block: TypeAlias = Mapping[str, Any]

CALL_KEYS: Final[Mapping[str, str]] = {
    "tool_use": "id",
    "tool_call": "id",
    "tool_call_chunk": "id",
    "invalid_tool_call": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
    "computer_call": "call_id",
    "apply_patch_call": "call_id",
    "shell_call": "call_id",
    "local_shell_call": "call_id",
}
"""Blocks that ask the application for something, with the key of the call's id."""

_TEXT: Final = frozenset({"text", "input_text", "output_text", "refusal", "text-plain"})
_REASONING: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_CHECKPOINTS: Final = frozenset({"compaction"})
_MEDIA: Final[Mapping[str, MediaKind]] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "media": "document",
    "file": "document",
    "document": "document",
    "input_file": "document",
}
_IGNORED: Final = frozenset({"input_json_delta", "cachePoint", "configuration_update", "guard_content"})
_SIGNATURE_KEYS: Final = ("signature", "encrypted_content", "thought_signature", "redactedContent", "data")
_PLAIN_TEXT_KEYS: Final = frozenset({"type", "text", "cache_control", "index"})

_CLAUDE: Final = frozenset({"anthropic", "bedrock", "bedrock_converse", "google_anthropic_vertex", "anthropic_bedrock"})
_BY_CLAUDE: Final = frozenset({"thinking", "redacted_thinking", "reasoning_content"})


def blocks_of(message: BaseMessage) -> list[Block]:
    """The content as blocks, each with a type; text that is only a string becomes a text block."""
    content = [message.content] if isinstance(message.content, str) else message.content
    return [_block(item) for item in content if item != ""]


def _block(item: object) -> Block:
    if not isinstance(item, Mapping):
        return {"type": "text", "text": item}
    block = cast("Block", item)
    if block.get("type") == "non_standard" and isinstance(block.get("value"), Mapping):
        return _block(block["value"])
    if "type" in block:
        return block
    # Bedrock's and Google's own shapes name the kind by a key: {"text": ...}, {"functionCall": ...}.
    return {"type": next((str(key) for key in block), "opaque"), **block}


def provider_of(message: BaseMessage) -> str | None:
    """The provider that a message says it came from, as LangChain's integrations write it down."""
    provider = message.response_metadata.get("model_provider")
    return provider if isinstance(provider, str) else None


def call_id_of(block: Block) -> str | None:
    """The id of the call that a block is; None if it is none."""
    key = CALL_KEYS.get(str(block.get("type")))
    return None if key is None else str(block.get(key) or "")


def signature_of(block: Block) -> str:
    """What a provider has signed or encrypted a block with; empty if it has not."""
    inner = block.get("reasoning_content")
    places: list[object] = [block, block.get("extras"), inner]
    for place in places:
        if isinstance(place, Mapping):
            for key in _SIGNATURE_KEYS:
                found = cast("Block", place).get(key)
                if found and (key != "data" or block.get("type") == "redacted_thinking"):
                    return found if isinstance(found, str) else repr(found)
    return ""


def is_unsigned_thinking(message: BaseMessage, block: Block) -> bool:
    """Whether a block is reasoning that Anthropic's API would be sent, and would refuse for want of a signature."""
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking"):
        return not signature_of(block)
    return kind == "reasoning" and provider_of(message) == "anthropic" and not signature_of(block)


def is_bound(message: BaseMessage, block: Block) -> bool:
    """Whether a block is reasoning that Claude signed."""
    kind, provider = block.get("type"), provider_of(message)
    by_claude = provider in _CLAUDE or (provider is None and kind in _BY_CLAUDE)
    return kind in _REASONING and by_claude and bool(signature_of(block))


def name_of_block(message: BaseMessage, block: Block) -> str:
    """A name that tells one reasoning block from another and says nothing of what is in it."""
    kind = "redacted_thinking" if block.get("type") == "redacted_thinking" else "thinking"
    made_of = signature_of(block) or str(block.get("id") or "") or json.dumps(block, sort_keys=True, default=repr)
    return f"{provider_of(message) or 'unknown'}:{kind}:{sha256(made_of.encode()).hexdigest()[:12]}"


def record_of(message: BaseMessage, block: Block) -> str | None:
    """The name of the record that a block is, if only the provider can have made it; a checkpoint is none."""
    kind = str(block.get("type"))
    if kind in _REASONING:
        # OpenAI's reasoning items are known by their id alone where the provider keeps what is in them.
        is_item = str(block.get("id") or "").startswith("rs_")
        return name_of_block(message, block) if is_item or signature_of(block) else None
    if kind in CALL_KEYS or kind in _TEXT or kind in _MEDIA:
        by_model = kind in _MEDIA and isinstance(message, AIMessage) and bool(block.get("id"))
        return f"signed:{kind}" if signature_of(block) or by_model else None
    if kind in _CHECKPOINTS or kind in _IGNORED or kind == "tool_result":
        return None
    return f"native:{kind}"


def is_plain_text(block: Block) -> bool:
    """Whether a block is text, and nothing in it is for a provider to recognise."""
    kept = {key for key, value in block.items() if value or key == "text"}
    return block.get("type") == "text" and isinstance(block.get("text"), str) and kept <= _PLAIN_TEXT_KEYS


# What a model is sent -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing in a message that a model is sent.

    Attributes:
        kind: what it is. A `record` is a provider's own, as text.
        text: its text; of a file, a description of it.
        tool: of a call, the tool.
        signature: what came with reasoning, and is sent and charged for although nobody can read it.
        media: of a file, what it weighs.
    """

    kind: Literal["text", "thinking", "call", "file", "record"]
    text: str
    tool: str | None = None
    signature: str = ""
    media: MediaWeight | None = None


def pieces_of(message: BaseMessage) -> Iterator[Piece]:
    """Everything in a message that a model is sent, in order. A call that stands in the message twice is said once."""
    listed = _listed_calls(message)
    known = {call_id for call_id, _ in listed}
    for block in blocks_of(message):
        call_id = call_id_of(block)
        if call_id is None:
            yield from _pieces(block)
        elif call_id not in known:
            yield _call(block)
    yield from (piece for _, piece in listed)
    extra = message.additional_kwargs.get("reasoning_content")
    if isinstance(extra, str) and extra:
        yield Piece("thinking", extra)
    legacy = message.additional_kwargs.get("function_call")
    if isinstance(legacy, Mapping):
        call = cast("Block", legacy)
        yield Piece("call", str(call.get("arguments") or ""), str(call.get("name") or ""))


def _listed_calls(message: BaseMessage) -> list[tuple[str, Piece]]:
    if not isinstance(message, AIMessage):
        return []
    calls = [(str(c["id"] or ""), Piece("call", as_json(c["args"]), c["name"])) for c in message.tool_calls]
    invalid = message.invalid_tool_calls
    return calls + [(str(c["id"] or ""), Piece("call", c["args"] or "", c["name"] or "")) for c in invalid]


def _call(block: Block) -> Piece:
    name = block.get("name") or block.get("type")
    for key in ("args", "input", "arguments", "action", "operation"):
        if block.get(key):
            value = block[key]
            return Piece("call", value if isinstance(value, str) else as_json(value), str(name))
    return Piece("call", str(block.get("partial_json") or "{}"), str(name))


def _pieces(block: Block) -> Iterator[Piece]:
    kind = str(block.get("type"))
    if kind in _TEXT:
        yield Piece("text", str(block.get("text") or block.get("refusal") or ""))
    elif kind in _REASONING:
        yield Piece("thinking", "\n".join(_reasoning(block)), signature=signature_of(block))
    elif kind in _MEDIA:
        yield from _file(block, _MEDIA[kind])
    elif kind == "tool_result":
        yield from _nested(block.get("content"))
    elif kind == "image_generation_call":
        yield from _file({"mime_type": "image/png", "data": block.get("result"), "id": block.get("id")}, "image")
    elif kind in _CHECKPOINTS:
        yield Piece("text", "\n".join(texts_of({**block, "type": ""})))
    elif kind not in _IGNORED:
        yield Piece("record", as_json({key: value for key, value in block.items() if key != "index"}))


def _reasoning(block: Block) -> Iterator[str]:
    for key in ("thinking", "reasoning", "text"):
        if isinstance(text := block.get(key), str):
            yield text
    inner = block.get("reasoning_content")
    if isinstance(inner, str):
        yield inner
    elif isinstance(inner, Mapping):
        yield str(cast("Block", inner).get("text") or "")
    for key in ("summary", "content"):
        yield from texts_of(block.get(key), only=("text",))


def _nested(content: object) -> Iterator[Piece]:
    if isinstance(content, str):
        yield Piece("text", content)
    elif isinstance(content, Sequence):
        for item in cast("Sequence[object]", content):
            yield from _pieces(_block(item))


def _file(block: Block, kind: MediaKind) -> Iterator[Piece]:
    source = block.get("source")
    if isinstance(source, Mapping) and cast("Block", source).get("type") in ("text", "content"):
        # A document of Anthropic's that is given as text.
        inner = cast("Block", source)
        yield from _nested(inner.get("data") if inner.get("type") == "text" else inner.get("content"))
        return
    if kind == "document" and isinstance(block.get("text"), str):
        yield Piece("text", block["text"])
        return
    media_type, size, where = _described(block, kind)
    described = f"{size} bytes" if size is not None else where
    yield Piece("file", f"[{media_type}, {described}]", media=MediaWeight(_kind_of(media_type, kind), size))


def _described(block: Block, kind: MediaKind) -> tuple[str, int | None, str]:
    """The media type, the size in bytes where the file is in the block, and where it is otherwise."""
    places = [block]
    media_type, where = str(kind), "referred to"
    size: int | None = None
    for place in places:
        for key in ("source", "image_url", "input_audio", "file", "audio", "image", "video", "document"):
            inner = place.get(key)
            if isinstance(inner, Mapping):
                places.append(cast("Block", inner))
            elif isinstance(inner, str):
                places.append({"url": inner})
        for key in ("mime_type", "media_type", "format"):
            if isinstance(found := place.get(key), str):
                media_type = found if "/" in found else f"{kind}/{found}"
        for key in ("base64", "data", "file_data", "bytes", "url"):
            value = place.get(key)
            if isinstance(value, bytes | bytearray):
                size = len(value)
            elif isinstance(value, str) and value.startswith("data:"):
                head, _, data = value.partition(",")
                media_type = head[5:].partition(";")[0] or media_type
                size = _decoded_size(data)
            elif isinstance(value, str) and key == "url":
                where = f"file at {value}"
            elif isinstance(value, str) and value:
                size = _decoded_size(value)
        for key in ("file_id", "id"):
            if isinstance(found := place.get(key), str) and where == "referred to":
                where = f"uploaded file {found}"
    return media_type, size, where


def _decoded_size(data: str) -> int:
    return len(data.rstrip("=")) * 3 // 4


def _kind_of(media_type: str, kind: MediaKind) -> MediaKind:
    named: MediaKind
    for named in ("image", "audio", "video"):
        if media_type.startswith(f"{named}/"):
            return named
    return kind


def texts_of(value: object, *, only: Sequence[str] | None = None) -> Iterator[str]:
    """Every text in a value made of lists and dictionaries; with `only`, those under these keys."""
    if isinstance(value, str):
        if value and only is None:
            yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Block", value).items():
            yield from texts_of(item, only=None if only is not None and key in only else only)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for item in cast("Sequence[object]", value):
            yield from texts_of(item, only=only)


def as_json(value: object) -> str:
    """A value as JSON, with a description in place of whatever in it is binary."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_in_words)


def _in_words(value: object) -> str:
    return f"[binary data, {len(value)} bytes]" if isinstance(value, bytes | bytearray) else str(value)
