"""Agents of one framework hand work to agents of the other, in both directions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from laneway import Delegation, LangChainAdapter, RequestBudget
from laneway.errors import ConfigurationError

from tests.delegation.agents import Team, calls_of
from tests.delegation.test_delegation import children_of, dropped, running_below
from tests.langchain.graphs import ScriptedModel, said
from tests.support.bench import Bench

DELEGATES = {
    "reader": Delegation("reader", "reads"),
    "graph": Delegation("graph", "reads in a graph"),
    "kept": Delegation("graph", "remembers", keep=True),
}


def _hand_out(messages: list[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], HumanMessage):
        calls = [
            {"name": call.tool_name, "args": call.args_as_dict(), "id": call.tool_call_id, "type": "tool_call"}
            for call in calls_of(str(messages[-1].text))
        ]
        return AIMessage("", tool_calls=calls)
    last = next(index for index in reversed(range(len(messages))) if isinstance(messages[index], HumanMessage))
    results = [one for one in messages[last:] if isinstance(one, ToolMessage)]
    return said("; ".join(f"{one.status}: {one.text}" for one in results))


def lead() -> LangChainAdapter:
    model = ScriptedModel(answer=_hand_out)
    return LangChainAdapter(create_agent(model, tools=LangChainAdapter.delegate_tools(DELEGATES)), delegates=DELEGATES)


def graph() -> LangChainAdapter:
    def read(messages: list[BaseMessage]) -> AIMessage:
        asked = [str(one.text) for one in messages if isinstance(one, HumanMessage)]
        if "fail" in asked[-1]:
            raise ValueError("cannot read")
        return said(f"graph read {'+'.join(asked)}")

    return LangChainAdapter(create_agent(ScriptedModel(answer=read), tools=[]))


async def test_a_graph_hands_work_to_agents_of_both_frameworks(bench: Bench, conversation_id: str):
    team = Team(DELEGATES)
    client = await bench.serve(team.agents() | {"lead": lead(), "graph": graph()})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("lead", "reader: a | graph: b | graph: fail c | kept: d")
    output = (await turn.result()).output
    assert output.split("; ")[:3] == [
        "success: read a",
        "success: graph read b",
        "error: graph failed: ValueError: cannot read",
    ]
    child = (await children_of(client, turn))[3]
    again = await conversation.ask("lead", f'kept: {{"brief": "e", "child": "{child.kept}"}}')
    assert "graph read d+e" in again.output
    assert dict(team.read) == {"a": 1}
    running = await conversation.submit("lead", "graph: f | reader: wait g")
    await asyncio.wait_for(team.begun["wait g"].wait(), 30)
    assert await running.cancel() == "cancelled"
    assert sorted(await dropped(client, running)) == ["cancelled", "committed"]
    assert await running_below(client, running) == []
    assert team.cancelled == ["wait g"]


async def test_an_agent_of_pydantic_ai_hands_work_to_graphs_that_hand_it_on(bench: Bench, conversation_id: str):
    team = Team({"middle": Delegation("graphs", "hands on"), "graph": DELEGATES["graph"]})
    agents = team.agents()
    client = await bench.serve({"lead": agents["lead"], "reader": agents["reader"], "graphs": lead(), "graph": graph()})
    result = await client.conversation(conversation_id).ask("lead", "middle: reader: a | graph: b")
    assert result.output == "success: success: read a; success: graph read b"


def test_a_graph_without_its_delegates_tools_is_refused():
    with pytest.raises(ConfigurationError, match="no tool delegate_to_reader, delegate_to_graph"):
        LangChainAdapter(create_agent(ScriptedModel(answer=_hand_out), tools=[]), delegates=DELEGATES)


@pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])
async def test_a_refusal_says_how_deep_in_the_tree_it_was(bench: Bench, conversation_id: str, framework: str):
    """Of a budget that the delegation has, of the limit, and of what is consumed of it."""
    nothing = RequestBudget(request_limit=0)
    delegates = {"reader": Delegation("reader", "reads", budget=nothing)}
    team = Team(delegates)
    agents: dict[str, Any] = {
        **team.agents(),
        "reader": graph() if framework == "langchain" else team.agents()["reader"],
    }
    client = await bench.serve({name: one for name, one in agents.items() if name != "middle"})
    turn = await client.conversation(conversation_id).submit("lead", "reader: a")
    output = (await turn.result()).output
    assert output.startswith("failed: reader failed: BudgetExceeded")
    assert "request_limit is 0, 0 are consumed" in output
    assert "depth 1" in output
    assert team.read == {}
