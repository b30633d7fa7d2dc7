"""What cannot be done is said in one clear error, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.output import ToolOutput
from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from laneway import Conversation, Laneway, LangChainAdapter, LocalStack, PydanticAdapter, Settings
from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import QueuedTurn, StepInput
from laneway.connect import connect_redis
from laneway.errors import (
    CheckpointCorrupt,
    CheckpointLost,
    ConfigurationError,
    InvalidInput,
    TurnConflict,
    TurnFailed,
    UnknownAgent,
)
from laneway.history.cache import HistoryCache
from laneway.history.store import HistoryStore

from tests.langchain.graphs import ScriptedModel
from tests.support.bench import Bench


def echo() -> Agent[None, str]:
    """Says how many messages it was sent."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(f"{len(messages)} messages")])

    return Agent(FunctionModel(answer))


def echo_graph() -> StateGraph[Any, Any, Any, Any]:
    """The same as a graph."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        return AIMessage(f"{len(messages)} messages")

    model = ScriptedModel(answer=answer)

    async def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    return graph


@pytest.fixture(params=["pydantic_ai", "langchain"])
def echoing(request: pytest.FixtureRequest) -> Adapter[Any]:
    """An adapter of each framework: what uses it holds for both."""
    return PydanticAdapter(echo()) if request.param == "pydantic_ai" else LangChainAdapter(echo_graph())


async def keys(redis: Redis, settings: Settings) -> list[bytes]:
    return sorted([key async for key in redis.scan_iter(match=f"{settings.redis_prefix}:*", count=1000)])


# Refused by the client ------------------------------------------------------------------------------------------------

PROMPTS: list[tuple[Any, str]] = [
    ("", "the prompt is empty"),
    (" \n", "the prompt is empty"),
    ([], "the prompt is empty"),
    (["", "  "], "the prompt is empty"),
    (None, "the prompt is a NoneType"),
    (7, "the prompt is a int"),
    (b"bytes", "the prompt is a bytes"),
    ({"text": "x"}, "the prompt is a dict"),
    ([object()], "Pydantic AI does not take this prompt"),
    ("lone \ud800 surrogate", "Pydantic AI does not take this prompt"),
]


@pytest.mark.parametrize(("prompt", "message"), PROMPTS, ids=[message[:20] + repr(p)[:9] for p, message in PROMPTS])
async def test_a_prompt_that_is_none_is_refused(
    bench: Bench, redis: Redis, settings: Settings, prompt: Any, message: str
):
    client = await bench.client({"agent": PydanticAdapter(echo())})
    with pytest.raises(InvalidInput, match=message):
        await client.conversation("c").submit("agent", prompt)
    assert await keys(redis, settings) == []


async def test_a_prompt_over_the_limit_is_refused(
    bench: Bench, redis: Redis, settings: Settings, conversation_id: str, echoing: Adapter[Any]
):
    """The limit is of bytes as they are stored; what is at the limit passes."""
    room = 100 - len(echoing.encode_prompt("x")) + 1
    client = await bench.serve({"agent": echoing}, max_prompt_bytes=100)
    conversation = client.conversation(conversation_id)
    with pytest.raises(InvalidInput, match="has 101 bytes, and at most 100 are allowed.*LANEWAY_MAX_PROMPT_BYTES"):
        await conversation.submit("agent", "x" * (room + 1))
    assert await keys(redis, settings) == []
    assert (await conversation.ask("agent", "x" * room)).output == "1 messages"


NAMES = ["", " x", "x ", "a\nb", "a\0b", "x" * 201, "lone \ud800"]


@pytest.mark.parametrize("name", NAMES, ids=[repr(name)[:12] for name in NAMES])
async def test_an_id_that_cannot_be_one_is_refused(bench: Bench, redis: Redis, settings: Settings, name: str):
    client = await bench.client({"agent": PydanticAdapter(echo())})
    with pytest.raises(InvalidInput, match="the conversation id"):
        client.conversation(name)
    with pytest.raises(InvalidInput, match="the turn id"):
        await client.conversation("c").submit("agent", "hello", turn_id=name)
    with pytest.raises(InvalidInput, match="the turn id"):
        client.conversation("c").turn("agent", name)
    assert await keys(redis, settings) == []


@pytest.mark.parametrize("name", [None, 7, b"c"], ids=repr)
async def test_an_id_that_is_no_text_is_refused(bench: Bench, name: Any):
    client = await bench.client({"agent": PydanticAdapter(echo())})
    with pytest.raises(InvalidInput, match="must be a str"):
        client.conversation(name)


async def test_an_unknown_agent_is_refused_by_name(bench: Bench, redis: Redis, settings: Settings):
    client = await bench.client({"agent": PydanticAdapter(echo()), "other": PydanticAdapter(echo())})
    with pytest.raises(UnknownAgent, match="no agent 'nobody' is registered here; registered: 'agent', 'other'"):
        await client.conversation("c").submit("nobody", "hello")
    assert await keys(redis, settings) == []


TIMEOUTS: list[Any] = [0, -1, 0.0, float("inf"), float("nan"), 1e12, timedelta.max, True, "60"]


@pytest.mark.parametrize("timeout", TIMEOUTS, ids=repr)
async def test_a_timeout_that_cannot_be_one_is_refused(bench: Bench, redis: Redis, settings: Settings, timeout: Any):
    """Before the lane's workflow sees it, whose timer could not be made."""
    client = await bench.client({"agent": PydanticAdapter(echo())})
    with pytest.raises(InvalidInput, match="the timeout is"):
        await client.conversation("c").submit("agent", "hello", timeout=timeout)
    assert await keys(redis, settings) == []


