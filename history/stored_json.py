"""JSON as records, events and journals are stored: compact, text as it is, and any text at all."""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic_core import PydanticSerializationError, to_json

__all__ = ["any_json", "as_printable", "compact_json", "kind_of"]


def compact_json(value: object) -> bytes:
    """A value as JSON in UTF-8.

    A lone surrogate (of a file name that is no UTF-8, of an emoji that a provider cut in two) has no form in UTF-8. It
    is written as the escape that JSON has for it, and comes back as it was.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def any_json(value: object, *, fallback: Callable[[object], str] = repr) -> bytes:
    """Whatever a framework or user code has in hand as JSON, bytes as base64; lone surrogates as in `compact_json`.

    Args:
        value: what it is.
        fallback: what to write for a value that has no form in JSON.
    """
    try:
        return to_json(value, fallback=fallback, bytes_mode="base64", inf_nan_mode="constants")
    except PydanticSerializationError:
        return json.dumps(value, separators=(",", ":"), default=fallback).encode()


def kind_of(value: object) -> str:
    """A fallback for `any_json` that is the same in every process; a `repr` has an object's address in it."""
    return type(value).__qualname__


def as_printable(text: str) -> str:
    r"""Text that can be written anywhere: a lone surrogate becomes the escape that Python shows, as in `\udce9`."""
    return text.encode(errors="backslashreplace").decode()
