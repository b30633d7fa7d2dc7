"""LangChain's messages, described: what they are to the rules of history editing. No rule is decided here.

Each message is of one role already, so nothing has to be taken apart. The same call can stand in an answer up to three
times: in `tool_calls`, as a content block, and raw in `additional_kwargs`; it is one call all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)

from laneway.activities.langchain_content import canonical, deep_copy, is_native_message, sent_kwargs
from laneway.activities.langchain_parts import (
    CALL_KEYS,
    Block,
    blocks_of,
    call_id_of,
    is_bound,
    is_plain_text,
    name_of_block,
    pieces_of,
    record_of,
)
from laneway.history.dialect import EntryFacts, EntryWeight, Role
from laneway.history.origins import HistoryOrigin, OriginKind

__all__ = ["IMPORT_DIALECT", "LangChainDialect", "is_answer", "open_calls_of", "response_id_of", "with_call_ids"]

NO_RESULT: Final = "No result was recorded for this call."
BAD_ARGUMENTS: Final = "This call was not run: its arguments could not be read."

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "assistant": "model",
    "ai": "model",
    "model": "model",
    "tool": "tool",
    "function": "tool",
}
_ORIGINS: Final[Mapping[Role, OriginKind]] = {"system": "system", "user": "user", "tool": "tool", "model": "model"}
_SIGNED_KWARGS: Final = (
    "audio",
    "reasoning",
    "reasoning_details",
    "signature",
    "thought_signature",
    "__gemini_function_call_thought_signatures__",
)
_PAUSED: Final = frozenset({"pause_turn"})
_SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use", "server_tool_call"})


def is_answer(message: BaseMessage) -> bool:
    """Whether the model speaks in a message."""
    return _role_of(message) == "model"


def response_id_of(message: BaseMessage) -> str | None:
    """The id by which OpenAI can continue from an answer, where LangChain would find it."""
    found = message.response_metadata.get("id") if isinstance(message, AIMessage) else None
    return found if isinstance(found, str) and found.startswith("resp_") else None


def open_calls_of(message: BaseMessage) -> list[tuple[str, bool]]:
    """The calls in a message that are sent with it, in order: each one's id, and whether it is one that nothing runs.

    LangChain puts a call whose arguments it could not read aside as invalid. Tool nodes leave it alone, and requests
    carry it all the same.
    """
    if not isinstance(message, AIMessage):
        return []
    calls = [(call["id"] or "", False) for call in message.tool_calls]
    calls += [(call["id"] or "", True) for call in message.invalid_tool_calls]
    listed = {call_id for call_id, _ in calls}
    for block in blocks_of(message):
        call_id = call_id_of(block)
        if call_id is not None and call_id not in listed:
            calls.append((call_id, block.get("type") == "invalid_tool_call"))
    return calls


def with_call_ids(message: AIMessage, ids: Sequence[str]) -> AIMessage:
    """A copy with its calls, in the order of `open_calls_of`, given these ids."""
    given = [call_id for call_id, _ in open_calls_of(message)]
    # A content block is the call that stands at the same place among those of its id.
    new: dict[str, deque[str]] = {}
    for old, now in zip(given, ids, strict=True):
        new.setdefault(old, deque()).append(now)
    order = iter(ids)
    tool_calls = [{**call, "id": next(order)} for call in message.tool_calls]
    invalid = [{**call, "id": next(order)} for call in message.invalid_tool_calls]
    content = message.content
    if not isinstance(content, str):
        content = [_renamed(item, new) if isinstance(item, dict) else item for item in content]
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    changed = {"content": content, "tool_calls": tool_calls, "invalid_tool_calls": invalid, "additional_kwargs": kwargs}
    return message.model_copy(update=changed)


def _renamed(block: dict[Any, Any], new: Mapping[str, deque[str]]) -> dict[Any, Any]:
    if block.get("type") == "non_standard" and isinstance(block.get("value"), dict):
        return {**block, "value": _renamed(block["value"], new)}
    call_id = call_id_of(block)
    ids = None if call_id is None else new.get(call_id)
    if not ids:
        return block
    now = ids.popleft() if len(ids) > 1 else ids[0]
    if now == call_id:
        return block
    key = CALL_KEYS[str(block["type"])]
    # An item's own id names what the provider has stored, which has the other call id.
    return {**{name: value for name, value in block.items() if name != "id" or key == "id"}, key: now}


class LangChainDialect:
    """Describes `BaseMessage`s, as `RepairableDialect` asks. It holds no state.

    Args:
        invalid_calls: whether calls that LangChain could not read count as calls. They do for an import, where they
            have to be answered; on a lane each request answers them (see `langchain_request`), and nothing waits.
    """

    def __init__(self, *, invalid_calls: bool = False) -> None:
        self._invalid_calls = invalid_calls

    def is_native(self, value: object) -> TypeGuard[BaseMessage]:
        """Whether a value is a message of LangChain's own classes."""
        return is_native_message(value)

    def split(self, message: BaseMessage) -> tuple[BaseMessage, ...]:
        """The message: it is of one role."""
        return (message,)

    def facts(self, message: BaseMessage) -> EntryFacts:
        """What the rules need to know of a message."""
        role = _role_of(message)
        blocks = blocks_of(message)
        is_text = all(is_plain_text(block) for block in blocks)
        texts = [str(block["text"]) for block in blocks] if is_text else []
        is_plain = role in ("user", "model") and is_text and not _has_calls(message) and not sent_kwargs(message)
        if role != "model":
            return EntryFacts(
                role=role,
                results=tuple(_results_of(message)),
                plain_text=is_plain and bool(texts),
                empty=not blocks or (is_text and not _is_visible(texts)),
            )
        return EntryFacts(
            role="model",
            calls=tuple(call_id for call_id, invalid in open_calls_of(message) if self._invalid_calls or not invalid),
            unfinished=_is_paused(message, blocks),
            provider=tuple(_records_of(message, blocks)),
            checkpoint=any(block.get("type") == "compaction" for block in blocks),
            # An id of a response is how its provider continues from it: that is a record, not text.
            plain_text=is_plain and bool(texts) and response_id_of(message) is None,
            empty=is_text and not _has_calls(message) and not sent_kwargs(message) and not _is_visible(texts),
        )

    def content(self, message: BaseMessage) -> bytes:
        """What the message says, in canonical form."""
        return canonical(message)

    def detached(self, message: BaseMessage) -> BaseMessage:
        """A deep copy."""
        return deep_copy(message)

    def weight(self, message: BaseMessage) -> EntryWeight:
        """Everything of the message that a model is sent."""
        texts: list[str] = [message.name] if message.name else []
        pieces = list(pieces_of(message))
        for piece in pieces:
            if piece.media is None:
                texts += [text for text in (piece.tool, piece.text, piece.signature) if text]
        return EntryWeight(tuple(texts), tuple(piece.media for piece in pieces if piece.media is not None))

    def origins(
        self, message: BaseMessage, *, run_id: str | None, source_location: str | None
    ) -> tuple[HistoryOrigin, ...]:
        """One origin a tool result, or one for the message."""
        results = _results_of(message)
        if results:
            return tuple(HistoryOrigin("tool", run_id, source_location, message.name, one) for one in results)
        return (HistoryOrigin(_ORIGINS[_role_of(message)], run_id, source_location),)

    def bound_reasoning(self, message: BaseMessage) -> tuple[str, ...]:
        """Names of the thinking blocks that Claude signed."""
        if not isinstance(message, AIMessage) or isinstance(message.content, str):
            return ()
        return tuple(name_of_block(message, block) for block in blocks_of(message) if is_bound(message, block))

    def without_bound_reasoning(self, message: BaseMessage) -> BaseMessage | None:
        """The message without those blocks; None if it was nothing but them."""
        if not isinstance(message, AIMessage) or isinstance(message.content, str):
            return message
        pairs = zip([item for item in message.content if item != ""], blocks_of(message), strict=True)
        content = [item for item, block in pairs if not is_bound(message, block)]
        if not content and not _has_calls(message):
            return None
        return message.model_copy(update={"content": content})

    def settle(self, messages: Sequence[BaseMessage]) -> list[tuple[BaseMessage, int]]:
        """The framework's own normal form: it makes whole messages of streamed ones."""
        return [
            (message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message, 1)
            for message in messages
        ]

    def answers(self, model: BaseMessage, calls: Sequence[int]) -> Sequence[BaseMessage]:
        """A tool message for each of these calls that says why there is no result."""
        return [
            closing(model, call_id, invalid=invalid)
            for at, (call_id, invalid) in enumerate(self._calls(model))
            if at in calls
        ]

    def with_ids(self, message: BaseMessage, ids: Sequence[str]) -> BaseMessage:
        """The message with its calls, or its results, given these ids."""
        if isinstance(message, AIMessage):
            counted = self._calls(message)
            every = open_calls_of(message)
            new = iter(ids)
            return with_call_ids(message, [next(new) if call in counted else call[0] for call in every])
        if isinstance(message, ToolMessage):
            return message.model_copy(update={"tool_call_id": ids[0]})
        new = iter(ids)
        return message.model_copy(
            update={
                "content": [
                    {**block, "tool_use_id": next(new)} if block.get("type") == "tool_result" else dict(block)
                    for block in blocks_of(message)
                ]
            }
        )

    def without_results(self, message: BaseMessage, results: Sequence[int]) -> BaseMessage | None:
        """The message without these results; None if it was nothing but them."""
        if isinstance(message, ToolMessage):
            return None
        kept: list[dict[str, Any]] = []
        at = 0
        for block in blocks_of(message):
            is_result = block.get("type") == "tool_result"
            if not is_result or at not in results:
                kept.append(dict(block))
            at += is_result
        return message.model_copy(update={"content": kept}) if kept else None

    def _calls(self, message: BaseMessage) -> list[tuple[str, bool]]:
        return [call for call in open_calls_of(message) if self._invalid_calls or not call[1]]


