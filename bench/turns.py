"""What a turn costs: its time beside the least that Temporal allows, turns a second, and what it leaves behind.

The floor is a workflow update that runs one activity and returns what that returns, on the same servers and with the
same worker settings: a turn cannot be faster than that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from redis.asyncio import Redis
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from laneway import Laneway, LanewayClient, LocalStack, PydanticAdapter, Settings
from laneway.connect import connect_redis, connect_temporal
from laneway.history.lanes import LaneKey
from laneway.worker import workflow_runner

from bench.echo import EchoWorkflow, echo
from bench.report import Report, Table, median_ms, spread_ms

LANES = 50
FLOOR = "the floor: an update with one activity"
_REPLY = ("All work and no play makes a dull reply. " * 52)[:2048]
_PROMPT = "Say what you know of this.".ljust(40, ".")


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart(_REPLY)], usage=RequestUsage(input_tokens=500, output_tokens=500))


def app() -> Laneway:
    return Laneway(agents={"agent": PydanticAdapter(Agent(FunctionModel(_answer, model_name="bench")))})


@asynccontextmanager
async def floor(settings: Settings) -> AsyncIterator[WorkflowHandle[EchoWorkflow, None]]:
    """A running echo workflow, with a worker set up as Laneway's are."""
    temporal: Client = await connect_temporal(settings)
    queue = f"floor-{uuid4().hex[:8]}"
    interval = timedelta(seconds=0.5)
    worker = Worker(
        temporal,
        task_queue=queue,
        workflows=[EchoWorkflow],
        activities=[echo],
        workflow_runner=workflow_runner(),
        max_concurrent_activities=200,
        max_heartbeat_throttle_interval=interval,
        default_heartbeat_throttle_interval=interval,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    async with worker:
        handle = await temporal.start_workflow(EchoWorkflow.run, id=queue, task_queue=queue)
        yield handle
        await handle.signal(EchoWorkflow.end)


async def latency(client: LanewayClient, echoed: WorkflowHandle[EchoWorkflow, None], turns: int) -> Table:
    conversation = client.conversation(uuid4().hex)
    taken: dict[str, list[float]] = {"a turn": [], FLOOR: []}

    async def turn() -> None:
        await conversation.ask("agent", _PROMPT)

    async def update() -> None:
        await echoed.execute_update(EchoWorkflow.ask, _REPLY)

    both = list(zip(taken, (turn, update), strict=True))
    for number in range(turns + 3):
        for name, run in both if number % 2 else reversed(both):
            begun = time.perf_counter()
            await run()
            if number >= 3:
                taken[name].append(time.perf_counter() - begun)
    rows = [[name, median_ms(seconds), spread_ms(seconds)] for name, seconds in taken.items()]
    ratio = median_ms(taken["a turn"]) / median_ms(taken[FLOOR])
    note = f"{turns} of each, one after the other, in alternating order. A turn takes {ratio:.2f} times the floor."
    return Table("One turn with one model request, 2 KB reply", ["", "median ms", "10 % to 90 % ms"], rows, note)


async def throughput(client: LanewayClient, turns: int) -> Table:
    async def talk() -> None:
        conversation = client.conversation(uuid4().hex)
        for _ in range(turns):
            await conversation.ask("agent", _PROMPT)

    rates: list[float] = []
    for _ in range(3):
        begun = time.perf_counter()
        await asyncio.gather(*(talk() for _ in range(LANES)))
        rates.append(LANES * turns / (time.perf_counter() - begun))
    rates.sort()
    row = [f"{LANES} lanes at once", round(rates[1], 1), f"{rates[0]:.1f} to {rates[-1]:.1f}"]
    note = (
        f"{turns} turns a lane, three times; one worker and the client in this one process, which both servers share."
    )
    return Table("Turns a second", ["", "median", "least to most"], [row], note)


async def footprint(client: LanewayClient, redis: Redis, turns: int) -> list[Table]:
    conversation = client.conversation(uuid4().hex)
    lane = conversation.lane("agent")
    await conversation.ask("agent", _PROMPT)
    before = await written(client, lane)
    for _ in range(10):
        await conversation.ask("agent", _PROMPT)
    after = await written(client, lane)
    temporal = Table(
        "What a turn writes to Temporal's history",
        ["", "a turn"],
        [["events", (after[0] - before[0]) / 10], ["bytes", round((after[1] - before[1]) / 10)]],
        "The mean of ten turns of a running lane; bytes as the history is serialized.",
    )
    for _ in range(turns - 11):
        await conversation.ask("agent", _PROMPT)
    head = await client.store.head(lane)
    own = sum(len(entry.payload) for entry in await client.store.history(lane, head.checkpoint))
    names = client.store.names(lane)
    kinds = {"history": 0, "turn records": 0, "stream of events": 0, "other": 0}
    async for key in redis.scan_iter(f"{names.base}*", count=1000):
        kind = _kind(key.decode(), names.base)
        kinds[kind] += await redis.memory_usage(key, samples=0) or 0
    rows = [[name, size, f"×{size / own:.2f}"] for name, size in [*kinds.items(), ("all", sum(kinds.values()))]]
    stored = Table(
        f"What {turns} turns leave in Redis",
        ["", "bytes", "of the messages' own"],
        [["the messages' own, as Pydantic AI's JSON", own, "×1.00"], *rows],
        "Memory of the lane's keys, the server's overhead included. The stream holds the newest events only, and turn "
        "records expire.",
    )
    return [temporal, stored]


def _kind(key: str, base: str) -> str:
    name = key.removeprefix(base)
    if name.startswith("epoch:"):
        return "history"
    if name.startswith("turn"):
        return "turn records"
    return "stream of events" if name.startswith("event") else "other"


async def written(client: LanewayClient, lane: LaneKey) -> tuple[int, int]:
    """Events and bytes of a lane's workflow history."""
    history = await client.temporal.get_workflow_handle(lane.workflow_id).fetch_history()
    return len(history.events), sum(event.ByteSize() for event in history.events)


async def measure(smoke: bool) -> Report:
    async with LocalStack(None) as stack:
        settings = stack.settings
        redis = await connect_redis(settings)
        try:
            async with app().worker(settings), app().client(settings) as client, floor(settings) as echoed:
                tables = [
                    await latency(client, echoed, 20 if smoke else 200),
                    await throughput(client, 2 if smoke else 20),
                    *await footprint(client, redis, 30 if smoke else 500),
                ]
        finally:
            await redis.aclose()
    return Report("turns", smoke, tables)
