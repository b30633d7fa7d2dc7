"""What a lane's requests carried beside their messages, remembered while the worker lives.

A summary that is asked of the conversation's own model finds its messages cached at the provider only if what comes
before them is the same: tools, instructions, settings. They are known once the framework has prepared a request, and
are no data: a worker that has not seen the lane asks without them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from laneway.history.dialect import MessageDialect, MessageT

__all__ = ["FramingMemory", "native_prefix"]

F = TypeVar("F")

_MAX_LANES: Final = 1000


class FramingMemory(Generic[F]):
    """The framing of each lane's last request, of the lanes that were used last."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, F] = OrderedDict()

    def get(self, lane_id: str) -> F | None:
        """What a lane's last request carried; None where this worker has seen none."""
        return self._held.get(lane_id)

    def put(self, lane_id: str, framing: F) -> None:
        """Remember it."""
        self._held[lane_id] = framing
        self._held.move_to_end(lane_id)
        if len(self._held) > _MAX_LANES:
            self._held.popitem(last=False)

    def forget(self, lane_id: str) -> None:
        """Remember nothing of a lane."""
        self._held.pop(lane_id, None)


def native_prefix(
    dialect: MessageDialect[MessageT], messages: Sequence[MessageT], shown: Sequence[object]
) -> Sequence[MessageT] | None:
    """The messages whose pieces a processor was shown first, if they are just those; else None."""
    place = 0
    for index, message in enumerate(messages):
        if place == len(shown):
            return messages[:index]
        for piece in dialect.split(message):
            if place == len(shown) or not dialect.is_native(one := shown[place]):
                return None
            if piece is not one and dialect.content(piece) != dialect.content(one):
                return None
            place += 1
    return messages if place == len(shown) else None
