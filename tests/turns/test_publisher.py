"""What a step says and keeps, on its way to Redis: in one write what comes together, and nobody waits in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from laneway.activities.publisher import StepPublisher
from laneway.errors import StaleTurn
from laneway.history.records import EventKind, LaneEvent


class Killed(BaseException):
    """No error that code is expected to handle."""


@dataclass
class Written:
    """Takes what is written, or refuses it."""

    error: BaseException | None = None
    writes: list[tuple[list[str], int]] = field(default_factory=list[tuple[list[str], int]])

    async def __call__(
        self, fields: Sequence[tuple[str, bytes]], events: Sequence[LaneEvent]
    ) -> Sequence[bytes | None]:
        self.writes.append(([name for name, _ in fields], len(events)))
        if self.error is not None:
            raise self.error
        return [None if name != "held" else b"before" for name, _ in fields]

    def publisher(self) -> StepPublisher:
        return StepPublisher(self, turn_id="t", step=0, attempt=1)


async def test_what_is_kept_together_is_one_write_with_what_was_said_before():
    written = Written()
    async with written.publisher() as publisher:

        async def call(name: str) -> bytes | None:
            publisher.emit(EventKind.TOOL_CALLED, {"tool": name})
            return await publisher.keep(name, b"")

        held = await asyncio.gather(call("j1"), call("held"))
    assert held == [None, b"before"]
    assert written.writes == [(["j1", "held"], 2)]


@pytest.mark.parametrize("error", [StaleTurn("gone"), Killed(), asyncio.CancelledError()])
async def test_whoever_keeps_something_hears_what_went_wrong_and_so_do_later_ones(error: BaseException):
    """Also where the writing has ended with it: a later field is not left waiting."""
    written = Written(error)
    publisher = written.publisher()
    for name in ("j1", "j2"):
        with pytest.raises(type(error)):
            async with asyncio.timeout(30):
                await publisher.keep(name, b"")
    assert [names for names, _ in written.writes] == [["j1"], ["j2"]]
