"""Text threads: what a conversation's user and an agent said to each other, as text; and windows on it.

A thread grows on exactly two events: the user's message when a turn opens with a request, stored before the model's
request is put together, and the assistant's when that turn completes. A turn that fails, is stopped or is cut off
leaves the user's message and no answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self

from laneway.errors import InvalidArgument
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.scripts import FENCE, PRESENT, STRICT
from laneway.history.stored_json import compact_json

if TYPE_CHECKING:
    from laneway.history.link import StoreLink

__all__ = ["Speaker", "TextWindow", "ThreadMessage", "ThreadReader", "Threads", "as_text", "opening_of"]

Speaker = Literal["user", "assistant"]

# ARGV 8: the user's message. Once a turn, whatever becomes of it. Says 'ok'.
OPEN = (
    STRICT
    + FENCE
    + PRESENT
    + """
if redis.call('HSETNX', turn, 'th', '1') == 1 then redis.call('RPUSH', base .. 'thread', ARGV[8]) end
return {'ok'}
"""
)


@dataclass(frozen=True, slots=True)
class TextWindow:
    """In place of native history: the last messages of the thread, as text, in the opening of each turn's request.

    Attributes:
        messages: how many messages of the thread, the one that opens the turn among them; messages, not pairs of them
            and not tokens. 0 and less give none.

    Raises:
        InvalidArgument: it is no int.
    """

    messages: int = 6

    def __post_init__(self) -> None:
        if isinstance(self.messages, bool) or not isinstance(self.messages, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"TextWindow takes an int, not {self.messages!r}: the number of messages to show")


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message of a thread."""

    speaker: Speaker
    text: str

    def __str__(self) -> str:
        return f"{self.speaker}: {self.text}"

    def to_json(self) -> str:
        """The stored form."""
        return compact_json([_LETTERS[self.speaker], self.text]).decode()

    @classmethod
    def from_json(cls, blob: bytes | str) -> Self:
        """Read what `to_json` gives."""
        letter, text = json.loads(blob)
        return cls("user" if letter == "u" else "assistant", text)


_LETTERS: Final[dict[Speaker, str]] = {"user": "u", "assistant": "a"}


def as_text(messages: Sequence[ThreadMessage]) -> str:
    """Messages as they stand in a request: one after the other, `user: …` or `assistant: …`."""
    return "\n".join(map(str, messages))


def opening_of(shown: Sequence[ThreadMessage], *, is_brief: bool) -> str:
    """What stands before a turn's prompt in its request, for the two together to be what the window shows.

    Args:
        shown: what the window shows. Its last message is the turn's own, unless a brief drives the turn.
        is_brief: whether one does: then the window is shown before it.
    """
    if not shown:
        return ""
    if is_brief:
        return f"{as_text(shown)}\n\n"
    return as_text([*shown[:-1], ThreadMessage("user", "")])


class ThreadReader(Protocol):
    """Whatever holds threads: what windows ask of it."""

    async def list_messages(self, lane: LaneKey, window: int) -> list[ThreadMessage]:
        """The last `window` messages of a lane's thread, oldest first; none at all where `window` is 0 or less."""
        ...


class Threads:
    """The threads of all lanes. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._open: Any = link.script(OPEN)

    async def open_turn(self, fence: Fence, text: str) -> None:
        """A turn opens with a request: its text is the thread's, whatever becomes of the turn. Done once a turn.

        Raises:
            TurnEnded, StaleTurn: as for every write.
        """
        await self._link.run(self._open, fence, ThreadMessage("user", text).to_json())

    async def list_messages(self, lane: LaneKey, window: int) -> list[ThreadMessage]:
        """See `ThreadReader`."""
        if window <= 0:
            return []  # a range from -0 would be all of them
        found: list[bytes] = await self._link.ask(self._link.redis.lrange(self._link.names(lane).thread, -window, -1))
        return list(map(ThreadMessage.from_json, found))
