"""Counting tokens and remembering prefixes, so that usage figures add up from one request to the next.

A prompt is a list of segments: tools, system, then each message or item. Four characters are a token.
A prefix is known when an earlier request under the same key began with the same segments; long
segments are split, so a change at the end of a long text keeps what was before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.support.provider.transcript import Json

_CHUNK_CHARS = 1024
_MARKS = ("cache_control", "prompt_cache_breakpoint")
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Counted:
    """What a request's prompt costs. ``fresh_tokens`` is neither read from the cache nor written to it."""

    input_tokens: int
    cached_tokens: int
    written_tokens: int

    @property
    def fresh_tokens(self) -> int:
        return self.input_tokens - self.cached_tokens - self.written_tokens


def text_tokens(text: str) -> int:
    """The tokens of a text: one for each four characters begun, none for an empty one."""
    return (len(text) + 3) // 4


def canonical(value: object) -> str:
    """JSON that is the same for equal values, without cache marks and absent fields."""
    text = _ENCODER.encode(value)
    if any(mark in text for mark in ("null", *_MARKS)):
        text = _ENCODER.encode(_without_marks(value))
    return text


def _without_marks(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_marks(item) for key, item in value.items() if item is not None and key not in _MARKS}
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    return value


class PrefixCache:
    """Prefixes that earlier requests have written, by key."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], set[bytes]] = {}

    def count(
        self, key: tuple[str, ...], segments: Sequence[Json | str], *, breakpoints: Iterable[int] | None = None
    ) -> Counted:
        """Count a prompt against the cache, and remember it.

        ``breakpoints`` are the positions of the segments that end a cached prefix (Anthropic); ``None``
        caches every prefix (OpenAI).
        """
        known = self._known.setdefault(key, set())
        ends = None if breakpoints is None else set(breakpoints)
        last = len(segments) - 1 if ends is None else max(ends, default=-1)
        running = hashlib.sha256()
        total = cached = writable = 0
        written: list[bytes] = []
        matching = True
        for position, segment in enumerate(segments):
            text = segment if isinstance(segment, str) else canonical(segment)
            chunks = [text[at : at + _CHUNK_CHARS] for at in range(0, len(text), _CHUNK_CHARS)] or [""]
            for number, chunk in enumerate(chunks):
                running.update(f"{len(chunk)}:{chunk}".encode())
                total += text_tokens(chunk)
                if position > last:
                    continue
                prefix = running.digest()
                if ends is None or (position in ends and number == len(chunks) - 1):
                    written.append(prefix)
                if prefix in known and matching:
                    cached = total
                elif ends is None:
                    matching = False
                writable = total
        known.update(written)
        return Counted(total, cached, max(0, writable - cached))


def prompt_segments(*groups: object) -> list[Json | str]:
    """The segments of a prompt: each group is a text, a value, or a list whose items are segments."""
    segments: list[Json | str] = []
    for group in groups:
        if isinstance(group, list):
            segments.extend(group)
        elif isinstance(group, (str, dict)) and group:
            segments.append(group)
    return segments
