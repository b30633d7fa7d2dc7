"""The stored form of Pydantic AI's messages: the framework's own JSON."""

from __future__ import annotations

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage
from pydantic_core import PydanticSerializationError

from laneway.activities.pydantic_run import JSON_FORM
from laneway.activities.retries import SerializationFailed

__all__ = ["decode", "encode"]

_message: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage, config=JSON_FORM)


def encode(message: ModelMessage) -> bytes:
    """A message as it is stored.

    Raises:
        SerializationFailed: something in it has no JSON form.
    """
    try:
        return _message.dump_json(message)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise SerializationFailed(
            f"a {type(message).__name__} cannot be stored: {error}. Tools and outputs must be JSON values, "
            "pydantic models or dataclasses"
        ) from error


def decode(payload: bytes) -> ModelMessage:
    """The message that `encode` was given."""
    return _message.validate_json(payload)
