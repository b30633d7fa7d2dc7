"""How a framework's messages are described to the rules: facts, and the few things only their framework can do.

A dialect describes; it decides nothing. Every rule about groups, protection, validity and repair is in this package and
reads `EntryFacts` alone, so it holds for each framework alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard, TypeVar

from laneway.history.origins import HistoryOrigin

__all__ = [
    "EntryFacts",
    "EntryWeight",
    "MediaKind",
    "MediaWeight",
    "MessageDialect",
    "MessageT",
    "RepairableDialect",
    "Role",
]

MessageT = TypeVar("MessageT")
"""A framework's native message type: `ModelMessage` or `BaseMessage`."""

Role = Literal["system", "user", "tool", "model"]
"""Who speaks in a message. `tool` is a message of answers to tool calls, retries of calls among them."""


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What the rules know of one message of one role.

    Attributes:
        role: who speaks.
        calls: ids of the tool calls in it that the application must answer, in order. Calls that a provider runs itself
            are not among them: they are `provider` records.
        results: ids of the calls that it answers, in order; a request to try a call again answers it too.
        continues: the framework's own feedback on the model's answer: it belongs to the cycle before it.
        unfinished: cut off, paused or still waiting for something other than an answer to a call.
        provider: names of the records that only the provider can have made: signed or encrypted reasoning, opaque
            parts.
        checkpoint: it stands for earlier history (a compaction), so nothing may take it away.
        plain_text: nothing but text, and nothing that a provider has to recognise: what a processor may add.
        empty: plain text without a visible character somewhere, which providers refuse.
    """

    role: Role
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    continues: bool = False
    unfinished: bool = False
    provider: tuple[str, ...] = ()
    checkpoint: bool = False
    plain_text: bool = False
    empty: bool = False


MediaKind = Literal["image", "audio", "video", "document"]


@dataclass(frozen=True, slots=True)
class MediaWeight:
    """A file in a message. `size_bytes` is None for one that is only referred to."""

    kind: MediaKind
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class EntryWeight:
    """What of a message a model is sent, as the estimator counts it: every text, and every file."""

    texts: tuple[str, ...]
    media: tuple[MediaWeight, ...] = ()


class MessageDialect(Protocol[MessageT]):
    """What an adapter says about its native messages. Nothing here changes a message that it is given."""

    def is_native(self, value: object) -> TypeGuard[MessageT]:
        """Whether a value is a native message, whole: not a dictionary that would decode to one."""
        ...

    def split(self, message: MessageT) -> tuple[MessageT, ...]:
        """The message as messages of one role each, in the order in which they stand; alone if it is one already."""
        ...

    def facts(self, message: MessageT) -> EntryFacts:
        """What the rules need to know of a message of one role (one that `split` returned)."""
        ...

    def content(self, message: MessageT) -> bytes:
        """What the message says, in canonical form: equal bytes are equal content.

        Bookkeeping that is never sent is left out (timestamps, run ids, usage, application metadata), so that a fresh
        copy equals its original and so that a processor's edits to bookkeeping are no edits.
        """
        ...

    def detached(self, message: MessageT) -> MessageT:
        """A deep copy: nothing done to it is seen through the original."""
        ...

    def weight(self, message: MessageT) -> EntryWeight:
        """Everything of the message that a model is sent."""
        ...

    def origins(
        self, message: MessageT, *, run_id: str | None, source_location: str | None
    ) -> tuple[HistoryOrigin, ...]:
        """The origins of a message that was just produced, from its structure. Text is never read."""
        ...

    def bound_reasoning(self, message: MessageT) -> tuple[str, ...]:
        """Names of the reasoning blocks in the message that a binding model ties to everything before them."""
        ...

    def without_bound_reasoning(self, message: MessageT) -> MessageT | None:
        """The message without those blocks; None if nothing would be left of it."""
        ...

    def settle(self, messages: Sequence[MessageT]) -> list[tuple[MessageT, int]]:
        """The history as the framework would rewrite it on loading, with how many messages each was merged from."""
        ...


class RepairableDialect(MessageDialect[MessageT], Protocol[MessageT]):
    """What import repair needs besides: messages of one role, changed in one explicit way."""

    def answers(self, model: MessageT, calls: Sequence[int]) -> Sequence[MessageT]:
        """Messages saying that no result was recorded for the calls at these positions of `facts(model).calls`."""
        ...

    def with_ids(self, message: MessageT, ids: Sequence[str]) -> MessageT:
        """The message with its calls, or its results, given these ids, in order."""
        ...

    def without_results(self, message: MessageT, results: Sequence[int]) -> MessageT | None:
        """The message without the results at these positions of `facts(message).results`; None if that is all of it."""
        ...
