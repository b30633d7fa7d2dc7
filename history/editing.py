"""One pass of history editing: condition, processor, validation; what comes out is a history that may be sent.

The input is never changed. With no processor nothing of the history is read; with a condition that answers False
nothing of it is read either, so both cost the same however long the history is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Self, TypeVar, cast

from laneway.history.assembly import AssembledHistory, assemble, estimated, settle
from laneway.history.callbacks import ask_condition, call_processor, callback_name, refuse_reentry
from laneway.history.context import HistoryProcessor, HistoryProcessorContext, HistoryProcessorState
from laneway.history.dialect import MessageDialect, MessageT
from laneway.history.estimation import estimate_history
from laneway.history.groups import HistoryGroup, find_groups
from laneway.history.matching import match_messages
from laneway.history.model_calls import CallReceipt, ModelCalls
from laneway.history.observing import observed
from laneway.history.origins import EntryMetadata
from laneway.history.reasoning import release_bound_reasoning
from laneway.history.rules import EditRule, refuse
from laneway.history.scopes import HistoryProcessingInForce
from laneway.history.validation import ReturnedHistory, validate_edit
from laneway.history.views import HistoryView, view_of

__all__ = ["EditOutcome", "EditReceipt", "EditRequest", "EditVerdict", "edit_history", "receipt_of"]

_LONG: Final = 200
"""From how many messages on a pass leaves the event loop: about 50 ms of work."""

_Result = TypeVar("_Result")

EditVerdict = Literal["unprocessed", "skipped", "no-op", "accepted"]
"""No processor is in force; its condition answered False; it changed nothing; its edit is to be stored and sent."""


@dataclass(frozen=True)
class EditRequest(Generic[MessageT]):
    """A model request that is about to be sent.

    Attributes:
        messages: the native history, oldest first, the current request last.
        entries: the metadata of each message.
        adapter_shortname: which adapter runs the agent.
        model_id: the model that the request goes to.
        request_index: which model request of the turn this is, from 1.
        cache_epoch: the cache epoch of the history.
        estimated_tokens: a conservative estimate of the history.
        history_version: an opaque name of exactly this history.
        owner: the configured adapter: its processor may not call it.
        run_id: the turn; the origin of what the processor adds.
        binds_reasoning: whether the model ties its reasoning to everything before it.
        current_start: index of the message with the turn's prompt; None to have it found by counting the turn's
            answers.
        calls: through which processors ask models.
    """

    messages: Sequence[MessageT]
    entries: Sequence[EntryMetadata]
    adapter_shortname: str
    model_id: str
    request_index: int
    cache_epoch: int
    estimated_tokens: int
    history_version: str
    owner: object
    run_id: str | None = None
    binds_reasoning: bool = False
    current_start: int | None = None
    calls: ModelCalls | None = None

    @property
    def state(self) -> HistoryProcessorState:
        """What a condition is given."""
        return HistoryProcessorState(
            adapter_shortname=self.adapter_shortname,
            model_id=self.model_id,
            request_index=self.request_index,
            cache_epoch=self.cache_epoch,
            estimated_tokens=self.estimated_tokens,
            history_version=self.history_version,
        )


@dataclass(frozen=True, slots=True)
class EditReceipt:
    """What an edit did, for the turn record and for people. Messages are counted as they are stored.

    An accepted edit has one. So has a pass that changed nothing although a model was asked: its summary failed.

    Attributes:
        request_index: which model request of the turn it was made for, from 1.
        processor: the processor, as `module:qualname`.
        groups_before: groups of the history before it, and after it in `groups_after`.
        entries_before: messages before it, and after it in `entries_after`.
        tokens_before: estimate of the history before it, and after it in `tokens_after`.
        epoch_before: cache epoch before it, and after it in `epoch_after`.
        released_reasoning: names of the reasoning blocks that it invalidated and that were released.
        calls: the model calls of the processors.
    """

    request_index: int
    processor: str
    groups_before: int
    groups_after: int
    entries_before: int
    entries_after: int
    tokens_before: int
    tokens_after: int
    epoch_before: int
    epoch_after: int
    released_reasoning: tuple[str, ...] = ()
    calls: tuple[CallReceipt, ...] = ()

    @classmethod
    def from_values(cls, values: Sequence[Any]) -> Self:
        """Read what `dataclasses.astuple` gives, after JSON."""
        make: Any = cls
        figures, released, *calls = values[:10], values[10], *values[11:]
        called = tuple(map(CallReceipt.from_values, calls[0])) if calls else ()
        receipt: Self = make(*figures, tuple(released), called)
        return receipt

    @property
    def is_rewrite(self) -> bool:
        """Whether the history was written anew."""
        return self.epoch_after != self.epoch_before


@dataclass(frozen=True)
class EditOutcome(Generic[MessageT]):
    """What came of one pass.

    Attributes:
        verdict: what happened.
        messages: the native history to send, in the framework's normal form; for every verdict but `accepted` the very
            sequence that was given.
        entries: the metadata of each message.
        receipt: what an accepted edit did, or which models were asked in vain; else None.
    """

    verdict: EditVerdict
    messages: Sequence[MessageT]
    entries: Sequence[EntryMetadata]
    receipt: EditReceipt | None = None


async def edit_history(
    dialect: MessageDialect[MessageT], request: EditRequest[MessageT], processing: HistoryProcessingInForce[MessageT]
) -> EditOutcome[MessageT]:
    """Run the processor that is in force on the history of a request.

    Raises:
        HistoryProcessingError: a callback raised, a condition did not answer with a bool, or the processor's own
        adapter
            was called from inside it.
        HistoryProcessingValidationError: the processor returned what may not be sent.
    """
    if processing.processor is None:
        return EditOutcome("unprocessed", request.messages, request.entries)
    refuse_reentry(request.owner)
    if processing.condition is not None and not ask_condition(processing.condition, request.state):
        return EditOutcome("skipped", request.messages, request.entries)

    size = len(request.messages)
    with observed(callback_name(processing.processor)) as one:
        shown = await _aside(size, _shown, dialect, request)
        result = await call_processor(processing.processor, shown.context, owner=request.owner)
        outcome = await _aside(size, _judged, dialect, request, shown, result, processing.processor)
        one.receipt = outcome.receipt
    return outcome


async def _aside(size: int, function: Callable[..., _Result], *args: object) -> _Result:
    """What a function returns, called in a worker thread where it has a long history to go through.

    It would hold up whatever else the worker does: heartbeats, other lanes' streams.
    """
    return function(*args) if size < _LONG else await asyncio.to_thread(function, *args)


@dataclass(frozen=True)
class _Shown(Generic[MessageT]):
    """What a processor is given: detached copies of a view."""

    view: HistoryView[MessageT]
    groups: tuple[HistoryGroup, ...]
    copies: tuple[MessageT, ...]
    context: HistoryProcessorContext[MessageT]


def _shown(dialect: MessageDialect[MessageT], request: EditRequest[MessageT]) -> _Shown[MessageT]:
    view = view_of(
        dialect,
        request.messages,
        request.entries,
        request_index=request.request_index,
        current_start=request.current_start,
    )
    groups = find_groups(dialect, view)
    copies = tuple(dialect.detached(message) for message in view.messages)
    context = HistoryProcessorContext(
        messages=list(copies),
        groups=groups,
        entries=view.entries,
        adapter_shortname=request.adapter_shortname,
        model_id=request.model_id,
        request_index=request.request_index,
        cache_epoch=request.cache_epoch,
        estimated_tokens=request.estimated_tokens,
        calls=request.calls,
    )
    return _Shown(view, groups, copies, context)


def _judged(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    shown: _Shown[MessageT],
    result: object,
    processor: HistoryProcessor[MessageT],
) -> EditOutcome[MessageT]:
    returned = _native_messages(dialect, result)
    edited = _validated(dialect, request, shown, returned, callback_name(processor))
    groups_before = len(shown.groups)
    if edited is None:
        receipt = _unchanged(dialect, request, processor, groups_before) if _calls_of(request) else None
        return EditOutcome("no-op", request.messages, request.entries, receipt)
    return _accepted(dialect, request, processor, groups_before, edited)


def _native_messages(dialect: MessageDialect[MessageT], result: object) -> list[MessageT]:
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        refuse(EditRule.NOT_A_SEQUENCE, None)
    messages: list[MessageT] = []
    for index, message in enumerate(cast("Sequence[object]", result)):
        if not dialect.is_native(message):
            refuse(EditRule.NOT_NATIVE, index)
        messages.append(message)
    if not messages:
        refuse(EditRule.EMPTY, None)
    return messages


def _validated(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    shown: _Shown[MessageT],
    returned: Sequence[MessageT],
    processor: str,
) -> AssembledHistory[MessageT] | None:
    """The edited history, or None if it is equivalent to the input."""
    view, groups = shown.view, shown.groups
    contents = [dialect.content(message) for message in view.messages]
    returned_contents = [dialect.content(message) for message in returned]
    if contents == returned_contents:
        return None
    match = match_messages(groups, shown.copies, contents, returned, returned_contents)
    validate_edit(
        ReturnedHistory(
            groups=groups,
            facts=view.facts,
            returned=tuple(
                tuple(dialect.facts(piece) for piece in dialect.split(message))
                if matched is None
                else (view.facts[matched],)
                for message, matched in zip(returned, match.inputs, strict=True)
            ),
            match=match,
        )
    )
    if request.binds_reasoning:
        for index in range(groups[-1].entry_start, groups[-1].entry_end):
            if dialect.bound_reasoning(view.messages[index]):
                refuse(EditRule.BOUND_REASONING, index)
    return assemble(
        dialect, request.messages, request.entries, view, returned, match, processor=processor, run_id=request.run_id
    )


def _accepted(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    processor: HistoryProcessor[MessageT],
    groups_before: int,
    edited: AssembledHistory[MessageT],
) -> EditOutcome[MessageT]:
    messages, entries = edited.messages, edited.entries
    released: tuple[str, ...] = ()
    if request.binds_reasoning:
        history = release_bound_reasoning(
            dialect,
            messages,
            entries,
            request_index=request.request_index,
            first_changed=edited.first_changed,
            current_start=edited.current_start,
        )
        messages, entries, released = history.messages, history.entries, history.released
    messages, entries = settle(dialect, messages, entries)
    entries = estimated(dialect, messages, entries)
    receipt = receipt_of(
        dialect,
        request,
        messages,
        entries,
        processor=callback_name(processor),
        groups_before=groups_before,
        released=released,
    )
    return EditOutcome("accepted", messages, entries, receipt)


def receipt_of(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    messages: Sequence[MessageT],
    entries: Sequence[EntryMetadata],
    *,
    processor: str,
    groups_before: int,
    released: tuple[str, ...],
) -> EditReceipt:
    """The receipt of a rewrite of a request's history to `messages`."""
    after = view_of(dialect, messages, entries, request_index=request.request_index)
    return EditReceipt(
        request_index=request.request_index,
        processor=processor,
        groups_before=groups_before,
        groups_after=len(find_groups(dialect, after)),
        entries_before=len(request.messages),
        entries_after=len(messages),
        # By the same measure as after it, which no provider has counted.
        tokens_before=estimate_history(dialect, request.messages, request.entries),
        tokens_after=estimate_history(dialect, messages, entries),
        epoch_before=request.cache_epoch,
        epoch_after=request.cache_epoch + 1,
        released_reasoning=released,
        calls=_calls_of(request),
    )


def _unchanged(
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    processor: HistoryProcessor[MessageT],
    groups: int,
) -> EditReceipt:
    """The receipt of a pass that asked models and changed nothing."""
    tokens = estimate_history(dialect, request.messages, request.entries)
    return EditReceipt(
        request_index=request.request_index,
        processor=callback_name(processor),
        groups_before=groups,
        groups_after=groups,
        entries_before=len(request.messages),
        entries_after=len(request.messages),
        tokens_before=tokens,
        tokens_after=tokens,
        epoch_before=request.cache_epoch,
        epoch_after=request.cache_epoch,
        calls=_calls_of(request),
    )


def _calls_of(request: EditRequest[MessageT]) -> tuple[CallReceipt, ...]:
    return () if request.calls is None else tuple(request.calls.receipts)
