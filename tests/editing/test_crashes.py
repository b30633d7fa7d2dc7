"""Workers that die between an edit and its commit: the next one goes on in the epoch that was staged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from redis.asyncio import Redis

from laneway import HistoryProcessorContext, PydanticAdapter, Settings
from laneway.history.records import TurnRecord

from tests.adapters.scripted import Plan, plain_form
from tests.adapters.two_ways import Lane
from tests.editing.agents import Recorder, texts_of


def drop_oldest(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
    """Drop the oldest exchange before every request of a turn that looks."""
    closed = [group for group in ctx.groups if group.closed and not group.protected]
    is_looking = "look" in str(ctx.messages[ctx.groups[-1].entry_start])
    return ctx.keep_recent_groups(len(closed) - 1) if is_looking and closed else ctx.messages


@dataclass
class EditedLane(Lane):
    """A lane whose turns are edited, each step by a worker of its own."""

    recorder: Recorder = field(default_factory=Recorder)
    checked: bool = False

    def adapter(self) -> PydanticAdapter[None, Any]:
        adapter = self.recorder.adapter(drop_oldest)
        if self.checked:
            adapter.agent.output_validator(lambda output: output)  # type: ignore[attr-defined]
        return adapter

    async def ask(self, turn_id: str, prompt: str) -> TurnRecord:
        record = await self._take(turn_id, self.adapter().encode_prompt(prompt))
        self.version += 1
        return record

    async def looked(self, *deaths: tuple[int, bool] | None) -> TurnRecord:
        """Three turns, and one with two rewrites in which workers die."""
        for n in range(3):
            await self.ask(f"t{n}", f"q{n}")
        self.deaths = list(deaths)
        record = await self.ask("t3", "look")
        assert self.deaths == [], "some worker did not come to its death"
        return record


def lane_of(redis: Redis, settings: Settings, *, checked: bool) -> EditedLane:
    return EditedLane(redis, settings.redis_prefix, Plan("text", ()), checked=checked)


# Each attempt at a step: before or after which of its writes its worker dies. The steps are a request (one write), a
# tool call (two: the call's result, and what the step came to), and a request that commits, or stages its answer first.
DEATHS: dict[str, tuple[tuple[int, bool] | None, ...]] = {
    "before the first rewrite is staged": ((0, False),),
    "after the first rewrite is staged": ((0, True),),
    "before the tool's result": (None, (0, False)),
    "after the tool's result": (None, (0, True)),
    "before the tool's step is staged": (None, (1, False)),
    "after the tool's step is staged": (None, (1, True)),
    "before the second rewrite is kept": (None, None, (0, False)),
    "after the second rewrite is kept": (None, None, (0, True)),
    "at every step": ((0, False), None, (1, False), None, (0, False)),
    "again and again": ((0, False), (0, False), (0, True), (0, False), (0, True), (1, False), (0, False), (0, False)),
}


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("place", DEATHS)
async def test_a_turn_with_two_rewrites_survives_its_workers(
    redis: Redis, settings: Settings, place: str, checked: bool
):
    """Messages, receipts, epochs and the next turn are those of a lane whose workers live."""
    steady, dying = (lane_of(redis, settings, checked=checked) for _ in range(2))
    wanted = await steady.looked()
    record = await dying.looked(*DEATHS[place])
    assert record.outcome == "committed"
    assert record.tally.edits == wanted.tally.edits
    assert [(edit.epoch_before, edit.epoch_after) for edit in record.tally.edits] == [(0, 1), (1, 2)]
    assert (record.steps, record.usage) == (wanted.steps, wanted.usage)
    assert texts_of(await dying.messages()) == ["q2", "re: q2", "look", "look()", "seen", "re: look"]
    for lane in (steady, dying):
        await lane.ask("t4", "q4")
    assert plain_form(await dying.messages()) == plain_form(await steady.messages())
    for lane in (steady, dying):
        head = await lane.store.head(lane.key)
        assert (head.checkpoint.epoch, head.checkpoint.length, head.extras) == (2, 8, {"live": 5})
    assert dying.recorder.sent[-1] == steady.recorder.sent[-1]


async def test_what_was_staged_is_not_edited_or_asked_for_again(redis: Redis, settings: Settings):
    """The worker after the death begins from the edited history; the model is asked as often as without it."""
    lane = lane_of(redis, settings, checked=False)
    await lane.looked((0, True))
    assert lane.recorder.sent[3:] == [
        ["q1", "re: q1", "q2", "re: q2", "look"],
        ["q2", "re: q2", "look", "look()", "seen"],
    ]


async def test_an_edit_that_was_not_staged_is_made_again_on_the_old_history(redis: Redis, settings: Settings):
    lane = lane_of(redis, settings, checked=False)
    await lane.looked((0, False))
    first = ["q1", "re: q1", "q2", "re: q2", "look"]
    assert lane.recorder.sent[3:5] == [first, first]
