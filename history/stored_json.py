"""JSON as records, events and journals are stored: compact, text as it is, and any text at all."""

from __future__ import annotations

import json

__all__ = ["as_printable", "compact_json"]


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


def as_printable(text: str) -> str:
    r"""Text that can be written anywhere: a lone surrogate becomes the escape that Python shows, as in `\udce9`."""
    return text.encode(errors="backslashreplace").decode()
