"""Histories that were made elsewhere, as they are stored until their turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_ai.messages import ModelMessage
from pydantic_core import PydanticSerializationError

from laneway.activities.pydantic_editing import DIALECT
from laneway.activities.pydantic_run import JSON_FORM
from laneway.activities.retries import SerializationFailed
from laneway.history.repair import ImportRepair, validate_import

__all__ = ["read_import", "stored_import"]


@dataclass
class _Import:
    messages: Annotated[list[ModelMessage], Field(alias="import")]
    repairs: list[list[Any]]

    __pydantic_config__: ClassVar[ConfigDict] = JSON_FORM


_import: TypeAdapter[_Import] = TypeAdapter(_Import)


def stored_import(messages: object, *, repair: bool) -> bytes:
    """The stored form of a history, after it was checked whole. It begins with `IMPORT_MARK`.

    Raises:
        HistoryProcessingValidationError: it may not be sent as it is.
        SerializationFailed: something in it cannot be stored.
    """
    history = validate_import(DIALECT, messages, repair=repair)
    stored = _import.validate_python(
        {"import": history.messages, "repairs": [list(astuple(r)) for r in history.repairs]}
    )
    try:
        return _import.dump_json(stored, by_alias=True)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise SerializationFailed(f"the imported history cannot be stored: {error}") from error


def read_import(blob: bytes) -> tuple[Sequence[ModelMessage], Sequence[ImportRepair]]:
    """The history that `stored_import` was given, as it was repaired, and the repairs."""
    stored = _import.validate_json(blob)
    return stored.messages, [ImportRepair(*repair) for repair in stored.repairs]
