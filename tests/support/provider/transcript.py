"""A request in one form for all three APIs, so that a script need not know which one it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

Api: TypeAlias = Literal["chat", "responses", "messages"]
Json: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant", "thinking", "call", "result"]


@dataclass(frozen=True)
class Entry:
    """One thing that was said: a text, a call or its result. ``id`` and ``name`` are those of the call."""

    role: Role
    text: str
    id: str = ""
    name: str = ""


@dataclass(frozen=True)
class ProviderRequest:
    """What a script is given. For Responses the transcript includes what the server holds already."""

    index: int
    api: Api
    model: str
    stream: bool
    body: Json
    headers: Mapping[str, str]
    transcript: tuple[Entry, ...]
    tools: tuple[str, ...]

    @property
    def system(self) -> str:
        """All system texts, one after the other."""
        return "\n".join(entry.text for entry in self.transcript if entry.role == "system")

    @cached_property
    def _after_prompt(self) -> int:
        """The position after the last user entry."""
        for position in range(len(self.transcript), 0, -1):
            if self.transcript[position - 1].role == "user":
                return position
        return 0

    @property
    def prompt(self) -> str:
        """The last user message, its consecutive texts joined."""
        start = self._after_prompt
        while start and self.transcript[start - 1].role == "user":
            start -= 1
        return "\n".join(entry.text for entry in self.transcript[start : self._after_prompt])

    @property
    def step(self) -> int:
        """How many answers the model has given since the last user message."""
        return _answers(self.transcript[self._after_prompt :])

    @property
    def answers(self) -> int:
        """How many answers of the model the request carries altogether."""
        return _answers(self.transcript)

    @property
    def turn(self) -> int:
        """Which user message of the conversation this is, from 1."""
        return sum(
            entry.role == "user" and (position == 0 or self.transcript[position - 1].role != "user")
            for position, entry in enumerate(self.transcript)
        )

    @property
    def results(self) -> tuple[Entry, ...]:
        """The tool results since the model's last answer."""
        found: list[Entry] = []
        for entry in reversed(self.transcript):
            if entry.role == "result":
                found.append(entry)
            elif entry.role in ("assistant", "call", "thinking"):
                break
        return tuple(reversed(found))


def _answers(entries: tuple[Entry, ...]) -> int:
    """Runs of consecutive model entries."""
    model = ("assistant", "thinking", "call")
    return sum(
        entry.role in model and (position == 0 or entries[position - 1].role not in model)
        for position, entry in enumerate(entries)
    )


def content_text(content: object) -> str:
    """The text of a message's content in any of the APIs, whatever else it holds."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for block in content:
        if isinstance(block, dict):
            text = block.get("text")
            if isinstance(text, str):
                texts.append(text)
            else:
                texts.append(f"[{block.get('type', 'content')}]")
    return "\n".join(texts)
