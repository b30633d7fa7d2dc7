"""Scopes and turns without history, on real servers."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import FunctionModel
from redis.asyncio import Redis
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import ActivityEnvironment

from laneway import HistoryProcessorContext, Laneway, PydanticAdapter, Settings
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput
from laneway.errors import ConfigurationError, TurnFailed, UnsupportedCapability
from laneway.history.cache import HistoryCache
from laneway.history.store import HistoryStore
from laneway.scopes import call_here

from examples.plain_adapter import PlainAdapter
from tests.editing.agents import Recorder, texts_of
from tests.scopes import named
from tests.support.bench import Bench


async def keys_of(redis: Redis, settings: Settings) -> list[str]:
    return sorted([key.decode() async for key in redis.scan_iter(f"{settings.redis_prefix}:*")])


async def test_outside_of_a_scope_nothing_is_kept(bench: Bench, redis: Redis):
    """Neither in Redis nor as an open workflow, whether the turn is committed or fails."""
    agent = Recorder(fails={"plugh"})
    client = await bench.serve({"agent": agent.adapter()})
    assert (await client.ask("agent", "look")).output == "re: look"
    assert (await client.ask("agent", "again")).output == "re: again"
    with pytest.raises(TurnFailed, match="cannot answer"):
        await client.ask("agent", "plugh")
    assert agent.sent == [["look"], ["look", "look()", "seen"], ["again"], ["plugh"]]
    left = await keys_of(redis, bench.settings)
    assert len(left) == 3
    for key in left:
        # That a turn of this id has ended, and nothing of what it said; for ten minutes.
        assert key.endswith(":turns")
        assert 0 < await redis.ttl(key) <= 600
        said = b"".join((await redis.hgetall(key)).values())
        assert b"look" not in said
        assert b"again" not in said
        assert b"plugh" not in said
    assert await client.lanes() == []


async def test_a_turn_without_history_is_as_durable_as_any_and_its_workflow_ends_with_it(bench: Bench, redis: Redis):
    """Its worker stops in the middle; another goes on. What it leaves goes by itself where nobody asks for it."""
    agent = Recorder()
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        reached.set()
        await goes_on.wait()
        return "seen"

    plain = Agent(FunctionModel(agent._model, model_name="recorder"))
    plain.tool_plain(name="look")(hold)
    adapter = PydanticAdapter(plain)
    first = await bench.worker({"agent": adapter})
    client = await bench.client({"agent": adapter})
    turn = await client.current.submit("agent", "look", turn_id="mine")
    await reached.wait()
    await first.aclose()
    goes_on.set()
    await bench.worker({"agent": adapter})
    assert (await turn.result()).output == "re: look"
    assert len(agent.sent) == 2
    again = await client.current.submit("agent", "look", turn_id="mine")
    assert (await again.result()).output == "re: look"
    assert len(agent.sent) == 2
    for key in await keys_of(redis, bench.settings):
        assert 0 < await redis.ttl(key) <= 600, key
    handle = client.temporal.get_workflow_handle(client.workflow_id(turn.lane))
    await handle.result()
    assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_calls_inside_a_scope_use_its_history_and_a_nested_one_can_stand_apart(bench: Bench):
    agent = Recorder()
    client = await bench.serve({"agent": agent.adapter()})
    async with client.history() as conversation:
        await client.ask("agent", "one")
        async with client.history(enabled=False):
            await client.ask("agent", "aside")
        async with client.history(processor=named.keep_one):
            await client.ask("agent", "two")
        await client.ask("agent", "three")
    assert agent.sent == [
        ["one"],
        ["aside"],
        ["one", "re: one", "two"],
        ["one", "re: one", "two", "re: two", "three"],
    ]
    other = await bench.client({"agent": agent.adapter()})
    async with other.history(conversation.conversation_id, processor=named.keep_none):
        await other.ask("agent", "four")
    assert agent.sent[-1] == ["four"]
    assert texts_of(await conversation.messages("agent")) == ["four", "re: four"]


async def test_concurrent_scopes_on_one_adapter_each_edit_their_own(bench: Bench):
    agent = Recorder()
    client = await bench.serve({"agent": agent.adapter(named.keep_none)})

    async def talk(name: str, processor: object) -> list[str]:
        async with client.history(processor=processor) as conversation:  # type: ignore[arg-type]
            for n in range(3):
                await client.ask("agent", f"{name}{n}")
            return texts_of(await conversation.messages("agent"))

    kept = await asyncio.gather(
        talk("all", named.keep_all),
        talk("one", named.keep_one),
        talk("off", None),
        talk("chain", [named.keep_all, named.keep_none]),
    )
    assert [len(messages) for messages in kept] == [6, 4, 6, 2]
    for name, texts in zip(["all", "one", "off", "chain"], kept, strict=True):
        assert all(text.removeprefix("re: ").startswith(name) for text in texts)


async def test_what_cannot_go_to_a_worker_is_refused_before_anything_is_written(bench: Bench, redis: Redis):
    asked: list[object] = []

    async def answer(messages: object) -> dict[str, str]:
        asked.append(messages)
        return {"role": "assistant", "text": "fine"}

    client = await bench.client({"agent": Recorder().adapter(), "plain": PlainAdapter(answer, name="plain")})
    async with client.history(processor=lambda ctx: ctx.messages):
        with pytest.raises(ConfigurationError, match="is a lambda"):
            await client.ask("agent", "one")
    async with client.history(processor_condition=named.always):
        with pytest.raises(ConfigurationError, match="has no history_processor"):
            await client.ask("agent", "one")
    async with client.history(processor=named.keep_one):
        with pytest.raises(UnsupportedCapability, match="adapter 'plain' has: none"):
            await client.ask("plain", "one")
    assert await keys_of(redis, bench.settings) == []
    assert asked == []


async def test_a_running_turn_keeps_the_processor_that_it_captured(bench: Bench, conversation_id: str):
    """The name is given to another between two steps of a turn; the next turn gets that one."""
    agent = Recorder()
    ran: list[str] = []
    app = Laneway(agents={"agent": agent.adapter()})

    def trim(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
        ran.append("first")
        app.register("trim", other)
        return ctx.messages

    def other(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
        ran.append("second")
        return ctx.messages

    app.processor(trim)
    async with (
        app.worker(bench.settings),
        app.client(bench.settings) as client,
        client.history(conversation_id, processor="trim"),
    ):
        await client.ask("agent", "look look")
        await client.ask("agent", "next")
    assert ran == ["first", "first", "first", "second"]


async def test_a_worker_that_has_it_not_fails_the_turn_and_says_so(
    bench: Bench, store: HistoryStore, conversation_id: str
):
    """After it has waited for another worker that may have it, which here it has."""
    agent = Recorder()
    app = Laneway(agents={"agent": agent.adapter()})
    app.register("trim", named.keep_one)
    async with app.client(bench.settings) as client:
        lane = client.conversation(conversation_id).lane("agent")
        async with client.history(conversation_id, processor="trim"):
            options = call_here(client, client.agents, "agent").options
    await store.inputs.put(lane, "turn", digest="d", prompt=b'"hello"', options=options.to_json())
    steps = Steps(store, Agents({"agent": agent.adapter()}), cache=HistoryCache(0))
    request = StepInput(lane.conversation, lane.agent, lane.contract, "turn", "d")
    assert (await ActivityEnvironment().run(steps.step, request)).s == "failed"
    record = await store.record(lane, "turn")
    assert record is not None
    assert record.error_type == "UnknownReference"
    assert "'trim' is not registered with this worker's app" in str(record.error_message)
    assert agent.sent == []
