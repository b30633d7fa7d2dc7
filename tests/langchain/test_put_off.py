"""What the only task of a superstep wrote is kept by the step's own write, or before whatever might lose it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError

from laneway import LangChainAdapter, Settings
from laneway.activities.wire import StepInput, StepOutcome
from laneway.errors import ServiceUnavailable
from laneway.history.link import StoreLink
from laneway.history.open_turns import OpenTurns

from tests.support.stepped_lane import Died, DyingStore, SteppedLane


@dataclass
class OneNode(SteppedLane):
    """A lane of a graph with one node, which counts how often it ran.

    Attributes:
        plan: the graph's state.
        config: the adapter's.
        ran: how often the node did.
        noted: what it writes beside its message.
    """

    config: dict[str, Any] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)
    noted: str = "more"

    def adapter(self) -> LangChainAdapter:
        def node(state: Any) -> dict[str, Any]:
            self.ran["node"] += 1
            return {"messages": [AIMessage("yes")], "noted": self.noted}

        graph: StateGraph[Any, Any, Any, Any] = StateGraph(self.plan)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        return LangChainAdapter(graph, config=self.config)


class Plain(MessagesState):
    noted: str


def state_reduced_by(reduce: Callable[[str, str], str]) -> Any:
    reduced: Any = TypedDict(
        "Reduced", {"messages": Annotated[list[Any], add_messages], "noted": Annotated[str, reduce]}
    )
    return reduced


def joined(before: str, more: str) -> str:
    return before + more


class Checked(BaseModel):
    messages: Annotated[list[Any], add_messages]
    noted: str = ""


class Listener(BaseCallbackHandler):
    """Some code of the user's that hears when the graph has ended."""


@pytest.mark.parametrize(
    ("state", "config", "writes"),
    [
        (Plain, {}, 1),
        (state_reduced_by(joined), {}, 2),
        (Checked, {}, 2),
        (Plain, {"callbacks": [Listener()]}, 2),
    ],
    ids=["nothing follows", "a reducer follows", "a schema is checked", "a callback follows"],
)
async def test_it_is_kept_by_itself_only_where_code_of_the_users_follows(
    redis: Redis, settings: Settings, state: Any, config: dict[str, Any], writes: int
):
    lane = OneNode(redis, settings.redis_prefix, state, config=config)
    assert (await lane.ask("t0", "go")).outcome == "committed"
    assert lane.writes == [writes]
    assert [message.text for message in await lane.messages()] == ["go", "yes"]


async def test_a_worker_that_dies_in_a_reducer_has_kept_the_answer(redis: Redis, settings: Settings):
    deaths = [Died()]

    def dies(before: str, more: str) -> str:
        if more and deaths:
            raise deaths.pop()
        return before + more

    lane = OneNode(redis, settings.redis_prefix, state_reduced_by(dies))
    assert (await lane.ask("t0", "go")).outcome == "committed"
    assert deaths == []
    assert lane.ran["node"] == 1
    assert len(await lane.messages()) == 2


class _AwayOnce(OpenTurns):
    """Redis does not answer when the first part of a turn is to be kept."""

    def __init__(self, given: OpenTurns, link: StoreLink, losses: list[Exception]) -> None:
        super().__init__(link)
        self._given, self._losses = given, losses

    async def keep(self, *args: Any, **kwargs: Any) -> Any:
        if self._losses:
            raise self._losses.pop()
        return await self._given.keep(*args, **kwargs)


@dataclass
class Losing(OneNode):
    """A lane whose worker meets a Redis that is away once, after the node has run."""

    losses: list[Exception] = field(default_factory=lambda: [ServiceUnavailable("Redis does not answer")])

    def store_of_attempt(self, left: int | None, *, after: bool) -> DyingStore:
        store = super().store_of_attempt(left, after=after)
        store.turns = _AwayOnce(store.turns, store.link, self.losses)
        return store

    async def _attempt(self, request: StepInput, attempt: int) -> StepOutcome | None:
        try:
            return await super()._attempt(request, attempt)
        except ApplicationError as error:
            if error.type != ServiceUnavailable.code:
                raise
            return None  # Temporal tries it again


async def test_a_step_that_fails_after_it_keeps_it_first(redis: Redis, settings: Settings):
    """The next attempt goes on from what the node wrote; a node that asks a model does not ask it again."""
    lane = Losing(redis, settings.redis_prefix, Plain, noted=Random(1).randbytes(4000).hex())
    assert (await lane.ask("t0", "go")).outcome == "committed"
    assert lane.losses == []
    assert lane.ran["node"] == 1
    assert [message.text for message in await lane.messages()] == ["go", "yes"]