IMPORT_DIALECT: Final = LangChainDialect(invalid_calls=True)


def closing(model: BaseMessage, call_id: str, *, invalid: bool) -> ToolMessage:
    """The answer to a call that has none. It is the same for the same call."""
    name = None
    if isinstance(model, AIMessage):
        named = [*model.tool_calls, *model.invalid_tool_calls]
        name = next((call["name"] for call in named if call["id"] == call_id), None)
    return ToolMessage(
        BAD_ARGUMENTS if invalid else NO_RESULT,
        tool_call_id=call_id,
        name=name,
        status="error",
        id=f"{model.id or 'answer'}:closed:{call_id}",
    )


def _role_of(message: BaseMessage) -> Role:
    match message:
        case SystemMessage():
            return "system"
        case AIMessage():
            return "model"
        case ToolMessage() | FunctionMessage():
            return "tool"
        case HumanMessage():
            return "tool" if _results_of(message) else "user"
        case ChatMessage():
            return _ROLES.get(message.role.lower(), "user")
        case _:
            return "user"


def _results_of(message: BaseMessage) -> list[str]:
    """The ids of the calls that a message answers: a tool message's, or those of Anthropic's blocks in a user's."""
    if isinstance(message, ToolMessage):
        return [message.tool_call_id]
    if not isinstance(message, HumanMessage) or isinstance(message.content, str):
        return []
    blocks = blocks_of(message)
    return [str(block.get("tool_use_id") or "") for block in blocks if block.get("type") == "tool_result"]


def _has_calls(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls or message.invalid_tool_calls)


def _is_visible(texts: Sequence[str]) -> bool:
    return bool(texts) and all(text.strip() for text in texts)


def _records_of(message: BaseMessage, blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        name = record_of(message, block)
        if name is not None:
            yield name
    kwargs = cast("Mapping[str, object]", message.additional_kwargs)
    yield from (f"signed:{key}" for key in _SIGNED_KWARGS if kwargs.get(key))


def _is_paused(message: BaseMessage, blocks: Sequence[Block]) -> bool:
    """Whether the provider has stopped in the middle: it says so, or a tool that it runs itself has no result."""
    if message.response_metadata.get("stop_reason") in _PAUSED:
        return True
    called = {str(block.get("id")) for block in blocks if block.get("type") in _SERVER_CALLS}
    if not called:
        return False
    results = {str(block.get("tool_use_id") or block.get("tool_call_id")) for block in blocks}
    return not called <= results
