"""Model calls of history processors that failed: what is remembered of them, so that none is paid again and again.

Where a summary fails and the turn goes on without it, the history is as large before the next request, and the summary
would be asked for again: with each step of a tool loop, and with each turn. So one failure is the turn's, and the
lane's next turns wait before they ask, longer with each further failure. They wait by the clock, not by counting
turns: a history that has become too large without its summary fails turns, and must not wait for more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from laneway.history.model_calls import CallReceipt

__all__ = ["EarlierCalls", "Refusals"]

_FIRST_WAIT_SECONDS: Final = 60.0
_LONGEST_WAIT_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """The failures of a lane's latest calls.

    Attributes:
        count: how many have failed in a row.
        until: before when nothing is asked, in seconds since 1970.
    """

    count: int = 0
    until: float = 0.0

    def after(self, receipts: Sequence[CallReceipt], *, now: float, is_asked_for: bool = False) -> Refusals:
        """What they are after a turn.

        Args:
            receipts: the turn's calls.
            now: the time, in seconds since 1970.
            is_asked_for: whether somebody asked for just these calls: then a failure is told to them, and counts not.
        """
        outcomes = {receipt.outcome for receipt in receipts}
        if outcomes & {"answered", "recorded"}:
            return Refusals()
        if "failed" not in outcomes or is_asked_for:
            return self
        wait = min(_FIRST_WAIT_SECONDS * 2.0**self.count, _LONGEST_WAIT_SECONDS)
        return Refusals(self.count + 1, now + wait)

    def to_data(self) -> list[float]:
        """The stored form, as JSON has it."""
        return [self.count, self.until]

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read what `to_data` gives; None for none."""
        return cls() if data is None else cls(int(data[0]), float(data[1]))


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """What became of calls before a pass of history editing.

    Attributes:
        receipts: the turn's calls before it.
        refusals: what the lane's turns before have left.
        now: the time, in seconds since 1970.
    """

    receipts: Sequence[CallReceipt] = ()
    refusals: Refusals = Refusals()
    now: float = 0.0

    def is_told(self, purpose: str) -> bool:
        """Whether a call for this failed in the turn, or was put off: then its receipt is in the turn's record."""
        return any(one.purpose == purpose and one.outcome in ("failed", "put_off") for one in self.receipts)

    def why_put_off(self) -> str | None:
        """Why nothing is asked now; None where it is."""
        if self.now >= self.refusals.until:
            return None
        until = datetime.fromtimestamp(self.refusals.until, UTC)
        return f"it failed {self.refusals.count} times in a row, and is not asked for until {until:%H:%M:%S} UTC"
