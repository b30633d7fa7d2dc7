"""Archival in turns: what the model is sent, what is read back, and what is left of turns that end otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage
from redis.asyncio import Redis

from laneway import HistoryArchiveSettings, PydanticAdapter, Settings
from laneway.activities.adapter import StepWork
from laneway.activities.archive import TurnArchive
from laneway.activities.pydantic_archive import archive_before
from laneway.activities.pydantic_editing import describe
from laneway.errors import StoreFull, TurnFailed
from laneway.history.archival import ARCHIVER
from laneway.history.archives import ArchivedItem
from laneway.history.checkpoints import EMPTY
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.store import HistoryStore

from tests.adapters.scripted import Plan
from tests.archival.test_plan import exchange
from tests.editing.agents import texts_of
from tests.editing.test_crashes import EditedLane
from tests.history.oracle import why_unsendable
from tests.processors.passes import user
from tests.support.bench import Bench

SETTINGS = HistoryArchiveSettings(threshold_tokens=3_000, preserve_recent_tokens=700, minimum_reduction_tokens=1_000)
ROUNDS = 20


def page(n: int) -> str:
    return f"PAGE-{n} " + "word " * 200


@dataclass
class Reader:
    """An agent that reads page after page, then reads back its first archive, then answers.

    Attributes:
        sent: each request's messages.
        fails: whether it fails in the end.
    """

    sent: list[list[ModelMessage]] = field(default_factory=list[list[ModelMessage]])
    fails: bool = False
    rounds: int = ROUNDS

    def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(list(messages))
        assert why_unsendable(messages) is None
        asked = len(self.sent)
        usage = RequestUsage(output_tokens=1)
        if asked <= self.rounds:
            return ModelResponse([ToolCallPart("read", {"n": asked}, f"c{asked}")], usage=usage)
        said = "\n".join(texts_of(messages))
        if asked == self.rounds + 1:
            reference = said[said.index("[Archive ") + 9 :].partition(":")[0]
            return ModelResponse([ToolCallPart("read_archived", {"reference": reference}, "back")], usage=usage)
        if self.fails:
            raise ValueError("it fails in the end")
        return ModelResponse([TextPart("done")], usage=usage)

    def adapter(self, **options: Any) -> PydanticAdapter[None, str]:
        agent = Agent(FunctionModel(self._model, model_name="reader"))

        @agent.tool_plain
        def read(n: int) -> str:
            return page(n)

        return PydanticAdapter(agent, **{"history_archive": SETTINGS, **options})


async def test_old_exchanges_give_way_to_checkpoints_and_are_read_back(bench: Bench, conversation_id: str):
    agent = Reader()
    client = await bench.serve({"agent": agent.adapter()})
    conversation = client.conversation(conversation_id)
    record = await (await conversation.submit("agent", "read it all")).committed()
    edits = record.tally.edits
    assert len(edits) >= 2
    assert {edit.processor for edit in edits} == {ARCHIVER}
    assert [(edit.epoch_before, edit.epoch_after) for edit in edits] == [(n, n + 1) for n in range(len(edits))]
    for messages in agent.sent[:-1]:
        texts = texts_of(messages)
        assert texts[0] == "read it all"
        assert sum(len(text) for text in texts) < 4 * SETTINGS.threshold_tokens * 2
    last = texts_of(agent.sent[ROUNDS])
    assert len(last) < 2 * ROUNDS, "most of it is no longer sent"
    made = sum(edit.request_index <= ROUNDS + 1 for edit in edits)
    assert sum(text.startswith("[Archive ar-") for text in last) == made
    assert page(ROUNDS) in last, "what is recent is"
    back = texts_of(agent.sent[-1])[-1]
    first = int(back.partition('read({"n":')[2].partition("}")[0])
    assert first == 1
    assert f"read returned: {page(1)}" in back
    taken = edits[0].entries_before - edits[0].entries_after
    assert f"Tools: read x{taken // 2}. Outcomes: {taken // 2} returned." in last[1]
    # The lane goes on, and what was archived is there for it.
    lane = conversation.lane("agent")
    agent.sent, agent.rounds = [], -1
    archived = await client.store.archives.get(lane, last[1][9:].partition(":")[0])
    assert archived is not None
    assert [json.loads(payload)["kind"] for payload in archived.payloads][:2] == ["response", "request"]
    await conversation.ask("agent", "again")
    assert texts_of(agent.sent[0])[0] == "read it all"


async def test_a_turn_that_aborts_leaves_no_archive(bench: Bench, conversation_id: str, redis: Redis):
    agent = Reader(fails=True)
    client = await bench.serve({"agent": agent.adapter()})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match="it fails in the end"):
        await conversation.ask("agent", "read it all")
    names = client.store.names(conversation.lane("agent"))
    assert len(agent.sent) == ROUNDS + 2
    assert [key async for key in redis.scan_iter(match=f"{names.base.replace('[', '?')}archive*")] == []
    assert await conversation.messages("agent") == []


class FullArchive(TurnArchive):
    """An archive whose Redis has no memory left."""

    async def put(self, item: ArchivedItem) -> str:
        raise StoreFull("Redis refused a write")


async def test_a_store_that_is_full_leaves_the_history(store: HistoryStore):
    """Nothing is archived, and the request is sent as it is."""
    messages: list[ModelMessage] = [user("go"), *[m for n in range(30) for m in exchange(n)]]
    works = StepWork[ModelMessage](
        conversation="c",
        turn_id="turn",
        step=0,
        attempt=1,
        prompt=b"",
        history=(),
        entries=(),
        base_length=0,
        checkpoint=EMPTY,
        extras={},
        lane_id="lane",
        state=None,
        journal=None,  # type: ignore[arg-type]
        stage=None,  # type: ignore[arg-type]
        emit=lambda kind, data: None,
        archive=FullArchive(store.archives, Fence(LaneKey("c", "a", "k"), "turn")),
    )
    request = messages[-1]
    assert isinstance(request, ModelRequest)
    outcome = await archive_before(
        works,
        SETTINGS,
        owner=None,
        model=TestModel(),
        encode=lambda message: b"{}",
        messages=messages[:-1],
        entries=[describe(message, "turn") for message in messages[:-1]],
        request=request,
        request_index=31,
        live=0,
    )
    assert outcome is None


class ArchivingLane(EditedLane):
    reader: Reader

    def adapter(self) -> PydanticAdapter[None, Any]:
        return self.reader.adapter()


async def test_workers_that_die_at_every_step_archive_the_same(redis: Redis, settings: Settings):
    """Each answer is staged, so the model is asked as often as without the deaths."""
    wanted, dying = (ArchivingLane(redis, settings.redis_prefix, Plan("text", ())) for _ in range(2))
    for lane in (wanted, dying):
        lane.reader = Reader(rounds=10)
    steady = await wanted.ask("t", "read it all")
    dying.deaths = [death for _ in range(10) for death in ((0, True), (1, True))]
    record = await dying.ask("t", "read it all")
    (edit,), (same,) = record.tally.edits, steady.tally.edits
    assert (edit.request_index, edit.entries_before, edit.entries_after) == (
        *(same.request_index, same.entries_before, same.entries_after),
    )
    texts, others = texts_of(await dying.messages()), texts_of(await wanted.messages())
    assert (len(texts), texts[0], texts[-1]) == (len(others), others[0], others[-1])


def _large(result: Any, **options: Any) -> PydanticAdapter[None, str]:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        texts = texts_of(messages)
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("fetch", {}, "c1")])
        if len(messages) == 3 and "ar-" in texts[-1]:
            reference = texts[-1][texts[-1].index("ar-") :].partition(";")[0]
            return ModelResponse([ToolCallPart("read_archived", {"reference": reference, "offset": 100_000}, "c2")])
        return ModelResponse([TextPart(texts[-1])])

    agent = Agent(FunctionModel(answer, model_name="fetcher"))
    agent.tool_plain(name="fetch")(lambda: result)
    return PydanticAdapter(agent, **options)


async def test_a_result_that_is_too_large_never_enters_history(bench: Bench, conversation_id: str, store: HistoryStore):
    """It fails the turn by its own name; archived, its beginning and its end are shown, and all of it can be read."""
    result = "".join(f"{n:09d}," for n in range(12_000))
    archive = HistoryArchiveSettings()
    agents = {
        "plain": _large(result),
        "archived": _large(result, history_archive=archive),
        "any": _large(result, max_tool_result_bytes=None),
        "exact": _large("x" * 99_998),
        "over": _large("x" * 99_999),
    }
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    for name in ("plain", "over"):
        with pytest.raises(TurnFailed, match="max_tool_result_bytes is 100000") as failed:
            await conversation.ask(name, "go")
        assert failed.value.error_type == "ToolOutputTooLarge"
    assert (await conversation.ask("exact", "go")).output == "x" * 99_998
    assert (await conversation.ask("any", "go")).output == result
    output = (await conversation.ask("archived", "go")).output
    stored = json.dumps(result)
    assert output.startswith(stored[100_000:120_000])
    assert "[Characters 100000 to 120000 of 120002. read_archived with offset=120000 goes on.]" in output
    messages = await conversation.messages("archived")
    shown = texts_of(messages)[2]
    assert len(shown) < 5_000
    assert "000000000," in shown
    assert "000011999," in shown
