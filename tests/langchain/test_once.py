"""Tools of graphs that must not run twice do not, whatever dies; the model is told, and the record says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import interrupt
from redis.asyncio import Redis

from laneway import LangChainAdapter, Settings
from laneway.errors import ConfigurationError

from tests.langchain.graphs import ScriptedModel, called, said
from tests.langchain.two_ways import Lane
from tests.support.bench import Bench


@dataclass
class Paying(Lane):
    """A lane of an agent that pays once and says what came of it.

    Attributes:
        marked: what the tool says of itself.
        sync: whether it is a plain function.
        paid: what was paid.
    """

    marked: dict[str, Any] = field(default_factory=lambda: {"metadata": {"retry": "never"}})
    sync: bool = False
    paid: list[int] = field(default_factory=list)

    def adapter(self) -> LangChainAdapter:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            results = [one for one in messages if isinstance(one, ToolMessage)]
            if not results:
                return called(("pay", {"amount": 5}, "p"), ("pay", {"amount": 6}, "q"))
            return said(" | ".join(f"{one.status} {str(one.content)[:26]}" for one in results))

        def pay(amount: int) -> str:
            """Pays."""
            self.paid.append(amount)
            return f"paid {amount}"

        async def apay(amount: int) -> str:
            return pay(amount)

        tool = StructuredTool.from_function(pay, coroutine=None if self.sync else apay, **self.marked)
        return LangChainAdapter(create_agent(ScriptedModel(answer=answer), tools=[tool]))


UNKNOWN = "error The outcome of this call o"
# The attempt at the tools' step dies at which of its writes; what is paid, and what the model is told.
DEATHS: list[tuple[str, tuple[int, bool] | None, list[int], str]] = [
    ("nowhere", None, [5, 6], "success paid 5 | success paid 6"),
    ("before the first begins", (0, False), [5, 6], "success paid 5 | success paid 6"),
    ("after the last is kept", (5, True), [5, 6], "success paid 5 | success paid 6"),
]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize(("place", "death", "paid", "told"), DEATHS, ids=[one[0] for one in DEATHS])
async def test_a_call_is_made_once(
    redis: Redis,
    settings: Settings,
    sync: bool,
    place: str,
    death: tuple[int, bool] | None,
    paid: list[int],
    told: str,
):
    lane = Paying(redis, settings.redis_prefix, Any, deaths=[None, death], sync=sync)
    ended = await lane.turn(0)
    assert sorted(lane.paid) == paid
    assert ended.messages[-1].text == told


@pytest.mark.parametrize("marked", [{"metadata": {"retry": "never"}}, {"extras": {"retry": "never"}}, {}])
async def test_a_call_that_was_interrupted_is_not_made_again(redis: Redis, settings: Settings, marked: dict[str, Any]):
    """The worker dies before what came of the first is kept: without the mark it is made again."""
    write = 1 if marked else 0  # both calls begin in one write, and end in one
    lane = Paying(redis, settings.redis_prefix, Any, deaths=[None, (write, False)], marked=marked)
    ended = await lane.turn(0)
    record = await lane.store.record(lane.key, "t0")
    assert record is not None
    if marked:
        assert sorted(lane.paid) == [5, 6]
        assert ended.messages[-1].text.startswith(UNKNOWN)
        assert ("pay", "p", '{"amount":5}') in [(one.tool, one.call_id, one.arguments) for one in record.uncertain]
    else:
        assert sorted(lane.paid) == [5, 5, 6, 6]
        assert record.uncertain == ()


async def test_a_call_that_asks_by_itself_goes_on_with_the_answer(bench: Bench, conversation_id: str):
    ran: list[str] = []

    async def pay(amount: int) -> str:
        """Pays."""
        ran.append(f"asks {amount}")
        answer = interrupt({"pay": amount})
        ran.append(f"pays {amount}")
        return str(answer)

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], HumanMessage):
            return called(("pay", {"amount": 5}, "p"))
        return said(str(messages[-1].content))

    tool = StructuredTool.from_function(coroutine=pay, metadata={"retry": "never"})
    adapter = LangChainAdapter(create_agent(ScriptedModel(answer=answer), tools=[tool]))
    conversation = (await bench.serve({"agent": adapter})).conversation(conversation_id)
    turn = await conversation.submit("agent", "go")
    async for event in turn.events():
        if event.kind == "request.pending":
            await turn.answer(str(event.data["request"]), result="yes")
    assert (await turn.result()).output == "yes"
    assert ran == ["asks 5", "asks 5", "pays 5"]
    assert (await turn.record()).uncertain == ()


def test_another_word_in_its_place_is_refused():
    def answer(messages: list[BaseMessage]) -> AIMessage:
        return said("nothing")

    def pay(amount: int) -> str:
        """Pays."""
        return "paid"

    tool = StructuredTool.from_function(pay, metadata={"retry": "once"})
    with pytest.raises(ConfigurationError, match="give 'never'"):
        LangChainAdapter(create_agent(ScriptedModel(answer=answer), tools=[tool]))