async def test_a_way_to_be_busy_that_does_not_exist_is_refused(bench: Bench, redis: Redis, settings: Settings):
    client = await bench.client({"agent": PydanticAdapter(echo())})
    wrong: Any = "wait"
    with pytest.raises(InvalidInput, match="when_busy is 'wait': give one of 'enqueue', 'reject'"):
        await client.conversation("c").submit("agent", "hello", when_busy=wrong)
    assert await keys(redis, settings) == []


async def test_the_longest_names_in_any_script_are_taken(bench: Bench, conversation_id: str):
    """Of four bytes a character, where Temporal's databases hold ids of 255; two that begin alike stay apart."""
    agent, turn = "\U0001f600" * 200, "\U0001f680" * 200
    names = [(conversation_id + "\U0001f600" * 200)[:199] + last for last in "ab"]
    client = await bench.serve({agent: PydanticAdapter(echo())})
    for name in names:
        assert (await client.conversation(name).ask(agent, "hello", turn_id=turn)).output == "1 messages"
    ids = {client.workflow_id(client.conversation(name).lane(agent)) for name in names}
    assert len(ids) == 2
    assert all(len(one.encode()) <= 255 for one in ids)


async def test_a_turn_id_with_another_prompt_is_refused(bench: Bench, conversation_id: str, echoing: Adapter[Any]):
    """The turn that has the id keeps it, and its result."""
    client = await bench.serve({"agent": echoing})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "hello", turn_id="one")
    with pytest.raises(TurnConflict, match="turn id 'one' was used with another prompt"):
        await conversation.submit("agent", "goodbye", turn_id="one")
    assert (await conversation.ask("agent", "hello", turn_id="one")).output == "1 messages"
    assert len(await conversation.messages("agent")) == 2


# Refused when it is set up --------------------------------------------------------------------------------------------


def test_an_application_without_agents_is_refused():
    with pytest.raises(ConfigurationError, match="at least one agent"):
        Laneway(agents={})


def test_an_agent_that_is_not_wrapped_is_refused():
    wrong: Any = {"agent": echo()}
    with pytest.raises(ConfigurationError, match=r"agent 'agent' is a Agent.*PydanticAdapter\(agent\)"):
        Laneway(agents=wrong)


@pytest.mark.parametrize("name", ["", " x", "a\nb"], ids=repr)
def test_an_agents_name_that_cannot_be_one_is_refused(name: str):
    with pytest.raises(ConfigurationError, match="an agent's name"):
        Laneway(agents={name: PydanticAdapter(echo())})


def test_what_is_no_agent_is_refused():
    wrong: Any = "openai:gpt-5"
    with pytest.raises(ConfigurationError, match=r"takes a pydantic_ai.Agent, not str \('openai:gpt-5'\)"):
        PydanticAdapter(wrong)


def test_an_agent_without_a_model_is_refused():
    with pytest.raises(ConfigurationError, match="has no model"):
        PydanticAdapter(Agent(name="modelless"))


