"""Histories of LangChain messages that were made elsewhere, as they are stored until their turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, cast

from langchain_core.messages import BaseMessage

from laneway.activities.adapter import IMPORT_MARK
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_editing import stamped
from laneway.activities.langchain_messages import IMPORT_DIALECT
from laneway.history.repair import ImportRepair, validate_import

__all__ = ["read_import", "stored_import"]


def stored_import(messages: object, *, repair: bool, codec: MessageCodec) -> bytes:
    """The stored form of a history, after it was checked whole. It begins with `IMPORT_MARK`.

    Every message has an id of its own in it: one that has none, or that of an earlier message, is given one.

    Raises:
        HistoryProcessingValidationError: it may not be sent as it is.
        SerializationFailed: something in it cannot be stored.
    """
    history = validate_import(IMPORT_DIALECT, messages, repair=repair)
    stored = [codec.encode(message) for message in stamped(history.messages, seed="import")]
    repairs = json.dumps([list(astuple(repair)) for repair in history.repairs]).encode()
    return b"".join((IMPORT_MARK, b"[", b",".join(stored), b'],"repairs":', repairs, b"}"))


def read_import(blob: bytes, codec: MessageCodec) -> tuple[Sequence[BaseMessage], Sequence[ImportRepair]]:
    """The history that `stored_import` was given, as it was repaired, and the repairs."""
    stored = cast("dict[str, list[Any]]", json.loads(blob))
    messages = [codec.decode(json.dumps(message).encode()) for message in stored["import"]]
    return messages, [ImportRepair(*repair) for repair in stored["repairs"]]
