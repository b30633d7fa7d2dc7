"""Summaries that fail and are kept: asked for once a turn, and less and less often by the turns after it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from redis.asyncio import Redis

from laneway import EventKind, PydanticAdapter, Settings, SummarizationProcessor
from laneway.errors import TurnFailed
from laneway.history.model_calls import CallReceipt, ModelCalls
from laneway.history.processor_summary import SUMMARY_OPENING
from laneway.history.refusals import EarlierCalls, Refusals

from tests.adapters.scripted import Plan
from tests.editing.agents import AnyRecorder, LangChainRecorder, Recorder
from tests.editing.test_crashes import EditedLane
from tests.history.edits import edit as edited
from tests.history.edits import request_for
from tests.processors.passes import asked, user
from tests.support.bench import Bench


@dataclass
class Summarizer:
    """A summarizer that fails until it is mended.

    Attributes:
        asked: how often it was asked.
    """

    asked: int = 0
    mended: bool = False

    def __call__(self, text: str) -> str:
        self.asked += 1
        if not self.mended:
            raise ValueError("no summary today")
        return "SUM"

    def processor(self, **options: Any) -> SummarizationProcessor:
        given = {"trigger": ("messages", 3), "keep": ("messages", 1), "on_failure": "keep", **options}
        return SummarizationProcessor(summarizer=self, **given)


@pytest.fixture(params=[Recorder, LangChainRecorder], ids=["pydantic_ai", "langchain"])
def recorder(request: pytest.FixtureRequest) -> AnyRecorder:
    made: AnyRecorder = request.param()
    return made


async def test_a_summary_that_is_kept_is_asked_for_once_a_turn(
    bench: Bench, conversation_id: str, recorder: AnyRecorder
):
    """Not by a tool loop's later requests, and not by the next turn, whose receipt says until when."""
    summarizer = Summarizer()
    client = await bench.serve({"agent": recorder.adapter(summarizer.processor())})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    turn = await conversation.submit("agent", "look look look")
    events = [event async for event in turn.events()]
    assert summarizer.asked == 1
    assert len(recorder.sent) == 5
    (failed,) = (await turn.committed()).tally.edits
    assert ([call.outcome for call in failed.calls], failed.request_index) == (["failed"], 1)
    assert [event.kind for event in events].count(EventKind.HISTORY_KEPT) == 1
    record = await (await conversation.submit("agent", "look again")).committed()
    assert summarizer.asked == 1
    (waits,) = record.tally.edits
    (call,) = waits.calls
    assert (call.outcome, call.usage.requests, waits.epoch_after) == ("put_off", 0, waits.epoch_before)
    assert (call.error or "").startswith("it failed 1 times in a row, and is not asked for until ")
    assert record.usage.requests == 2


async def test_compacting_on_demand_does_not_wait_and_ends_the_wait(
    bench: Bench, conversation_id: str, recorder: AnyRecorder
):
    summarizer = Summarizer()
    client = await bench.serve({"agent": recorder.adapter(summarizer.processor())})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")

    async def waits() -> list[float] | None:
        found: Any = (await client.store.head(lane)).extras.get("refusals")
        return found

    for n in range(3):
        await conversation.ask("agent", f"q{n}")
    assert summarizer.asked == 1
    before = await waits()
    assert before is not None
    report = await conversation.compact("agent")
    assert not report.compacted
    assert "no summary today" in (report.reason or "")
    assert (summarizer.asked, await waits()) == (2, before), "a failure that was asked for is told, and counts not"
    summarizer.mended = True
    assert (await conversation.compact("agent")).compacted
    assert await waits() is None
    await conversation.ask("agent", "q3")
    assert summarizer.asked == 4, "the next turn asks at once"
    assert recorder.sent[-1] == [f"{SUMMARY_OPENING}\n\nSUM", "q3"]


async def test_a_summary_that_fails_turns_is_asked_for_by_each(
    bench: Bench, conversation_id: str, recorder: AnyRecorder
):
    summarizer = Summarizer()
    client = await bench.serve({"agent": recorder.adapter(summarizer.processor(on_failure="raise"))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    for n in (1, 2):
        with pytest.raises(TurnFailed, match="no summary today"):
            await conversation.ask("agent", f"q{n}")
        assert summarizer.asked == n
    summarizer.mended = True
    assert (await conversation.ask("agent", "q3")).output == "re: q3"


@dataclass
class RefusedLane(EditedLane):
    """A lane whose summaries fail, each step by a worker of its own."""

    summarizer: Summarizer = field(default_factory=Summarizer)

    def adapter(self) -> PydanticAdapter[None, Any]:
        made: Any = self.recorder.adapter(self.summarizer.processor())
        return made


@pytest.mark.parametrize(("deaths", "asked"), [([(0, False)], 2), ([(0, True)], 1), ([(1, False)], 1)], ids=str)
async def test_an_attempt_after_the_failure_does_not_ask_again(
    redis: Redis, settings: Settings, deaths: Any, asked: int, recorder: AnyRecorder
):
    """Whatever it used is counted, though the worker that asked is dead."""
    lane = RefusedLane(redis, settings.redis_prefix, Plan("text", ()))
    lane.recorder = recorder  # type: ignore[assignment]
    await lane.ask("t0", "q0")
    lane.deaths = list(deaths)
    record = await lane.ask("t1", "q1")
    assert (lane.deaths, record.outcome) == ([], "committed")
    assert lane.summarizer.asked == asked
    (receipt,) = record.tally.edits
    assert [(call.outcome, call.error) for call in receipt.calls] == [("failed", "ValueError: no summary today")]


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.results: dict[str, bytes] = {}

    def key(self, call_id: str, tool: str, arguments: bytes) -> str:
        return f"{call_id}:{tool}:{arguments.decode()}"

    def finished(self, key: str) -> bytes | None:
        return self.results.get(key)

    async def finish(self, key: str, result: bytes) -> bytes:
        return self.results.setdefault(key, result)


@pytest.mark.parametrize(("now", "asks"), [(99.9, False), (100.0, True)])
async def test_it_is_asked_for_again_when_the_wait_is_over(now: float, asks: bool):
    summarizer = Summarizer(mended=True)
    messages: list[ModelMessage] = [*asked("q0"), *asked("q1"), user("q2")]
    calls = ModelCalls(Kept(), earlier=EarlierCalls((), Refusals(2, 100.0), now))
    request = request_for(messages)
    outcome = await edited(replace(request, calls=calls), summarizer.processor())
    assert summarizer.asked == asks
    assert outcome.verdict == ("accepted" if asks else "no-op")
    assert [one.outcome for one in calls.receipts] == ["answered" if asks else "put_off"]


FAILED = CallReceipt("summary", None, "failed", "ValueError: no")


def test_waits_double_up_to_a_quarter_of_an_hour_and_a_summary_ends_them():
    found, waits = Refusals(), list[float]()
    for _ in range(6):
        found = found.after([FAILED], now=1000.0)
        waits.append(found.until - 1000.0)
    assert waits == [60, 120, 240, 480, 900, 900]
    assert found.count == 6
    assert Refusals.from_data(found.to_data()) == found
    assert found.after([], now=2000.0) == found
    assert found.after([CallReceipt("summary", None, "put_off", "waits")], now=2000.0) == found
    for outcome in ("answered", "recorded"):
        assert found.after([FAILED, CallReceipt("summary", "m", outcome)], now=2000.0) == Refusals()  # type: ignore[arg-type]
    assert Refusals.from_data(None) == Refusals()
