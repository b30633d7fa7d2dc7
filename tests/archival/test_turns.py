"""Archival in turns: what the model is sent, what is read back, and what is left of turns that end otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from redis.asyncio import Redis

from laneway import HistoryArchiveSettings, LangChainAdapter, PydanticAdapter, Settings
from laneway.errors import TurnFailed
from laneway.history.archival import ARCHIVER

from tests.adapters.scripted import Plan
from tests.archival.readers import READERS, ROUNDS, SETTINGS, AgentReader, PydanticReader, Reader, page, reference_in
from tests.editing.test_crashes import EditedLane
from tests.langchain.graphs import ScriptedModel
from tests.support.bench import Bench


@pytest.fixture(params=READERS, ids=lambda kind: kind.__name__)
def reader(request: pytest.FixtureRequest) -> Reader:
    made: Reader = request.param()
    return made


async def test_old_exchanges_give_way_to_checkpoints_and_are_read_back(
    bench: Bench, conversation_id: str, reader: Reader
):
    adapter = reader.adapter()
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    record = await (await conversation.submit("agent", "read it all")).committed()
    edits = record.tally.edits
    assert len(edits) >= 2
    assert {edit.processor for edit in edits} == {ARCHIVER}
    assert [(edit.epoch_before, edit.epoch_after) for edit in edits] == [(n, n + 1) for n in range(len(edits))]
    for texts in reader.sent[:-1]:
        assert texts[0] == "read it all"
        assert sum(len(text) for text in texts) < 4 * SETTINGS.threshold_tokens * 2
    last = reader.sent[ROUNDS]
    assert len(last) < 2 * ROUNDS, "most of it is no longer sent"
    made = sum(edit.request_index <= ROUNDS + 1 for edit in edits)
    assert sum(text.startswith("[Archive ar-") for text in last) == made
    assert page(ROUNDS) in last, "what is recent is"
    back = reader.sent[-1][-1]
    first = int(back.partition('read({"n":')[2].partition("}")[0])
    assert first == 1
    assert f"read returned: {page(1)}" in back
    # The checkpoint is a message of its own in LangChain, and a part of the request in Pydantic AI.
    taken = (edits[0].entries_before - edits[0].entries_after + 1) // 2
    assert f"{taken} earlier tool exchanges of this turn" in last[1]
    assert f"Tools: read x{taken}. Outcomes: {taken} returned." in last[1]
    # The lane goes on, and what was archived is there for it.
    lane = conversation.lane("agent")
    reader.sent, reader.rounds = [], -1
    archived = await client.store.archives.get(lane, reference_in(last))
    assert archived is not None
    stored = reader.texts_of([adapter.decode(payload) for payload in archived.payloads])
    assert stored[:4] == ["read()", page(1), "read()", page(2)]
    await conversation.ask("agent", "again")
    assert reader.sent[0][0] == "read it all"
    assert reader.sent[0][1] == last[1], "the checkpoint is the lane's"


async def test_a_turn_that_aborts_leaves_no_archive(bench: Bench, conversation_id: str, redis: Redis, reader: Reader):
    reader.fails = True
    client = await bench.serve({"agent": reader.adapter()})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match="it fails in the end"):
        await conversation.ask("agent", "read it all")
    names = client.store.names(conversation.lane("agent"))
    assert len(reader.sent) == ROUNDS + 2
    assert [key async for key in redis.scan_iter(match=f"{names.base.replace('[', '?')}archive*")] == []
    assert await conversation.messages("agent") == []


@dataclass
class ArchivingLane(EditedLane):
    """A lane of a reader, each step by a worker of its own.

    Attributes:
        reader: the agent.
        settings_of: the settings of a worker, by how many attempts after its own are planned.
    """

    reader: Reader = field(default_factory=Reader)
    settings_of: Any = None

    def adapter(self) -> Any:
        if self.settings_of is None:
            return self.reader.adapter()
        return self.reader.adapter(history_archive=self.settings_of(len(self.deaths)))


async def test_workers_that_die_at_every_step_archive_the_same(redis: Redis, settings: Settings, reader: Reader):
    """Each answer is kept, so the history comes out as without the deaths."""
    wanted, dying = (ArchivingLane(redis, settings.redis_prefix, Plan("text", ())) for _ in range(2))
    wanted.reader, dying.reader = type(reader)(rounds=FEW), type(reader)(rounds=FEW)
    steady = await wanted.ask("t", "read it all")
    dying.deaths = [death for _ in range(10) for death in ((0, True), (1, True))]
    record = await dying.ask("t", "read it all")
    assert (record.outcome, steady.outcome, dying.deaths) == ("committed", "committed", [])
    made, wanted_edits = (
        [(edit.request_index, edit.entries_before, edit.entries_after) for edit in one.tally.edits]
        for one in (record, steady)
    )
    assert made == wanted_edits != []
    messages: Any = await dying.messages()
    others: Any = await wanted.messages()
    texts, wanted_texts = reader.texts_of(messages), reader.texts_of(others)
    assert (len(texts), texts[0], texts[-1]) == (len(wanted_texts), wanted_texts[0], wanted_texts[-1])


# A worker of another version comes after one that has died in the step that would archive. What its tasks were given
# stands: in a graph those that have finished are not run again.
NEVER = HistoryArchiveSettings(threshold_tokens=1_000_000)
FEW = 6
"""Pages enough for a checkpoint."""


@pytest.mark.parametrize("archives_first", [True, False])
async def test_a_graphs_tasks_are_all_given_one_history(redis: Redis, settings: Settings, archives_first: bool):
    steady = ArchivingLane(redis, settings.redis_prefix, Plan("text", ()), reader=AgentReader(rounds=FEW))
    asking = (await steady.ask("t", "read it all")).tally.edits[0].request_index
    lane = ArchivingLane(redis, settings.redis_prefix, Plan("text", ()), reader=AgentReader(rounds=FEW))
    # The request's superstep: before it, two for each that came before. Its first writes are the archive's note, where
    # it archives, and the answer.
    lane.deaths = [*[None] * (2 * (asking - 1)), (1 if archives_first else 0, True), None]
    first, then = (SETTINGS, NEVER) if archives_first else (NEVER, SETTINGS)
    lane.settings_of = lambda left: first if left else then
    record = await lane.ask("t", "read it all")
    assert lane.deaths == []
    assert record.tally.edits[0].request_index == (asking if archives_first else asking + 1)


def _large(framework: type[Reader], result: str, **options: Any) -> Any:
    """An agent that fetches, then reads back what it was not shown, and says what it was told last."""

    def step(texts: list[str], is_first: bool) -> tuple[str, dict[str, Any], str] | str:
        if is_first:
            return "fetch", {}, "c1"
        if "is stored as ar-" in texts[-1]:
            reference = texts[-1][texts[-1].index("ar-") :].partition(";")[0]
            return "read_archived", {"reference": reference, "offset": 100_000}, "c2"
        return texts[-1]

    def fetch() -> str:
        """Fetch."""
        return result

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        found = step(framework.texts_of(messages), len(messages) == 1)
        return ModelResponse([TextPart(found) if isinstance(found, str) else ToolCallPart(*found)])

    def answered(messages: list[BaseMessage]) -> AIMessage:
        found = step(framework.texts_of(messages), len(messages) == 1)
        if isinstance(found, str):
            return AIMessage(found)
        return AIMessage("", tool_calls=[dict(zip(("name", "args", "id"), found, strict=True))])

    if framework is PydanticReader:
        agent = Agent(FunctionModel(answer, model_name="fetcher"))
        agent.tool_plain(fetch)
        return PydanticAdapter(agent, **options)
    tools = [fetch, *LangChainAdapter.archive_tools()]
    return LangChainAdapter(create_agent(ScriptedModel(answer=answered), tools), **options)


@pytest.mark.parametrize("framework", [PydanticReader, AgentReader], ids=lambda kind: kind.__name__)
async def test_a_result_that_is_too_large_never_enters_history(
    bench: Bench, conversation_id: str, framework: type[Reader]
):
    """It fails the turn by its own name; archived, its beginning and its end are shown, and all of it can be read."""
    result = "".join(f"{n:09d}," for n in range(12_000))
    archive = HistoryArchiveSettings()
    agents = {
        "plain": _large(framework, result),
        "archived": _large(framework, result, history_archive=archive),
        "any": _large(framework, result, max_tool_result_bytes=None),
        "exact": _large(framework, "x" * 99_998),
        "over": _large(framework, "x" * 99_999),
        # What is read back is not measured again: it comes in parts.
        "small": _large(framework, result, history_archive=archive, max_tool_result_bytes=5_000),
    }
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    for name in ("plain", "over"):
        with pytest.raises(TurnFailed, match="max_tool_result_bytes is 100000") as failed:
            await conversation.ask(name, "go")
        assert failed.value.error_type == "ToolOutputTooLarge"
        assert "or set history_archive" in str(failed.value)
        assert await conversation.messages(name) == []
    assert (await conversation.ask("exact", "go")).output == "x" * 99_998
    assert (await conversation.ask("any", "go")).output == result
    stored = json.dumps(result)
    for name in ("archived", "small"):
        output = (await conversation.ask(name, "go")).output
        assert output.startswith(stored[100_000:120_000])
        assert "[Characters 100000 to 120000 of 120002. read_archived with offset=120000 goes on.]" in output
        shown = framework.texts_of(await conversation.messages(name))[2]
        assert len(shown) < 5_000
        assert "000000000," in shown
        assert "000011999," in shown
