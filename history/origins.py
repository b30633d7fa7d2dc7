"""Where the messages of a history came from: kept beside the messages, never inside them and never in a prompt.

An origin is written down when a message is produced and travels with the stored entry from then on. It is never
worked out from what a message says: text is the one thing that a user, a tool or a model can forge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Literal, Self, cast

__all__ = ["EntryMetadata", "HistoryOrigin", "OriginKind"]

OriginKind = Literal["system", "user", "tool", "model", "framework", "processor", "archive", "unknown"]
"""Who produced a message: the application's system text, its user, a tool, a model, the agent framework itself (its
retry feedback), a history processor, exact archival, or nobody that was recorded."""


@dataclass(frozen=True, slots=True)
class HistoryOrigin:
    """Where a message, or one tool result in it, came from.

    Attributes:
        kind: who produced it.
        run_id: the run that produced it: a Laneway turn, or the framework's own run for imported messages.
        source_location: what produced it, as the adapter or the processor names itself (`module:qualname`).
        tool_name: for a tool result, the tool.
        tool_call_id: for a tool result, the call that it answers.
    """

    kind: OriginKind
    run_id: str | None = None
    source_location: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


UNKNOWN = HistoryOrigin("unknown")


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """What is known about one message beside its content.

    Attributes:
        origins: one for each thing that the message holds (a Pydantic AI request can hold several tool results and a
            prompt), in the order of the message.
        estimated_tokens: the estimate of this message alone, kept with the entry so that the estimate of a history is
            a sum; None where it has not been computed.
    """

    origins: tuple[HistoryOrigin, ...] = ()
    estimated_tokens: int | None = None

    @property
    def origin(self) -> HistoryOrigin:
        """The first origin, or one of kind `unknown` where none was recorded."""
        return self.origins[0] if self.origins else UNKNOWN

    @property
    def run_id(self) -> str | None:
        """The run of the newest thing in the message, or None where no run was recorded."""
        return next((origin.run_id for origin in reversed(self.origins) if origin.run_id is not None), None)

    def to_stored(self) -> Mapping[str, object]:
        """The form in which it is kept with the entry: JSON, with nothing that is said twice."""
        stored: dict[str, object] = {}
        if self.estimated_tokens is not None:
            stored["k"] = self.estimated_tokens
        runs = {origin.run_id for origin in self.origins}
        common = runs.pop() if len(runs) == 1 else None
        if common is not None:
            stored["r"] = common
        if self.origins:
            stored["o"] = [_trimmed(origin, common) for origin in self.origins]
        return stored

    @classmethod
    def from_stored(cls, stored: Mapping[str, object]) -> Self:
        """Read what `to_stored` gives."""
        run = cast("str | None", stored.get("r"))
        origins: list[HistoryOrigin] = []
        for letter, *rest in cast("list[list[Any]]", stored.get("o", [])):
            fields = [*rest, None, None, None, None][:4]
            origins.append(HistoryOrigin(_KINDS[letter], fields[0] or run, *fields[1:]))
        return cls(tuple(origins), cast("int | None", stored.get("k")))

    @property
    def is_archive(self) -> bool:
        """Whether exact archival wrote this message: a checkpoint, which no edit may touch."""
        return any(origin.kind == "archive" for origin in self.origins)


_LETTERS: Mapping[OriginKind, str] = {
    "system": "s",
    "user": "u",
    "tool": "t",
    "model": "m",
    "framework": "f",
    "processor": "p",
    "archive": "a",
    "unknown": "x",
}
_KINDS: Mapping[str, OriginKind] = {letter: kind for kind, letter in _LETTERS.items()}


def _trimmed(origin: HistoryOrigin, common_run: str | None) -> list[str | None]:
    kind, run, *rest = astuple(origin)
    fields = [_LETTERS[kind], None if run == common_run else run, *rest]
    while fields[-1] is None:
        fields.pop()
    return fields


def joined(parts: Iterable[EntryMetadata]) -> EntryMetadata:
    """The metadata of a message that several messages were merged into. The estimate has to be made anew."""
    return EntryMetadata(origins=tuple(dict.fromkeys(origin for part in parts for origin in part.origins)))
