"""Edits that are kept with the step, so that each attempt at a superstep runs on the very same history.

The hard fact: tasks of a superstep that have finished are not run again after a crash, and what they wrote refers to
the history that they were given. A processor that is asked again may answer otherwise (its model does, or a clock), and
then half of the step would be of one history and half of another. So what came of a pass is journaled before any node
runs: which messages stayed, by their places, and those that are new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage

from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_editing import NodeRequest, edit
from laneway.history.editing import EditOutcome, EditReceipt
from laneway.history.model_calls import CallJournal
from laneway.history.origins import EntryMetadata
from laneway.history.scopes import HistoryProcessingInForce

__all__ = ["FIRST_RECORD", "edit_once", "has_begun"]

_KEY: Final = "edit"
FIRST_RECORD: Final = "g1"
"""What the first task of a superstep that finished is kept under."""


def has_begun(journal: CallJournal) -> bool:
    """Whether an attempt at the step has given its history to a processor, or to tasks that have finished."""
    return journal.finished(_KEY) is not None or journal.finished(FIRST_RECORD) is not None


async def edit_once(
    request: NodeRequest,
    processing: HistoryProcessingInForce[BaseMessage],
    *,
    owner: object,
    journal: CallJournal,
    codec: MessageCodec,
) -> EditOutcome[BaseMessage]:
    """What came of a pass over the history of a request, at whichever attempt at the step it was made.

    Args:
        request: the request.
        processing: the processor and the condition.
        owner: the adapter, whose processor may not call it.
        journal: the step's.
        codec: how messages are stored.

    Raises:
        HistoryProcessingError, HistoryProcessingValidationError: see `edit`.
        SerializationFailed: what the processor added cannot be stored.
    """
    if processing.processor is None:
        return EditOutcome("unprocessed", request.messages, request.entries)
    kept = journal.finished(_KEY)
    if kept is None:
        outcome = await edit(request, processing, owner=owner)
        # What stands may be another attempt's, which was faster.
        kept = await journal.finish(_KEY, _written(outcome, request, codec))
    return _read(kept, request, codec)


def _written(outcome: EditOutcome[BaseMessage], request: NodeRequest, codec: MessageCodec) -> bytes:
    places = {id(message): place for place, message in enumerate(request.messages)}
    lines: list[object] = []
    for message, entry in zip(outcome.messages, outcome.entries, strict=True):
        place = places.get(id(message))
        lines.append([codec.to_json(message), entry.to_stored()] if place is None else place)
    form = {
        "verdict": outcome.verdict,
        "messages": lines if outcome.verdict == "accepted" else None,
        "receipt": None if outcome.receipt is None else astuple(outcome.receipt),
    }
    return json.dumps(form, separators=(",", ":")).encode()


def _read(blob: bytes, request: NodeRequest, codec: MessageCodec) -> EditOutcome[BaseMessage]:
    form: dict[str, Any] = json.loads(blob)
    receipt = None if form["receipt"] is None else EditReceipt.from_values(form["receipt"])
    if form["messages"] is None:
        return EditOutcome(form["verdict"], request.messages, request.entries, receipt)
    messages: list[BaseMessage] = []
    entries: list[EntryMetadata] = []
    for line in cast("list[Any]", form["messages"]):
        if isinstance(line, int):
            messages.append(request.messages[line])
            entries.append(request.entries[line])
        else:
            messages.append(codec.from_json(line[0]))
            entries.append(EntryMetadata.from_stored(cast("Mapping[str, object]", line[1])))
    return EditOutcome(form["verdict"], messages, entries, receipt)
