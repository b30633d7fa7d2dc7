"""What is refused where an adapter is made: a graph that cannot read its archives, and settings of another type."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent

from laneway import GraphProfile, HistoryArchiveSettings, LangChainAdapter, PydanticAdapter
from laneway.errors import ConfigurationError

from tests.langchain.graphs import ScriptedModel, said

ARCHIVE = HistoryArchiveSettings()


def graph(*tools: Any) -> Any:
    return create_agent(ScriptedModel(answer=lambda messages: said("fine")), list(tools))


@tool("read_archived")
def another(reference: str) -> str:
    """Another tool of that name."""
    return reference


def test_a_graph_needs_the_tool_that_reads_its_archives():
    """By itself and under each profile; one of that name is not enough. With it, and no settings, nothing is asked."""
    for made in (graph(), graph(another)):
        with pytest.raises(ConfigurationError, match=r"no tool read_archived.*\*LangChainAdapter.archive_tools\(\)"):
            LangChainAdapter(made, history_archive=ARCHIVE)
    (own,) = LangChainAdapter.archive_tools()
    LangChainAdapter(graph(own), history_archive=ARCHIVE)
    LangChainAdapter(graph(own))

    def without(profile: GraphProfile) -> Any:
        return graph()

    with pytest.raises(ConfigurationError, match="no tool read_archived"):
        LangChainAdapter(without, history_archive=ARCHIVE)


def test_a_graph_needs_a_node_before_which_it_is_archived():
    builder: Any = StateGraph(MessagesState)
    builder.add_node("echo", lambda state: {"messages": [AIMessage("echo")]})
    builder.add_edge(START, "echo")
    with pytest.raises(ConfigurationError, match="nothing would be archived: name the nodes that ask one with model_n"):
        LangChainAdapter(builder, history_archive=ARCHIVE)


def test_the_tool_is_part_of_the_contract_and_tells_what_it_takes():
    with_tool = LangChainAdapter(graph(*LangChainAdapter.archive_tools()), history_archive=ARCHIVE)
    assert with_tool.contract() != LangChainAdapter(graph()).contract()
    (own,) = LangChainAdapter.archive_tools()
    assert set(own.args) == {"reference", "offset"}
    assert "ar-0123456789abcdef" in str(own.args)


async def test_outside_of_a_lane_the_tool_knows_no_archive():
    (own,) = LangChainAdapter.archive_tools()
    said_so = "There is no archive 'ar-1' in this conversation."
    assert str(await own.ainvoke({"reference": "ar-1"})).startswith(said_so)
    assert str(own.invoke({"reference": "ar-1", "offset": 3})).startswith(said_so)


WRONG: dict[str, tuple[object, str]] = {
    "history": (6, r"history is 6 \(int\): give TextWindow\(6\)"),
    "history_archive": ({"threshold_tokens": 9}, r"\(dict\): give HistoryArchiveSettings\(…\), or None for no archi"),
    "budget": (1000, r"give RequestBudget\(…\), or None for no limit"),
    "retry_policy": (3, r"give RetryPolicy\(…\)"),
    "hooks": ([], r"give Hooks\(…\)"),
    "delegates": (["reader"], r"give a dict from names to Delegation\(…\)"),
    "max_tool_result_bytes": ("1 MB", "give a nonnegative int, or None for results of any size"),
    "history_processor": ([], "give a function from HistoryProcessorContext to messages"),
    "history_processor_condition": (True, "give a function from HistoryProcessorState to bool"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("adapter", ["PydanticAdapter", "LangChainAdapter"])
def test_an_argument_of_another_type_is_refused_where_it_is_given(adapter: str, name: str):
    """With what to give in its place, in a turn of nobody's."""
    value, told = WRONG[name]
    options: Any = {name: value}
    make: Any = PydanticAdapter if adapter == "PydanticAdapter" else LangChainAdapter
    with pytest.raises(ConfigurationError, match=told) as refused:
        make(Agent("test") if make is PydanticAdapter else graph(), **options)
    assert str(refused.value).startswith(f"{adapter}: {name} is {value!r}")
