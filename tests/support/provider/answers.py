"""What a scripted model answers: parts, the answer they make, and short builders for both.

A script may return an ``Answer``, a single part, a string, or a sequence of parts and strings;
``as_answer`` makes an ``Answer`` of any of them. Nothing here knows a wire format.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tests.support.provider.faults import Fault

Gate: TypeAlias = str | asyncio.Event
"""An event that holds an answer back; a name means ``server.gate(name)``."""


@dataclass(frozen=True)
class Text:
    """Plain text of the model."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """Reasoning. Anthropic signs it, Responses encrypts it, Chat Completions only counts its tokens."""

    text: str
    redacted: bool = False


@dataclass(frozen=True)
class ToolCall:
    """A call of one tool. ``args`` as a string goes out as it is, so it may be malformed JSON."""

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None

    @property
    def arguments(self) -> str:
        """The arguments as the JSON text that goes over the wire."""
        return self.args if isinstance(self.args, str) else json.dumps(dict(self.args))


Part: TypeAlias = Text | Thinking | ToolCall


@dataclass(frozen=True)
class Usage:
    """Figures that replace the counted ones; ``None`` keeps what the server counted."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True)
class Answer:
    """One answer of the model and how it is delivered.

    ``delay_seconds`` and ``gate`` hold back everything, headers included. A streamed text goes out in
    pieces of ``chunk_chars`` characters with ``chunk_delay_seconds`` between the events.
    """

    parts: tuple[Part, ...]
    usage: Usage = Usage()
    finish: Literal["auto", "length", "filtered"] = "auto"
    delay_seconds: float = 0.0
    gate: Gate | None = None
    chunk_chars: int = 16
    chunk_delay_seconds: float = 0.0
    fault: Fault | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


Answerable: TypeAlias = Answer | Part | str | Sequence[Part | str]


def call(name: str, args: Mapping[str, Any] | str | None = None, *, id: str | None = None) -> ToolCall:
    """A tool call; without ``id`` the server issues one that is unique in its lifetime."""
    return ToolCall(name, args if args is not None else {}, id)


def thinking(text: str, *, redacted: bool = False) -> Thinking:
    """A piece of reasoning, signed or encrypted by the server where the API does so."""
    return Thinking(text, redacted)


def answer(
    *parts: Part | str,
    usage: Usage | None = None,
    finish: Literal["auto", "length", "filtered"] = "auto",
    delay_seconds: float = 0.0,
    gate: Gate | None = None,
    chunk_chars: int = 16,
    chunk_delay_seconds: float = 0.0,
    fault: Fault | None = None,
) -> Answer:
    """An answer of several parts, in their order: ``answer(thinking("hm"), "Let me look.", call("find"))``."""
    return Answer(
        parts=tuple(Text(part) if isinstance(part, str) else part for part in parts),
        usage=usage or Usage(),
        finish=finish,
        delay_seconds=delay_seconds,
        gate=gate,
        chunk_chars=chunk_chars,
        chunk_delay_seconds=chunk_delay_seconds,
        fault=fault,
    )


reply = answer
"""``reply("text", …)`` reads better where an answer is only text; it is ``answer``."""


def as_answer(value: Answerable) -> Answer:
    """Whatever a script returned, as an ``Answer``."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, (str, Text, Thinking, ToolCall)):
        return answer(value)
    return answer(*value)
