"""The two ways of running a plan: with LangGraph's own saver, and through Laneway's steps with nothing kept between."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from laneway import LangChainAdapter
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput
from laneway.history.cache import HistoryCache
from laneway.history.lanes import LaneKey
from laneway.history.records import TurnRecord
from laneway.history.store import HistoryStore

from tests.adapters.two_ways import Died, DyingStore
from tests.langchain.plans import GraphPlan, Log, build, log_of, prompt_of


@dataclass
class Ended:
    """How a turn ended.

    Attributes:
        error: the type of what it failed with; None where it did not.
        messages, state: the conversation's messages and the graph's state after it.
        log: what the graph's nodes were given.
    """

    error: str | None = None
    messages: list[BaseMessage] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    log: Log = field(default_factory=list)


NOT_KEPT = frozenset({"scratch"})
"""Channels that live for one run."""


async def run_plainly(plan: GraphPlan) -> list[Ended]:
    """Run a plan's turns with `ainvoke`. What a failed turn leaves behind is taken back, as a lane does it."""
    saver = InMemorySaver()
    graph = build(plan).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "c"}, "recursion_limit": plan.limit}
    ended: list[Ended] = []
    for turn in range(plan.turns):
        here = Ended()
        ended.append(here)
        before = copy.deepcopy((dict(saver.storage), dict(saver.writes), dict(saver.blobs)))
        token = log_of.set(here.log)
        try:
            # With an id, as a lane gives it one: a delta channel is rebuilt from its writes, and names removals by id.
            prompt = HumanMessage(prompt_of(turn), id=uuid4().hex)
            await graph.ainvoke({"messages": [prompt]}, config, durability="sync")
        except Exception as error:
            here.error = type(error).__name__
            for held, kept in zip((saver.storage, saver.writes, saver.blobs), before, strict=True):
                held.clear()
                held.update(kept)  # type: ignore[arg-type]
        finally:
            log_of.reset(token)
        values = (await graph.aget_state(config)).values
        here.messages = values.get("messages", [])
        here.state = {name: value for name, value in values.items() if name not in NOT_KEPT}
    return ended


@dataclass
class Lane:
    """A lane of a plan's graph, whose steps are taken one by one by workers that know nothing of each other.

    Attributes:
        deaths: for each attempt at a step, before or after which of its writes it dies; None where it does not.
    """

    redis: Redis
    prefix: str
    plan: GraphPlan
    conversation: str = field(default_factory=lambda: uuid4().hex)
    deaths: list[tuple[int, bool] | None] = field(default_factory=list)
    version: int = 0

    def adapter(self) -> LangChainAdapter:
        return LangChainAdapter(build(self.plan), config={"recursion_limit": self.plan.limit})

    @property
    def key(self) -> LaneKey:
        return Agents({"agent": self.adapter()}).lane(self.conversation, "agent")

    @property
    def store(self) -> HistoryStore:
        return HistoryStore(self.redis, prefix=self.prefix)

    async def run(self) -> list[Ended]:
        """Run all turns, each step by a worker of its own."""
        return [await self.turn(turn) for turn in range(self.plan.turns)]

    async def turn(self, turn: int) -> Ended:
        here = Ended()
        token = log_of.set(here.log)
        try:
            record = await self._take(f"t{turn}", self.adapter().encode_prompt(prompt_of(turn)))
        finally:
            log_of.reset(token)
        if record.outcome == "committed":
            self.version += 1
        here.error = record.error_type
        adapter, head = self.adapter(), await self.store.head(self.key)
        entries = await self.store.history(self.key, head.checkpoint)
        here.messages = [adapter.decode(entry.payload) for entry in entries]
        here.state = dict(adapter.state_of(here.messages, head.extras))
        return here

    async def _take(self, turn_id: str, prompt: bytes) -> TurnRecord:
        key = self.key
        await self.store.put_input(key, turn_id, digest="d", prompt=prompt)
        step, attempt = 0, 1
        while True:
            request = StepInput(key.conversation, key.agent, key.contract, turn_id, "d", step, self.version)
            outcome = await self._attempt(request, attempt)
            if outcome is None:
                attempt += 1
                continue
            if outcome != "next":
                break
            step, attempt = step + 1, 1
        record = await self.store.record(key, turn_id)
        assert record is not None
        return record

    async def _attempt(self, request: StepInput, attempt: int) -> str | None:
        left, after = (self.deaths.pop(0) if self.deaths else None) or (None, False)
        store = DyingStore(self.redis, prefix=self.prefix, left=left, after=after)
        agents = Agents({"agent": self.adapter()})
        environment = ActivityEnvironment()
        info = ActivityEnvironment.default_info()
        fields = {name: getattr(info, name) for name in info.__dataclass_fields__}
        environment.info = info.__class__(**{**fields, "attempt": attempt})
        steps = Steps(store, agents, cache=HistoryCache(10_000_000))
        try:
            return (await environment.run(steps.step, request)).s
        except Died:
            return None
        finally:
            await agents.close()
