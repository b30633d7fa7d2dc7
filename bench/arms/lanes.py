"""Laneway: a worker and a client in one process, as the other arms have them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import FunctionModel
from redis.asyncio import Redis

from laneway import EventKind, Laneway, LanewayClient, PydanticAdapter, Settings
from laneway.activities.adapter import Adapter
from laneway.connect import connect_redis
from laneway.history.lanes import LaneKey
from laneway.history.processors import create_sliding_window_processor

from bench.arms.base import Place
from bench.arms.temporal_history import TurnWrites, writes_of
from bench.script import PROMPT, TOOLS, answer, answer_with_tools, graph_builder, long_conversation, stream_answer

__all__ = ["Probe", "graph_lanes", "pydantic_lanes"]

COLD = "cold"


@dataclass
class Probe:
    """What the agents' code notes while it runs.

    Attributes:
        spans: when each tool call began and ended.
        sent_at: when the provider last began to send an answer.
    """

    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    sent_at: float = 0.0

    def sent(self) -> None:
        """The provider sends the first text of an answer."""
        self.sent_at = time.perf_counter()

    def agent_with_tools(self, pause_seconds: float) -> Agent[None, str]:
        """An agent with two tools, each of which takes so long."""
        agent: Agent[None, str] = Agent(FunctionModel(answer_with_tools(), model_name="bench"))
        for name in TOOLS:

            async def tool(what: str) -> str:
                begun = time.perf_counter()
                if pause_seconds:
                    await asyncio.sleep(pause_seconds)
                self.spans.append((begun, time.perf_counter()))
                return f"{what}: nothing of note"

            agent.tool_plain(name=name)(tool)
        return agent

    def agents(self) -> dict[str, Adapter[Any]]:
        """The agents of Pydantic AI, by name."""
        return {
            "agent": PydanticAdapter(Agent(FunctionModel(answer(), model_name="bench"))),
            "tools": PydanticAdapter(self.agent_with_tools(0)),
            "short": PydanticAdapter(
                Agent(FunctionModel(answer(), model_name="bench")),
                history_processor=create_sliding_window_processor(trigger=("messages", 40), keep=("messages", 20)),
            ),
            "slow_tools": PydanticAdapter(self.agent_with_tools(0.05)),
            "stream": PydanticAdapter(
                Agent(FunctionModel(stream_function=stream_answer(self.sent), model_name="bench"))
            ),
        }


class Lanes:
    """Laneway's arm.

    Args:
        client: talks to the lanes.
        cold: talks to lanes whose worker keeps no history in memory; None where the arm has no such worker.
        redis: to ask the server what it holds.
        probe: what the agents note.
    """

    def __init__(self, client: LanewayClient, cold: LanewayClient | None, redis: Redis, probe: Probe) -> None:
        self._client, self._cold = client, cold
        self._redis: Any = redis
        self._probe = probe

    async def turn(self, lane: str) -> None:
        await self._client.conversation(lane).ask("agent", PROMPT)

    async def tool_turn(self, lane: str) -> None:
        await self._client.conversation(lane).ask("tools", PROMPT)

    async def short_turn(self, lane: str) -> None:
        """A turn whose history a processor keeps between 20 and 40 messages."""
        await self._client.conversation(lane).ask("short", PROMPT)

    async def overlap(self, lane: str) -> bool:
        """Whether the two tools of a turn, which take 50 ms each, ran at the same time."""
        self._probe.spans.clear()
        await self._client.conversation(lane).ask("slow_tools", PROMPT)
        (one, two) = self._probe.spans
        return max(one[0], two[0]) < min(one[1], two[1])

    async def first_delta(self, lane: str) -> float:
        """How long after the provider sent its first text the client had it, in seconds."""
        turn = await self._client.conversation(lane).submit("stream", PROMPT)
        heard = 0.0
        async for event in turn.events():
            if event.kind is EventKind.TEXT_DELTA and not heard:
                heard = time.perf_counter()
        return heard - self._probe.sent_at

    # What it leaves behind --------------------------------------------------------------------------------------------

    async def writes(self, lane: str, agent: str = "agent") -> list[TurnWrites]:
        """What each turn wrote to Temporal's history, in order, over all runs of the lane's workflow."""
        return await writes_of(self._client.temporal, self._client.workflow_id(self._lane(lane, agent)))

    async def stored(self, lane: str, agent: str = "agent") -> dict[str, int]:
        """The messages' own bytes; and what Redis' memory holds for the lane, by kind."""
        key = self._lane(lane, agent)
        store = self._client.store
        head = await store.head(key)
        own = sum([len(entry.payload) for entry in await store.history(key, head.checkpoint)])
        sizes = {"own": own, "history": 0, "turn records": 0, "stream of events": 0, "other": 0}
        base = store.names(key).base
        async for name in self._redis.scan_iter(f"{base}*", count=1000):
            kind = _kind(name.decode().removeprefix(base))
            sizes[kind] += await self._redis.memory_usage(name, samples=0) or 0
        return sizes | {"all": sum(sizes.values()) - own}

    def _lane(self, lane: str, agent: str) -> LaneKey:
        return self._client.conversation(lane).lane(agent)

    # Beside the framework itself --------------------------------------------------------------------------------------

    async def _run_alone(self, messages: list[ModelMessage]) -> float:
        adapter: Any = self._client.agents["agent"]
        begun = time.perf_counter()
        await adapter.agent.run(PROMPT, message_history=list(messages))
        return time.perf_counter() - begun

    async def grow(self, lane: str, messages: int, size_bytes: int) -> None:
        """Open a lane, and the cold worker's of the same name, with a long history."""
        history = long_conversation(messages, size_bytes)
        for client in (self._client, self._cold):
            if client is not None:
                await client.conversation(_of(lane, client is self._cold)).import_messages("agent", history)

    async def beside_framework(self, lanes: list[str], count: int) -> list[list[tuple[float, float]]]:
        """A turn and a plain run on each lane in turn, `count` times over: the seconds of each pair, by lane.

        The worker has the histories in memory. What is done one right after the other is done by the same machine: its
        pace changes within minutes by more than what is looked for.
        """
        messages = [await self._client.conversation(lane).messages("agent") for lane in lanes]
        pairs: list[list[tuple[float, float]]] = [[] for _ in lanes]
        for _ in range(count):
            for lane, history, found in zip(lanes, messages, pairs, strict=True):
                begun = time.perf_counter()
                await self.turn(lane)
                took = time.perf_counter() - begun
                found.append((took, await self._run_alone(history)))
        return pairs

    async def cold_turn(self, lane: str) -> dict[str, float]:
        """A turn whose worker has to read the whole history: its time, and how often the list was read."""
        assert self._cold is not None
        before = await self._reads()
        begun = time.perf_counter()
        await self._cold.conversation(_of(lane, True)).ask("agent", PROMPT)
        took = time.perf_counter() - begun
        return {"seconds": took, "reads": await self._reads() - before}

    async def decode(self, lane: str) -> float:
        """How long it takes to decode the lane's messages, and nothing else."""
        key = self._lane(lane, "agent")
        head = await self._client.store.head(key)
        payloads = [entry.payload for entry in await self._client.store.history(key, head.checkpoint)]
        adapter = self._client.agents["agent"]
        begun = time.perf_counter()
        decoded = [adapter.decode(payload) for payload in payloads]
        took = time.perf_counter() - begun
        assert len(decoded) == head.checkpoint.length
        return took

    async def _reads(self) -> int:
        stats = await self._redis.info("commandstats")
        return stats.get("cmdstat_lrange", {}).get("calls", 0)