def test_dependencies_given_in_two_ways_are_refused():
    agent: Agent[int, str] = Agent(FunctionModel(lambda m, i: ModelResponse([])), deps_type=int)
    with pytest.raises(ConfigurationError, match="`deps` or `deps_factory`"):
        PydanticAdapter(agent, deps=1, deps_factory=lambda conversation: 2)


# Found when it is done ------------------------------------------------------------------------------------------------


class Unstorable:
    """Has no JSON form."""


async def test_an_output_that_cannot_be_stored_fails_the_turn(bench: Bench, conversation_id: str):
    """By name, with what to do; nothing of the turn is kept, and the lane goes on."""

    def make(what: str) -> Any:
        return Unstorable() if what == "bad" else what

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        what = "bad" if len(messages) == 1 and "bad" in str(messages[-1]) else "good"
        return ModelResponse([ToolCallPart("make", {"what": what}, "c")])

    agent: Agent[None, Any] = Agent(FunctionModel(answer), output_type=ToolOutput(make, name="make"))
    client = await bench.serve({"agent": PydanticAdapter(agent)})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match="the output, a Unstorable, cannot be stored") as failed:
        await conversation.ask("agent", "bad")
    assert failed.value.error_type == "SerializationFailed"
    assert await conversation.messages("agent") == []
    assert (await conversation.ask("agent", "fine")).output == "good"


@pytest.mark.parametrize("value", [Unstorable(), {"deep": [Unstorable()]}, "lone \ud800"], ids=["bare", "deep", "text"])
async def test_a_tool_result_that_cannot_be_stored_fails_the_turn(bench: Bench, conversation_id: str, value: Any):
    """By the tool's name; nothing of the turn is kept."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("odd", {}, "c")])

    agent: Agent[None, str] = Agent(FunctionModel(answer))
    agent.tool_plain(name="odd")(lambda: value)
    client = await bench.serve({"agent": PydanticAdapter(agent)})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnFailed, match="tool 'odd' returned what cannot be stored") as failed:
        await conversation.ask("agent", "go")
    assert failed.value.error_type == "SerializationFailed"
    assert await conversation.messages("agent") == []


# Redis, missing or altered --------------------------------------------------------------------------------------------

TURNS = 3
# What is about the store alone is tried with one framework: a worker that is gone costs its successor five seconds.
of_pydantic_ai = pytest.mark.parametrize("echoing", ["pydantic_ai"], indirect=True)


@pytest.fixture
def lane_of(bench: Bench, conversation_id: str, echoing: Adapter[Any]) -> Callable[..., Any]:
    """Makes a conversation of three turns whose worker is gone, and starts a new one that knows nothing of it."""

    async def make() -> Conversation:
        agents = {"agent": echoing}
        worker = await bench.worker(agents)
        client = await bench.client(agents)
        conversation = client.conversation(conversation_id)
        for number in range(TURNS):
            await conversation.ask("agent", f"turn {number}", turn_id=f"t{number}")
        await worker.aclose()
        await bench.worker(agents)
        return conversation

    return make


@pytest.mark.parametrize(
    ("echoing", "index", "at"),
    [*(("pydantic_ai", index, at) for index in (0, 3, 5) for at in ("digest", "payload")), ("langchain", 3, "payload")],
    indirect=["echoing"],
)
async def test_an_altered_entry_is_named(
    lane_of: Callable[..., Any], redis: Redis, store: HistoryStore, index: int, at: str
):
    """A cold worker finds the one byte that was changed, sends nothing, and says which entry it is in."""
    conversation = await lane_of()
    epoch = store.names(conversation.lane("agent")).epoch(0)
    entry = bytearray(await redis.lindex(epoch, index))
    entry[3 if at == "digest" else len(entry) - 5] ^= 1
    await redis.lset(epoch, index, bytes(entry))
    with pytest.raises(TurnFailed, match=f"entry {index} of epoch 0") as failed:
        await conversation.ask("agent", "more")
    assert failed.value.error_type == "CheckpointCorrupt"
    with pytest.raises(CheckpointCorrupt) as corrupt:
        await conversation.messages("agent")
    assert (corrupt.value.epoch, corrupt.value.index) == (0, index)
    assert (await store.head(conversation.lane("agent"))).version == TURNS


@of_pydantic_ai
async def test_an_entry_of_another_history_is_found_out(lane_of: Callable[..., Any], redis: Redis, store: HistoryStore):
    """Whole and valid in itself, but not what came next: the chain says so."""
    conversation = await lane_of()
    epoch = store.names(conversation.lane("agent")).epoch(0)
    await redis.lset(epoch, 2, await redis.lindex(epoch, 0))
    with pytest.raises(TurnFailed, match="entry 2 of epoch 0"):
        await conversation.ask("agent", "more")


async def test_a_lost_history_is_never_a_shorter_one(lane_of: Callable[..., Any], redis: Redis, store: HistoryStore):
    """The epoch's key is gone: nothing is sent, the head stays."""
    conversation = await lane_of()
    lane = conversation.lane("agent")
    await redis.delete(store.names(lane).epoch(0))
    with pytest.raises(TurnFailed, match="committed history is missing from Redis") as failed:
        await conversation.ask("agent", "more")
    assert failed.value.error_type == "CheckpointLost"
    with pytest.raises(CheckpointLost):
        await conversation.messages("agent")
    assert (await store.head(lane)).version == TURNS


