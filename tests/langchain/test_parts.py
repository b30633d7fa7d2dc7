"""Large parts of a graph's state are stored once, by themselves: for as long as they stay the same, and no longer."""

from __future__ import annotations

import base64
import json
import operator
import random
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from redis.asyncio import Redis

from laneway import LangChainAdapter, Settings
from laneway.activities.langchain_state import StateCodec
from laneway.history.lanes import LaneKey
from laneway.langgraph_serde import strict_serializer

from tests.support.stepped_lane import SteppedLane

SIZE = 1_000_000


def file_of(name: str, size: int = SIZE) -> str:
    """Text that no compression makes shorter than three quarters of it."""
    return base64.b85encode(random.Random(name).randbytes(size * 4 // 5)).decode()


class State(MessagesState):
    file: str
    notes: Annotated[list[str], operator.add]


def graph() -> StateGraph[Any, Any, Any, Any]:
    """Three steps a turn: `take` does as the prompt says, `write <name>`, `drop` or `fail`, with the file."""

    def take(state: State) -> dict[str, Any]:
        what, _, name = str(state["messages"][-1].text).partition(" ")
        match what:
            case "write":
                return {"file": file_of(name)}
            case "drop":
                return {"file": ""}
            case _:
                return {"notes": [what]}

    def look(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state.get('file', ''))} bytes")]}

    def end(state: State) -> dict[str, Any]:
        if state["messages"][-2].text == "fail" or state["messages"][-2].text.startswith("write and fail"):
            raise RuntimeError("no luck")
        return {}

    built: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    built.add_sequence([take, look, end])
    built.add_edge(START, "take")
    return built


@dataclass
class FileLane(SteppedLane):
    """A lane of that graph."""

    def adapter(self) -> LangChainAdapter:
        return LangChainAdapter(graph())

    async def state(self) -> dict[str, Any]:
        head = await self.store.whole_head(self.key)
        return dict(self.adapter().state_of(await self.messages(), head.extras, head.parts))

    async def parts(self) -> list[str]:
        """The names of the parts that are stored; they are those that the head names."""
        head = await self.store.whole_head(self.key)
        assert sorted(head.parts) == sorted(head.part_names)
        return sorted(head.parts)


@pytest.fixture
def lane(redis: Redis, settings: Settings) -> FileLane:
    return FileLane(redis, settings.redis_prefix, None)


async def _received(redis: Redis) -> int:
    stats: Any = await redis.info("stats")
    return int(stats["total_net_input_bytes"])


async def test_a_file_that_stays_the_same_is_written_once(lane: FileLane, redis: Redis, settings: Settings):
    """Its bytes come to Redis in the step that makes it, and in no step or commit after that."""
    # A script that the server does not know yet is sent a second time, with all that it is given.
    await FileLane(redis, settings.redis_prefix, None).ask("t0", "write another")
    before = await _received(redis)
    assert (await lane.ask("t0", "write a")).outcome == "committed"
    first = await _received(redis) - before
    assert SIZE * 0.75 < first < 0.95 * SIZE
    for number in range(1, 6):
        await lane.ask(f"t{number}", "go on")
    assert await _received(redis) - before - first < 0.1 * SIZE
    assert (await lane.state())["file"] == file_of("a")
    assert (await lane.state())["notes"] == ["go"] * 5
    names = lane.store.names(lane.key)
    assert await redis.memory_usage(names.head, samples=0) < 10_000
    assert await redis.memory_usage(names.parts, samples=0) < 1.3 * SIZE


async def test_what_the_head_no_longer_names_is_dropped_by_the_commit(lane: FileLane, redis: Redis):
    await lane.ask("t0", "write a")
    first = await lane.parts()
    assert (await lane.ask("t1", "fail")).outcome == "failed"
    assert await lane.parts() == first
    await lane.ask("t2", "write b")
    second = await lane.parts()
    assert len(first) == len(second) == 1
    assert first != second
    assert (await lane.state())["file"] == file_of("b")
    await lane.ask("t3", "drop")
    assert await lane.parts() == []
    assert not await redis.exists(lane.store.names(lane.key).parts)


async def test_a_failed_turn_leaves_no_part(lane: FileLane, redis: Redis):
    await lane.ask("t0", "write a")
    before = await lane.parts()
    assert (await lane.ask("t1", "write and fail")).outcome == "failed"
    assert await lane.parts() == before
    assert (await lane.state())["file"] == file_of("a")
    names = lane.store.names(lane.key)
    assert not await redis.exists(names.turn("t1"))


# The steps' writes: the file is kept, what `take` wrote is journaled, the step is staged; then two more steps.
WRITES = [3, 2, 2]
PLACES = [(step, write, after) for step, n in enumerate(WRITES) for write in range(n) for after in (False, True)]


async def test_wherever_a_worker_dies_the_file_is_there_once(redis: Redis, settings: Settings):
    for step, write, after in PLACES:
        lane = FileLane(redis, settings.redis_prefix, None)
        await lane.ask("t0", "write a")
        lane.writes, lane.deaths = [], [*[None] * step, (write, after)]
        assert (await lane.ask("t1", "write b")).outcome == "committed"
        assert (lane.deaths, lane.survivors) == ([], 0), (step, write, after)
        assert (await lane.state())["file"] == file_of("b"), (step, write, after)
        assert len(await lane.parts()) == 1
        await redis.delete(lane.store.names(lane.key).parts)
    steady = FileLane(redis, settings.redis_prefix, None)
    await steady.ask("t0", "write b")
    assert steady.writes == WRITES, "the places above are no longer all that there are"


async def test_a_part_that_is_lost_is_never_left_out_in_silence(lane: FileLane, redis: Redis):
    await lane.ask("t0", "write a")
    await redis.delete(lane.store.names(lane.key).parts)
    record = await lane.ask("t1", "go on")
    assert (record.outcome, record.error_type) == ("failed", "CheckpointLost")
    assert "is missing from Redis" in (record.error_message or "")


async def test_state_that_was_stored_in_one_piece_is_read_and_taken_apart_by_the_next_commit(
    lane: FileLane, redis: Redis
):
    """As earlier versions stored it, with all parts in the head."""
    await lane.ask("t0", "write a")
    head = await lane.store.whole_head(lane.key)
    serde, messages = strict_serializer(None, ()), await lane.messages()
    blob = b64decode(str(head.extras["graph"]))
    spaces = StateCodec(serde, messages, parts=head.parts).load_spaces(blob)
    whole = StateCodec(serde, messages).dump_spaces(spaces).blob
    extras = {**head.extras, "graph": b64encode(whole).decode()}
    del extras["parts"]
    names = lane.store.names(lane.key)
    await redis.hset(names.head, "x", json.dumps(extras))
    await redis.delete(names.parts)
    assert (await lane.state())["file"] == file_of("a")
    assert await lane.parts() == []
    await lane.ask("t1", "go on")
    assert (await lane.state())["file"] == file_of("a")
    assert len(await lane.parts()) == 1


async def test_parts_go_where_a_history_goes(lane: FileLane, redis: Redis):
    """A copy of a lane has its own; a history that is dropped takes them with it."""
    await lane.ask("t0", "write a")
    other = LaneKey(f"{lane.conversation}-2", lane.key.agent, lane.key.contract)
    await lane.store.fork(lane.key, other)
    copied = await lane.store.whole_head(other)
    assert copied == await lane.store.whole_head(lane.key)
    await lane.store.drop_history(lane.key)
    assert not await redis.exists(lane.store.names(lane.key).parts)
    assert await lane.store.whole_head(other) == copied
