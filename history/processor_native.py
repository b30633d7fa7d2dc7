"""What the stock processors need of an agent framework, which no rule of editing needs: text, out of it and into it.

A context says which adapter it is of; the adapter's framework side offers what is needed under that name.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from laneway.errors import HistoryProcessingError
from laneway.history.context import HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.groups import HistoryGroup
from laneway.history.model_calls import CallAnswer, ModelCalls
from laneway.history.origins import HistoryOrigin

__all__ = [
    "Line",
    "ModelSummarizer",
    "NativeText",
    "Summarizer",
    "SummaryRequest",
    "called",
    "find_native_text",
    "is_settled",
    "messages_of",
    "native_text",
    "offer_native_text",
    "written_by_processor",
]

LineKind = Literal["system", "user", "assistant", "thinking", "call", "result", "retry"]

Summarizer: TypeAlias = Callable[[str], str | Awaitable[str]]
"""Answers a request to summarize: the text of the request in, the summary out. It may be async."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a message says, as text.

    Attributes:
        kind: what it is.
        text: its text. A file is a description of it: its type and its size.
        tool: of calls, results and retries, the tool's name.
        is_file: the text only describes what was there.
    """

    kind: LineKind
    text: str
    tool: str | None = None
    is_file: bool = False

    def __str__(self) -> str:
        match self.kind:
            case "thinking":
                return f"assistant (thinking): {self.text}"
            case "call":
                return f"assistant called {self.tool}({self.text})"
            case "result":
                return f"{self.tool} returned: {self.text}"
            case "retry":
                return f"{self.tool or 'assistant'} had to try again: {self.text}"
            case _:
                return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request to summarize, in the two forms in which a model can be asked.

    Attributes:
        text: the whole of it, with the messages as text.
        prefix: the native messages to be summarized, as the conversation's provider was sent them before; None where
            they are not such.
        instruction: what to ask after them.
    """

    text: str
    prefix: Sequence[Any] | None = None
    instruction: str = ""


class ModelSummarizer(Protocol):
    """Asks a model of a framework to summarize."""

    async def summarize(self, request: SummaryRequest, calls: ModelCalls | None) -> CallAnswer:
        """The model's answer. Each request that is sent is admitted by `calls` first.

        The prefix may be sent in place of the text where the model is the conversation's own: it is cached there.

        Raises:
            CallFailed: there is none, and something was used.
        """
        ...


class NativeText(Protocol[MessageT]):
    """Text of a framework's native messages. Nothing here changes a message that it is given."""

    def tokens(self, message: MessageT) -> int:
        """The conservative estimate of one message, in tokens."""
        ...

    def lines(self, message: MessageT) -> Sequence[Line]:
        """Everything that a message says, in order: text in lists, reasoning and tool exchanges included."""
        ...

    def user_text(self, text: str) -> MessageT:
        """A message of the user's with this text."""
        ...

    def is_bound(self, message: MessageT) -> bool:
        """Whether it holds reasoning that its model may tie to everything before it."""
        ...

    def summarizer(self, model: object) -> ModelSummarizer:
        """What asks a model of the framework: a name, or an instance."""
        ...


_offered: dict[str, NativeText[Any]] = {}


def offer_native_text(adapter_shortname: str, native: NativeText[Any]) -> None:
    """Say what reads and writes the native messages of an adapter. Called by the adapter's own side, once."""
    _offered[adapter_shortname] = native


def find_native_text(ctx: HistoryProcessorContext[MessageT]) -> NativeText[MessageT] | None:
    """What reads and writes the messages of a context; None if nobody offered it."""
    return _offered.get(ctx.adapter_shortname)


def native_text(ctx: HistoryProcessorContext[MessageT]) -> NativeText[MessageT]:
    """What reads and writes the messages of a context.

    Raises:
        HistoryProcessingError: nobody offered it.
    """
    native = find_native_text(ctx)
    if native is None:
        raise HistoryProcessingError(
            f"the adapter {ctx.adapter_shortname!r} offers no text of its messages, which this processor needs: use a "
            "window of messages, or a processor of your own"
        )
    return native


async def called(function: Callable[..., object], argument: object) -> object:
    """What a function of the user's returns: an async one is awaited, a sync one runs in a worker thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        result = function(argument)
    else:
        result = await asyncio.to_thread(function, argument)
    return await result if inspect.isawaitable(result) else result


def messages_of(ctx: HistoryProcessorContext[MessageT], group: HistoryGroup) -> list[MessageT]:
    """The messages of a group."""
    return ctx.messages[group.entry_start : group.entry_end]


def is_settled(ctx: HistoryProcessorContext[MessageT]) -> bool:
    """Whether the history may be edited before this request.

    Reasoning that the running turn has produced, and that its model may tie to everything before it, would be refused
    by the provider after an edit. Such a turn is left alone until it is over: a later one is edited.
    """
    current = ctx.groups[-1]
    native = find_native_text(ctx)
    if native is None:
        return "provider" not in current.protected_reasons
    return not any(native.is_bound(message) for message in messages_of(ctx, current))


def written_by_processor(origins: Sequence[HistoryOrigin]) -> bool:
    """Whether a processor wrote a message, or a part of it: the framework merges neighbouring requests."""
    return any(origin.kind == "processor" for origin in origins)