@of_pydantic_ai
async def test_lost_entries_at_the_end_are_found_out(lane_of: Callable[..., Any], redis: Redis, store: HistoryStore):
    conversation = await lane_of()
    await redis.rpop(store.names(conversation.lane("agent")).epoch(0))
    with pytest.raises(TurnFailed, match="has 5 entries of 6") as failed:
        await conversation.ask("agent", "more")
    assert failed.value.error_type == "CheckpointLost"


@of_pydantic_ai
async def test_a_lost_head_is_found_out_by_a_live_lane(lane_of: Callable[..., Any], redis: Redis, store: HistoryStore):
    """The lane's workflow knows how many turns were committed; an empty head would be a conversation begun anew."""
    conversation = await lane_of()
    lane = conversation.lane("agent")
    await redis.delete(store.names(lane).head)
    with pytest.raises(TurnFailed, match="head in Redis is at version 0, and version 3 was committed") as failed:
        await conversation.ask("agent", "more")
    assert failed.value.error_type == "CheckpointLost"
    assert (await store.head(lane)).version == 0


async def test_an_emptied_redis_is_found_out_by_a_live_lane(
    own_stack: Callable[[], AbstractAsyncContextManager[LocalStack]], conversation_id: str
):
    """FLUSHALL between two turns: the next one fails, and says what to do."""
    app = Laneway(agents={"agent": PydanticAdapter(echo())})
    async with own_stack() as stack, app.worker(stack.settings), app.client(stack.settings) as client:
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        redis = await connect_redis(stack.settings)
        await redis.flushall()
        with pytest.raises(TurnFailed, match="history is missing.*start a new conversation") as failed:
            await conversation.ask("agent", "two")
        assert failed.value.error_type == "CheckpointLost"
        assert (await client.conversation(f"{conversation_id}-new").ask("agent", "one")).output == "1 messages"
        await redis.aclose()


async def test_a_prompt_that_is_lost_before_its_turn_fails_the_turn(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str, echoing: Adapter[Any]
):
    """Submitted while no worker ran its step, gone from Redis by the time one does."""
    agents = {"agent": echoing}
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    await store.inputs.put(lane, "gone", digest="d", prompt=b'"hello"')
    await redis.delete(store.names(lane).turn("gone"))

    steps = Steps(store, Agents(agents), cache=HistoryCache(0))
    request = StepInput(lane.conversation, lane.agent, lane.contract, "gone", "d")
    assert (await ActivityEnvironment().run(steps.step, request)).s == "failed"
    record = await store.record(lane, "gone")
    assert record is not None
    assert record.error_type == "CheckpointLost"


async def test_a_stored_form_that_no_version_reads_fails_the_turn_in_the_end(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str, echoing: Adapter[Any]
):
    """It is tried on other workers for a while, and not for ever."""
    client = await bench.client({"agent": echoing})
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    names = store.names(lane)
    await store.inputs.put(lane, "turn", digest="d", prompt=b"hello")
    await redis.hset(names.turn("turn"), "m0", b"written by nobody")
    await bench.worker({"agent": echoing})
    await client.submissions.update(lane, QueuedTurn("turn", "d"))
    record = await conversation.turn("agent", "turn").record()
    assert (record.outcome, record.error_type) == ("failed", "ValueError")
