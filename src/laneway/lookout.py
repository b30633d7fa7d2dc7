"""A lookout: whoever waits for a turn's end asks now and then whether anybody is there to end it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.errors import ServiceUnavailable

if TYPE_CHECKING:
    from laneway.client import LanewayClient
    from laneway.turns import Turn

__all__ = ["Lookout"]

_FIRST_LOOK = timedelta(seconds=30)
_SECOND_LOOK = timedelta(seconds=5)
_LONGEST_PAUSE = timedelta(minutes=10)


class Lookout:
    """Of one who waits.

    A workflow that an operator terminates ends no turn, and one of another deployment's cannot. Two looks in a row have
    to come to that: between them a turn ends, or is carried into the workflow's next run.
    """

    def __init__(self, client: LanewayClient, turn: Turn) -> None:
        self._client, self._turn = client, turn
        self._pause = _FIRST_LOOK.total_seconds()
        self._next = time.monotonic() + self._pause
        self._missed = False

    @property
    def seconds(self) -> float:
        """How long to wait for news until the next look."""
        return max(self._next - time.monotonic(), 0.01)

    async def look(self) -> None:
        """Look, if it is time to.

        Raises:
            ServiceUnavailable: nobody will end the turn.
        """
        if time.monotonic() < self._next:
            return
        if await self._client.holds(self._turn):
            self._missed = False
            self._pause = min(2 * self._pause, _LONGEST_PAUSE.total_seconds())
            self._next = time.monotonic() + self._pause
            return
        if self._missed:
            lane, turn_id = self._turn.lane, self._turn.turn_id
            raise ServiceUnavailable(
                f"turn {turn_id!r} has not ended, and workflow {self._client.workflow_id(lane)!r} does not hold it: it "
                "was terminated, or another deployment in the Temporal namespace has the same LANEWAY_REDIS_PREFIX. "
                "Submit the turn again with the same turn id and prompt, and it goes on where it was, or cancel it"
            )
        self._missed = True
        self._next = time.monotonic() + _SECOND_LOOK.total_seconds()
