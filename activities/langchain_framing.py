"""What a model node's requests carry beside the history, seen where LangChain tells its callbacks of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from laneway.activities.framing import FramingMemory, native_prefix
from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_request import request_form
from laneway.history.estimation import estimate_text
from laneway.history.stored_json import any_json

__all__ = ["FramingWatch", "GraphFraming", "sent_prefix"]

_DIALECT: Final = LangChainDialect()
_BINDING: Final = ("response_format", "output_config", "output_format")
"""Parameters with which a model cannot but answer something else than a summary."""


@dataclass(frozen=True)
class GraphFraming:
    """What a request carried beside the history.

    Attributes:
        model: the model, as LangChain tells its callbacks of it.
        parameters: what the request was sent with: the model's own settings, and what was bound or passed.
        opening: the messages before the history, which the node put there.
    """

    model: Mapping[str, Any]
    parameters: Mapping[str, Any]
    opening: tuple[BaseMessage, ...]

    @property
    def tools_tokens(self) -> int:
        """An estimate of the tools."""
        tools = cast("Sequence[object]", self.parameters.get("tools") or ())
        return sum(estimate_text(any_json(one).decode()) for one in tools)

    def is_of(self, model: BaseChatModel) -> bool:
        """Whether a model is the one that was asked, or set up as it. Scripts that only share a name are not."""
        return bool(self.model) and self.model == model._serialized  # pyright: ignore[reportPrivateUsage]

    def options_of(self, model: BaseChatModel) -> dict[str, Any]:
        """What was bound or passed: what is not the model's own."""
        own = model._get_invocation_params()  # pyright: ignore[reportPrivateUsage]
        return {name: value for name, value in self.parameters.items() if name not in own or own[name] != value}


class FramingWatch(BaseCallbackHandler):
    """Remembers what a lane's requests carry beside its history, in place of what it carried before.

    Args:
        memory: where.
        lane_id: the lane.
        shown: the history, as the superstep was given it.
    """

    run_inline = True

    def __init__(self, memory: FramingMemory[GraphFraming], lane_id: str, shown: Sequence[BaseMessage]) -> None:
        super().__init__()
        self._memory = memory
        self._lane_id = lane_id
        self._shown = [(message.id, message.content) for message in shown]
        memory.forget(lane_id)  # what it holds is of the request before

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        parameters = cast("Mapping[str, Any]", kwargs.get("invocation_params") or {})
        for request in messages:
            opening = self._opening_of(request)
            # None of what else the node asks, or where it sends another history.
            if opening is not None and _is_free(parameters):
                self._memory.put(self._lane_id, GraphFraming(serialized, dict(parameters), opening))

    def _opening_of(self, request: Sequence[BaseMessage]) -> tuple[BaseMessage, ...] | None:
        """What comes before the history in a request; None of one that does not carry the history as it is."""
        if not self._shown:
            return None
        first = self._shown[0][0]
        start = next((place for place, message in enumerate(request) if message.id == first), len(request))
        sent = [(message.id, message.content) for message in request[start : start + len(self._shown)]]
        return tuple(request[:start]) if sent == self._shown else None


def _is_free(parameters: Mapping[str, Any]) -> bool:
    """Whether a model could answer with text, and with any."""
    if any(parameters.get(name) for name in _BINDING):
        return False
    choice = parameters.get("tool_choice")
    kind = cast("Mapping[str, Any]", choice).get("type") if isinstance(choice, Mapping) else choice
    # What a tool of a remote server is sent with, LangChain does not tell its callbacks.
    tools = cast("Sequence[object]", parameters.get("tools") or ())
    return kind in (None, "auto", "none") and not any(
        isinstance(one, Mapping) and cast("Mapping[str, Any]", one).get("type") == "mcp" for one in tools
    )


def sent_prefix(messages: Sequence[BaseMessage], live: int, shown: Sequence[object]) -> Sequence[BaseMessage] | None:
    """The messages that a processor was shown first, as a model node sends them; None if they are not just those."""
    found = native_prefix(_DIALECT, messages, shown)
    return None if found is None else request_form(found, live=live).messages
