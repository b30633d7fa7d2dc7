"""Compaction by the provider itself, for LangChain's models: asked for in the request, kept as what came back.

The models are somewhere in the graph's functions, where nobody can exchange them. Each makes the body of a request in
one method; inside of a lane's model request that one also asks for compaction, where the scopes do, and leaves out what
an earlier compaction stands for. The stored history keeps both. The answer that brings a compaction begins a cache
epoch, since what is sent from then on is another prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from laneway.activities.langchain_editing import DIALECT, NodeRequest, request_of
from laneway.activities.langchain_models import IN_LANE_REQUEST
from laneway.activities.langchain_parts import blocks_of
from laneway.errors import ConfigurationError
from laneway.history.editing import EditReceipt, receipt_of
from laneway.history.groups import find_groups
from laneway.history.scopes import CompactionInForce
from laneway.history.views import view_of

__all__ = [
    "can_compact",
    "check_threshold",
    "compacted_at",
    "compacting",
    "let_models_compact",
    "receipt_of_compaction",
]

COMPACTION: Final = "laneway:native_compaction"
"""What receipts of a compaction name in place of a processor."""

_IN_FORCE: Final[ContextVar[CompactionInForce | None]] = ContextVar("laneway_compaction", default=None)
_BLOCK: Final = "compaction"
_ANTHROPIC_EDIT: Final = "compact_20260112"
_ANTHROPIC_BETA: Final = "compact-2026-01-12"
_ANTHROPIC_LEAST_TOKENS: Final = 50_000
_CLASSES: Final = (
    ("langchain_openai.chat_models.base", "BaseChatOpenAI"),
    ("langchain_anthropic.chat_models", "ChatAnthropic"),
)

_taught: Final[set[str]] = set()


def can_compact(models: Iterable[BaseChatModel]) -> bool:
    """Whether there are models, and each has a provider that compacts: OpenAI's Responses API, or Anthropic."""
    found = list(models)
    return bool(found) and all(_is_anthropic(model) or _asks_responses(model) for model in found)


def check_threshold(models: Iterable[BaseChatModel], compaction: CompactionInForce) -> None:
    """Refuse what a provider would.

    Raises:
        ConfigurationError: the provider would refuse the threshold.
    """
    threshold = compaction.threshold
    if threshold is not None and threshold < _ANTHROPIC_LEAST_TOKENS and any(map(_is_anthropic, models)):
        raise ConfigurationError(
            f"compaction_threshold={threshold} is less than Anthropic takes: give {_ANTHROPIC_LEAST_TOKENS} or more"
        )


@contextmanager
def compacting(compaction: CompactionInForce | None) -> Generator[None]:
    """Have model requests ask their provider to compact; None for not."""
    token = _IN_FORCE.set(compaction)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def let_models_compact() -> None:
    """Have the classes of models that are loaded make lanes' requests as this module says."""
    for module, name in _CLASSES:
        kind: Any = getattr(sys.modules.get(module), name, None)
        if kind is None or name in _taught:
            continue
        _taught.add(name)
        kind._get_request_payload = _making(kind._get_request_payload, is_anthropic=name == "ChatAnthropic")


def _making(given: Any, *, is_anthropic: bool) -> Any:
    def _get_request_payload(self: Any, input_: Any, *args: Any, **kwargs: Any) -> Any:
        if not IN_LANE_REQUEST.get():
            return given(self, input_, *args, **kwargs)
        messages: list[BaseMessage] = self._convert_input(input_).to_messages()
        since = _since_compaction(messages)
        compaction = _IN_FORCE.get()
        if compaction is not None:
            own = kwargs.get("context_management") or getattr(self, "context_management", None)
            kwargs["context_management"] = (_anthropic if is_anthropic else _openai)(own, compaction)
        if is_anthropic and (compaction is not None or since is not messages):
            betas: list[str] = kwargs.get("betas") or getattr(self, "betas", None) or []
            kwargs["betas"] = [*betas, *(beta for beta in [_ANTHROPIC_BETA] if beta not in betas)]
        return given(self, input_ if since is messages else since, *args, **kwargs)

    return _get_request_payload


def _anthropic(own: Any, compaction: CompactionInForce) -> object:
    given = cast("dict[str, Any]", own or {})
    listed = cast("list[dict[str, Any]]", given.get("edits") or [])
    edits = [edit for edit in listed if edit.get("type") != _ANTHROPIC_EDIT]
    edit: dict[str, Any] = {"type": _ANTHROPIC_EDIT}
    if compaction.threshold is not None:
        edit["trigger"] = {"type": "input_tokens", "value": compaction.threshold}
    return {**given, "edits": [*edits, edit]}


def _openai(own: Any, compaction: CompactionInForce) -> object:
    edit: dict[str, Any] = {"type": _BLOCK}
    if compaction.threshold is not None:
        edit["compact_threshold"] = compaction.threshold
    given = cast("list[dict[str, Any]]", own or [])
    return [*(one for one in given if one.get("type") != _BLOCK), edit]


def _since_compaction(messages: list[BaseMessage]) -> list[BaseMessage]:
    """What a provider still looks at: the system text, and what follows the latest compaction."""
    index = compacted_at(messages)
    if index is None:
        return messages
    message = cast("AIMessage", messages[index])
    content = cast("list[Any]", message.content)
    first = max(place for place, block in enumerate(content) if _is_compaction(block))
    opening = [one for one in messages[:index] if isinstance(one, SystemMessage)]
    return [*opening, message.model_copy(update={"content": content[first:]}), *messages[index + 1 :]]


def compacted_at(messages: Sequence[BaseMessage], *, start: int = 0) -> int | None:
    """Index of the latest message, from `start` on, that brings what its provider compacted; None where none does."""
    for index in range(len(messages) - 1, start - 1, -1):
        message = messages[index]
        if isinstance(message, AIMessage) and any(map(_is_compaction, blocks_of(message))):
            return index
    return None


def receipt_of_compaction(request: NodeRequest, index: int, *, owner: object) -> EditReceipt:
    """The receipt of a compaction.

    Args:
        request: with the history as the answer has left it.
        index: the answer that brought the compaction.
        owner: the adapter.
    """
    messages, entries = request.messages, request.entries
    before = replace(request, messages=messages[:index], entries=entries[:index])
    view = view_of(DIALECT, before.messages, before.entries, request_index=request.request_index)
    return receipt_of(
        DIALECT,
        request_of(before, owner=owner),
        messages[index:],
        entries[index:],
        processor=COMPACTION,
        groups_before=len(find_groups(DIALECT, view)),
        released=(),
    )


def _is_compaction(block: object) -> bool:
    return isinstance(block, dict) and cast("dict[str, object]", block).get("type") == _BLOCK


def _is_anthropic(model: BaseChatModel) -> bool:
    return any(kind.__module__ == "langchain_anthropic.chat_models" for kind in type(model).__mro__)


def _asks_responses(model: BaseChatModel) -> bool:
    is_openai = any(kind.__module__ == "langchain_openai.chat_models.base" for kind in type(model).__mro__)
    return is_openai and getattr(model, "use_responses_api", None) is True
