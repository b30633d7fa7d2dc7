"""What a turn of a Pydantic AI agent is asked: text, or text among images and documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelRequest, UserContent, UserPromptPart
from pydantic_core import PydanticSerializationError

from laneway.activities.pydantic_run import JSON_FORM
from laneway.activities.pydantic_summary import PydanticText
from laneway.errors import InvalidInput

__all__ = ["Prompt", "decode_prompt", "encode_prompt", "opened_with", "text_of_prompt"]

Prompt: TypeAlias = str | list[UserContent]

_prompt: TypeAdapter[Prompt] = TypeAdapter(Prompt, config=JSON_FORM)


def encode_prompt(prompt: object) -> bytes:
    """A prompt as it is stored.

    Raises:
        InvalidInput: it is none, or it is empty.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidInput("the prompt is empty: give it some text")
    elif not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise InvalidInput(
            f"the prompt is a {type(prompt).__name__}: Pydantic AI takes text, or a sequence of text, images and "
            "documents"
        )
    elif not prompt or all(isinstance(item, str) and not item.strip() for item in cast("Sequence[object]", prompt)):
        raise InvalidInput("the prompt is empty: give it some content")
    value: object = prompt if isinstance(prompt, str) else list(cast("Sequence[object]", prompt))
    try:
        return _prompt.dump_json(_prompt.validate_python(value))
    except (ValidationError, PydanticSerializationError, UnicodeError) as error:
        raise InvalidInput(f"Pydantic AI does not take this prompt: {error}") from error


def decode_prompt(prompt: bytes) -> Prompt:
    """The prompt that `encode_prompt` was given."""
    return _prompt.validate_json(prompt)


def text_of_prompt(prompt: Prompt) -> str:
    """The text of a prompt, with a description of each file, as a text thread keeps it."""
    return "\n".join(line.text for line in PydanticText().lines(ModelRequest(parts=[UserPromptPart(prompt)])))


def opened_with(opening: str, prompt: Prompt) -> Prompt:
    """A prompt after what stands before it in its request."""
    if not opening:
        return prompt
    if isinstance(prompt, str):
        return opening + prompt
    first, *rest = prompt
    return [opening + first, *rest] if isinstance(first, str) else [opening, *prompt]
