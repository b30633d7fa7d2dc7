"""What an API module hands to delivery: one answer, ready for the wire in both forms."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.support.provider.answers import Answer, Thinking, ToolCall
from tests.support.provider.tokens import Counted, text_tokens
from tests.support.provider.transcript import Entry, Json


@dataclass(frozen=True)
class Checked:
    """A request that passed the rules, with all that an answer to it needs."""

    transcript: tuple[Entry, ...]
    tools: tuple[str, ...]
    counted: Counted
    context: object = None


@dataclass(frozen=True)
class Rendered:
    """An answer as the API writes it: whole, and as the events of a stream.

    ``on_finished`` runs once the answer has been delivered whole.
    """

    answer_id: str
    body: Json
    events: tuple[bytes, ...]
    usage: Json
    on_finished: Callable[[], None] | None = None


@dataclass
class Ids:
    """Ids that are unique in a server's lifetime, and between servers unless ``run`` is given."""

    run: str = field(default_factory=lambda: uuid.uuid4().hex[:10])
    _count: int = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self.run}{self._count:06d}"


@dataclass(frozen=True)
class Figures:
    """The counts of one answer, after the script's overrides."""

    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    reasoning_tokens: int


def figures(counted: Counted, answer: Answer) -> Figures:
    """Count an answer: every part costs at least a token."""
    reasoning = output = 0
    for part in answer.parts:
        if isinstance(part, ToolCall):
            output += 1 + text_tokens(part.name + part.arguments)
        else:
            tokens = max(1, text_tokens(part.text))
            output += tokens
            reasoning += tokens if isinstance(part, Thinking) else 0
    over = answer.usage
    return Figures(
        input_tokens=counted.input_tokens if over.input_tokens is None else over.input_tokens,
        cached_tokens=counted.cached_tokens if over.cached_tokens is None else over.cached_tokens,
        written_tokens=counted.written_tokens,
        output_tokens=output if over.output_tokens is None else over.output_tokens,
        reasoning_tokens=reasoning if over.reasoning_tokens is None else over.reasoning_tokens,
    )


def with_ids(answer: Answer, ids: Ids, prefix: str) -> Answer:
    """The answer with an id on each tool call."""
    parts = tuple(
        replace(part, id=ids.new(prefix)) if isinstance(part, ToolCall) and part.id is None else part
        for part in answer.parts
    )
    return replace(answer, parts=parts)


def pieces(text: str, size: int) -> Iterator[str]:
    """A text in pieces of ``size`` characters."""
    for at in range(0, len(text), max(1, size)):
        yield text[at : at + size]


def sse(data: Json | Literal["[DONE]"], event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()
