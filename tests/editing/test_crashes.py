"""Workers that die between an edit and its commit: the next one goes on in the epoch that was staged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis.asyncio import Redis

from laneway import HistoryProcessorContext, Settings
from laneway.history.records import TurnRecord

from tests.adapters.scripted import plain_form
from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder
from tests.langchain.plans import plain_form as plain_form_of_graphs
from tests.support.stepped_lane import SteppedLane

Deaths = tuple[tuple[int, bool] | None, ...]


def drop_oldest(ctx: HistoryProcessorContext[Any]) -> list[Any]:
    """Drop the oldest exchange before every request of a turn that looks."""
    closed = [group for group in ctx.groups if group.closed and not group.protected]
    is_looking = "look" in str(ctx.messages[ctx.groups[-1].entry_start])
    return ctx.keep_recent_groups(len(closed) - 1) if is_looking and closed else ctx.messages


@dataclass
class EditedLane(SteppedLane):
    """A lane whose turns are edited, each step by a worker of its own."""

    recorder: AnyRecorder = field(default_factory=Recorder)
    checked: bool = False

    def adapter(self) -> Any:
        adapter: Any = self.recorder.adapter(drop_oldest)
        if self.checked:
            adapter.agent.output_validator(lambda output: output)
        return adapter

    async def plain_messages(self) -> Any:
        messages = await self.messages()
        return plain_form(messages) if isinstance(self.recorder, Recorder) else plain_form_of_graphs(messages)

    async def looked(self, *deaths: tuple[int, bool] | None) -> TurnRecord:
        """Three turns, and one with two rewrites in which workers die."""
        for n in range(3):
            await self.ask(f"t{n}", f"q{n}")
        self.deaths, self.writes = list(deaths), []
        record = await self.ask("t3", "look")
        assert (self.deaths, self.survivors) == ([], 0), "some worker did not come to its death"
        return record


# Each attempt at a step: before or after which of its writes its worker dies. The steps are a request, a tool call and
# a request that commits.
DEATHS: dict[str, dict[str, Deaths]] = {
    # A request is one write. A tool call is two: the call's result, and what the step came to.
    "plain": {
        "before the first rewrite is staged": ((0, False),),
        "after the first rewrite is staged": ((0, True),),
        "before the tool's result": (None, (0, False)),
        "after the tool's result": (None, (0, True)),
        "before the tool's step is staged": (None, (1, False)),
        "after the tool's step is staged": (None, (1, True)),
        "before the second rewrite is kept": (None, None, (0, False)),
        "after the second rewrite is kept": (None, None, (0, True)),
        "at every step": ((0, False), None, (1, False), None, (0, False)),
        # What is kept or staged is not written again; where all of a step is, an attempt has nothing left to write.
        "again and again": (
            *((0, False), (0, False), (0, True), None),
            *((0, False), (0, True), (0, False), (0, True), None),
            *((0, False), (0, False), (0, True)),
        ),
    },
    # A graph's edit, and what its task wrote, are kept before its superstep is staged.
    "graph": {
        "before the first edit is kept": ((0, False),),
        "after the first edit is kept": ((0, True),),
        "before the answer is kept": ((1, False),),
        "after the answer is kept": ((1, True),),
        "before the first rewrite is staged": ((2, False),),
        "after the first rewrite is staged": ((2, True),),
        "before the tool's result": (None, (0, False)),
        "after the tool's result": (None, (0, True)),
        "before the tool's step is staged": (None, (1, False)),
        "after the tool's step is staged": (None, (1, True)),
        "before the second edit is kept": (None, None, (0, False)),
        "after the second edit is kept": (None, None, (0, True)),
        "before the second rewrite is kept": (None, None, (2, False)),
        "after the second rewrite is kept": (None, None, (2, True)),
        "at every step": ((0, False), None, (1, False), None, (1, False)),
        "again and again": (
            *((0, False), (0, True), (0, False), (0, True), (0, False), (0, True), None),
            *((0, False), (0, True), (0, False), (0, True), None),
            *((0, False), (2, False), (0, True)),
        ),
    },
}
# `checked` has an output validator, before which the last answer is staged.
AGENTS: dict[str, tuple[type[AnyRecorder], bool, list[int]]] = {
    "plain": (Recorder, False, [1, 2, 1]),
    "checked": (Recorder, True, [1, 2, 2]),
    "graph": (LangChainRecorder, False, [3, 2, 3]),
}
PLACES = [(agent, place) for agent in AGENTS for place in DEATHS["graph" if agent == "graph" else "plain"]]


@pytest.fixture
def lane_of(redis: Redis, settings: Settings) -> Callable[[str], EditedLane]:
    """Makes a lane of an agent."""

    def make(agent: str) -> EditedLane:
        recorder, checked, _ = AGENTS[agent]
        return EditedLane(redis, settings.redis_prefix, None, recorder=recorder(), checked=checked)

    return make


@dataclass(frozen=True)
class Course:
    """What came of a lane's turns: of the one that looks, and of one more."""

    record: TurnRecord
    messages: Any
    head: Any
    asked_last: list[str]

    @classmethod
    async def of(cls, lane: EditedLane, *deaths: tuple[int, bool] | None) -> Course:
        record = await lane.looked(*deaths)
        await lane.ask("t4", "q4")
        head = await lane.store.head(lane.key)
        at = (head.checkpoint.epoch, head.checkpoint.length, head.extras["live"])
        return cls(record, await lane.plain_messages(), at, lane.recorder.sent[-1])


