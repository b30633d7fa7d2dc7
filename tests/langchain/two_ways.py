"""The two ways of running a plan: with LangGraph's own saver, and through Laneway's steps with nothing kept between."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from laneway import LangChainAdapter

from tests.langchain.plans import GraphPlan, Log, build, log_of, prompt_of
from tests.support.stepped_lane import SteppedLane


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
class Lane(SteppedLane):
    """A lane of a plan's graph."""

    plan: GraphPlan

    def adapter(self) -> LangChainAdapter:
        return LangChainAdapter(build(self.plan), config={"recursion_limit": self.plan.limit})

    async def run(self) -> list[Ended]:
        """Run all turns: of one each step by a worker of its own, of the next all that leads to a model request."""
        return [await self.turn(turn) for turn in range(self.plan.turns)]

    async def turn(self, turn: int) -> Ended:
        here = Ended()
        self.legs = turn % 2 == 1
        token = log_of.set(here.log)
        try:
            record = await self.ask(f"t{turn}", prompt_of(turn))
        finally:
            log_of.reset(token)
        here.error = record.error_type
        adapter, head = self.adapter(), await self.store.whole_head(self.key)
        here.messages = await self.messages()
        here.state = dict(adapter.state_of(here.messages, head.extras, head.parts))
        return here
