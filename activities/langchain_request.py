"""What a graph's model node is given in place of the stored messages, for one request: the same, made sendable.

LangChain's integrations send some histories as no provider takes them, and leave out what they should not:

- thinking without a signature goes to Anthropic as it is, which refuses it and with it every later request;
- a call whose id was used before is left out (OpenAI's Responses), or refused (Anthropic), and its result then answers
  another call;
- a call whose arguments could not be read is sent, though no tool node answers it;
- `use_previous_response_id` continues from the newest response id, whether or not what it continues is still the
  history.

Each can be put right in what is sent, with nothing lost, and the next request sends the same again. So it is not an
edit: what is stored stays what the framework made, and no epoch begins. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from laneway.activities.langchain_messages import (
    LangChainDialect,
    closing,
    open_calls_of,
    response_id_of,
    with_call_ids,
)
from laneway.activities.langchain_parts import blocks_of, is_unsigned_thinking

__all__ = ["RequestForm", "RequestRepair", "continuation_of", "live_after", "request_form"]

_DIALECT: Final = LangChainDialect()
_ID_LENGTH: Final = 60  # a provider takes ids of 64 characters; some are left for the number that makes one unique

RepairKind = Literal["reasoning_left_out", "call_renamed", "call_closed", "continuation_dropped"]


@dataclass(frozen=True, slots=True)
class RequestRepair:
    """One thing that is sent otherwise than it is stored.

    Attributes:
        kind: what.
        index: the message in the list that was given.
        name: the call, or the response id.
    """

    kind: RepairKind
    index: int
    name: str = ""


@dataclass(frozen=True)
class RequestForm:
    """What to send.

    Attributes:
        messages: the given messages, copies of those that differ, and answers to calls that nothing runs.
        repairs: what differs, in order; empty if nothing does, and `messages` holds the given ones.
    """

    messages: list[BaseMessage]
    repairs: tuple[RequestRepair, ...]


def request_form(messages: Sequence[BaseMessage], *, live: int = 0) -> RequestForm:
    """What a model node is given for one request. The messages are not changed.

    Args:
        messages: the history, the current request last.
        live: index of the first message that came after the history was written anew; see `live_after`.
    """
    form = _Form(live)
    for index, message in enumerate(messages):
        form.take(index, message)
    form.close()
    return RequestForm(form.messages, tuple(form.repairs))


def continuation_of(messages: Sequence[BaseMessage], *, live: int = 0) -> str | None:
    """The response id that the next request may continue from: the newest that came after the last rewrite."""
    for index in range(len(messages) - 1, max(live, 0) - 1, -1):
        found = response_id_of(messages[index])
        if found is not None:
            return found
    return None


def live_after(before: Sequence[BaseMessage], after: Sequence[BaseMessage], *, live: int = 0) -> int:
    """`live` once a history has become another: as it was where it only grew, the whole of it where it changed.

    Whoever changed it, an edit or a node of the graph: what a provider holds under a response id is what was sent.
    """
    if len(after) >= len(before) and all(
        old is new or _DIALECT.content(old) == _DIALECT.content(new) for old, new in zip(before, after, strict=False)
    ):
        return live
    return len(after)


@dataclass
class _Form:
    """Walks a history once, with the calls in mind that the last answer has made."""

    live: int
    messages: list[BaseMessage] = field(default_factory=list[BaseMessage])
    repairs: list[RequestRepair] = field(default_factory=list[RequestRepair])
    _used: set[str] = field(default_factory=set[str])
    _open: list[_Call] = field(default_factory=list["_Call"])
    _asking: tuple[int, BaseMessage] | None = None

    def take(self, index: int, message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            self.messages.append(self._answer(message))
            return
        if _DIALECT.facts(message).role != "tool":
            self.close()
        self.messages.append(self._asked(index, message) if isinstance(message, AIMessage) else message)

    def close(self) -> None:
        """Answer the calls that nothing runs, right after the answer that made them and its results."""
        if self._asking is None:
            return
        index, model = self._asking
        for call in self._open:
            if call.invalid and not call.answered:
                self.messages.append(closing(model, call.sent_id, invalid=True))
                self.repairs.append(RequestRepair("call_closed", index, call.given_id))
        self._asking, self._open = None, []

    def _asked(self, index: int, message: AIMessage) -> AIMessage:
        sent = self._without_thinking(index, message)
        if index < self.live and (response_id := response_id_of(sent)) is not None:
            metadata = {key: value for key, value in sent.response_metadata.items() if key != "id"}
            sent = sent.model_copy(update={"response_metadata": metadata})
            self.repairs.append(RequestRepair("continuation_dropped", index, response_id))
        calls: list[_Call] = []
        for given, invalid in open_calls_of(message):
            new = given
            if given in self._used:
                new = self._unused(given)
                self.repairs.append(RequestRepair("call_renamed", index, given))
            self._used.add(new)
            calls.append(_Call(given, new, invalid))
        if any(call.given_id != call.sent_id for call in calls):
            sent = with_call_ids(sent, [call.sent_id for call in calls])
        self._open, self._asking = calls, (index, sent)
        return sent

    def _without_thinking(self, index: int, message: AIMessage) -> AIMessage:
        if isinstance(message.content, str):
            return message
        pairs = zip([item for item in message.content if item != ""], blocks_of(message), strict=True)
        kept = [item for item, block in pairs if not is_unsigned_thinking(message, block)]
        left_out = sum(item != "" for item in message.content) - len(kept)
        if not left_out:
            return message
        self.repairs.append(RequestRepair("reasoning_left_out", index))
        return message.model_copy(update={"content": kept})

    def _answer(self, message: ToolMessage) -> ToolMessage:
        # Calls that share an id within one answer are answered in their order. A node that was given this form, and ran
        # the calls itself, answers them as they were sent.
        answered = message.tool_call_id
        waiting = [call for call in self._open if not call.answered]
        named = [call for call in waiting if call.given_id == answered]
        for call in named or [call for call in waiting if call.sent_id == answered]:
            call.answered = True
            return message if call.sent_id == answered else message.model_copy(update={"tool_call_id": call.sent_id})
        return message

    def _unused(self, given: str) -> str:
        number = 2
        while (new := f"{given[:_ID_LENGTH]}-{number}") in self._used:
            number += 1
        return new


@dataclass
class _Call:
    given_id: str
    sent_id: str
    invalid: bool
    answered: bool = False