def _of(lane: str, is_cold: bool) -> str:
    return f"{lane}-{COLD}" if is_cold else lane


def _kind(name: str) -> str:
    if name.startswith("epoch:"):
        return "history"
    if name.startswith("turn"):
        return "turn records"
    return "stream of events" if name.startswith("event") else "other"


@asynccontextmanager
async def _lanes(place: Place, agents: Mapping[str, Adapter[Any]], probe: Probe, *, cold: bool) -> AsyncIterator[Lanes]:
    async with AsyncExitStack() as stack:
        redis = await connect_redis(place.settings)
        stack.push_async_callback(redis.aclose)

        async def serve(settings: Settings) -> LanewayClient:
            app = Laneway(agents=agents)
            await stack.enter_async_context(app.worker(settings))
            return await stack.enter_async_context(app.client(settings))

        client = await serve(place.settings)
        bare = {"task_queue": f"{place.settings.task_queue}-{COLD}", "history_cache_bytes": 0}
        other = await serve(place.settings.model_copy(update=bare)) if cold else None
        yield Lanes(client, other, redis, probe)


@asynccontextmanager
async def pydantic_lanes(place: Place) -> AsyncIterator[Lanes]:
    """Lanes of Pydantic AI agents."""
    probe = Probe()
    async with _lanes(place, probe.agents(), probe, cold=True) as arm:
        yield arm


@asynccontextmanager
async def graph_lanes(place: Place) -> AsyncIterator[Lanes]:
    """Lanes of a LangGraph graph."""
    from laneway import LangChainAdapter

    agents: dict[str, Adapter[Any]] = {"agent": LangChainAdapter(graph_builder())}
    async with _lanes(place, agents, Probe(), cold=False) as arm:
        yield arm
