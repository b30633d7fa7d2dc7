"""Processors one after the other: each is given what the one before it returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, cast

from laneway.errors import InvalidArgument
from laneway.history.callbacks import call_processor, callback_name
from laneway.history.context import HistoryProcessor, HistoryProcessorContext
from laneway.history.dialect import MessageT
from laneway.history.given import is_function, listed
from laneway.history.groups import HistoryGroup
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.processor_native import find_native_text, messages_of

__all__ = ["ProcessorChain", "compose"]


@dataclass(frozen=True)
class ProcessorChain(Generic[MessageT]):
    """Several processors as one, run in order. What comes out of the last is one edit, judged as one.

    Attributes:
        processors: sync or async, stock processors or your own.

    Raises:
        InvalidArgument: there is none, or one cannot be called.
    """

    processors: tuple[HistoryProcessor[MessageT], ...]

    def __post_init__(self) -> None:
        give = "functions from HistoryProcessorContext to messages, or stock processors"
        found = listed("the list of history processors", self.processors, give, is_one=is_function)
        if not found:
            raise InvalidArgument("there is no history processor in the list: give at least one, or None for none")
        object.__setattr__(self, "processors", found)

    async def __call__(self, ctx: HistoryProcessorContext[MessageT]) -> Sequence[MessageT]:
        """What the last processor made of it."""
        messages: Sequence[MessageT] = ctx.messages
        for position, processor in enumerate(self.processors):
            # `self` is nobody's adapter; the adapter's own processing is in force around this already.
            result = await call_processor(processor, ctx, owner=object())
            messages = cast("Sequence[MessageT]", result)
            if position + 1 == len(self.processors):
                break
            following = _following(ctx, result, callback_name(processor))
            if following is None:
                break  # it may not be sent, which is for the validation to say, before anybody builds on it
            ctx = following
        return messages


def compose(*processors: HistoryProcessor[Any]) -> HistoryProcessor[Any]:
    """Processors as one: each is given what the one before it returned.

    Raises:
        InvalidArgument: there is none, or one cannot be called.
    """
    return processors[0] if len(processors) == 1 and is_function(processors[0]) else ProcessorChain(processors)


def _following(
    ctx: HistoryProcessorContext[MessageT], result: object, processor: str
) -> HistoryProcessorContext[MessageT] | None:
    """The context of what a processor returned; None if that is not whole groups and messages between them."""
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray) or not result:
        return None
    returned = cast("Sequence[MessageT]", result)
    added = EntryMetadata((HistoryOrigin("processor", _run_of(ctx), processor),))
    left = list(ctx.groups)
    messages: list[MessageT] = []
    groups: list[HistoryGroup] = []
    entries: list[EntryMetadata] = []
    while len(messages) < len(returned):
        start = len(messages)
        group = _group_at(ctx, left, returned, start)
        if group is None:
            if any(returned[start] is message or returned[start] == message for message in ctx.messages):
                return None
            messages.append(returned[start])
            entries.append(added)
            digest = sha256(f"{processor}\0{start}\0{returned[start]!r}".encode("utf-8", "surrogatepass")).hexdigest()
            groups.append(HistoryGroup(digest[:16], start, start + 1, True, False, (), added.origins))
            continue
        left.remove(group)
        messages += returned[start : start + len(group)]
        entries += ctx.entries[group.entry_start : group.entry_end]
        groups.append(replace(group, entry_start=start, entry_end=start + len(group)))
    if not groups or ctx.groups[-1].group_id != groups[-1].group_id:
        return None
    is_same = len(messages) == len(ctx.messages) and not left
    tokens = ctx.estimated_tokens if is_same else _tokens_of(ctx, messages, entries)
    return replace(ctx, messages=messages, groups=tuple(groups), entries=tuple(entries), estimated_tokens=tokens)


def _group_at(
    ctx: HistoryProcessorContext[MessageT],
    groups: Sequence[HistoryGroup],
    returned: Sequence[MessageT],
    start: int,
) -> HistoryGroup | None:
    """The group that stands whole at a place of what was returned: the very messages, else equal ones."""
    very = (group for group in groups if ctx.messages[group.entry_start] is returned[start])
    for group in very:
        if _is_at(messages_of(ctx, group), returned, start):
            return group
    return max((g for g in groups if _is_at(messages_of(ctx, g), returned, start)), key=len, default=None)


def _is_at(messages: Sequence[MessageT], returned: Sequence[MessageT], start: int) -> bool:
    theirs = returned[start : start + len(messages)]
    return len(theirs) == len(messages) and all(
        mine is other or mine == other for mine, other in zip(messages, theirs, strict=True)
    )


def _tokens_of(
    ctx: HistoryProcessorContext[MessageT], messages: Sequence[MessageT], entries: Sequence[EntryMetadata]
) -> int:
    """The estimate of an edited history, which no provider has measured."""
    native = find_native_text(ctx)
    if native is None:
        known = sum(entry.estimated_tokens or 0 for entry in entries)
        return min(known, ctx.estimated_tokens)
    return sum(
        native.tokens(message) if entry.estimated_tokens is None else entry.estimated_tokens
        for message, entry in zip(messages, entries, strict=True)
    )


def _run_of(ctx: HistoryProcessorContext[MessageT]) -> str | None:
    return ctx.entries[-1].run_id