STEADY: dict[str, Course] = {}
"""What comes of it where nothing dies; the same for every test."""


async def steady_course(lane: EditedLane, agent: str) -> Course:
    if agent not in STEADY:
        STEADY[agent] = await Course.of(lane)
        assert lane.writes[:3] == AGENTS[agent][2], "the places above are no longer all that there are"
    return STEADY[agent]


@pytest.mark.parametrize(("agent", "place"), PLACES, ids=[f"{agent}, {place}" for agent, place in PLACES])
async def test_a_turn_with_two_rewrites_survives_its_workers(
    lane_of: Callable[[str], EditedLane], agent: str, place: str
):
    """Messages, receipts, epochs and the next turn are those of a lane whose workers live."""
    steady = await steady_course(lane_of(agent), agent)
    dying, wanted = lane_of(agent), steady.record
    course = await Course.of(dying, *DEATHS["graph" if agent == "graph" else "plain"][place])
    record = course.record
    assert record.outcome == "committed"
    assert record.tally.edits == wanted.tally.edits
    assert [(edit.epoch_before, edit.epoch_after) for edit in record.tally.edits] == [(0, 1), (1, 2)]
    assert (record.steps, record.usage) == (wanted.steps, wanted.usage)
    assert dying.recorder.texts_of(await dying.messages()) == [
        *("q2", "re: q2", "look", "look()", "seen", "re: look"),
        *("q4", "re: q4"),
    ]
    assert course.head == steady.head == (2, 8, 5)
    assert (course.messages, course.asked_last) == (steady.messages, steady.asked_last)


@pytest.mark.parametrize("agent", AGENTS)
async def test_what_was_staged_is_not_edited_or_asked_for_again(lane_of: Callable[[str], EditedLane], agent: str):
    """The worker after the death begins from the edited history; the model is asked as often as without it."""
    lane = lane_of(agent)
    await lane.looked((AGENTS[agent][2][0] - 1, True))
    assert lane.recorder.sent[3:] == [
        ["q1", "re: q1", "q2", "re: q2", "look"],
        ["q2", "re: q2", "look", "look()", "seen"],
    ]


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_edit_that_was_not_staged_is_made_again_on_the_old_history(
    lane_of: Callable[[str], EditedLane], agent: str
):
    """Before anything is kept of a graph's edit its model is not asked either."""
    lane = lane_of(agent)
    await lane.looked((0, False))
    first = ["q1", "re: q1", "q2", "re: q2", "look"]
    assert lane.recorder.sent[3:5] == ([first, first] if agent != "graph" else [first, lane.recorder.sent[-1]])
