"""Tool results of graphs that are too large for history."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from laneway import LangChainAdapter
from laneway.errors import TurnFailed

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench


async def test_a_result_that_is_too_large_never_enters_history(bench: Bench, conversation_id: str):
    """It fails the turn, by the tool's name, and leaves nothing; below the limit and without one it is kept."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        return called(("read", {"n": int(last.text)}, "c")) if isinstance(last, HumanMessage) else said("read it")

    def read(n: int) -> str:
        """Read."""
        return "x" * n

    graph: Any = create_agent(ScriptedModel(answer=answer), [read])
    agents: Any = {
        "bounded": LangChainAdapter(graph, max_tool_result_bytes=100),
        "plain": LangChainAdapter(graph),
        "free": LangChainAdapter(graph, max_tool_result_bytes=None),
    }
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("bounded", "98")).output == "read it"
    for agent, size in (("bounded", 99), ("plain", 100_000)):
        with pytest.raises(TurnFailed, match=f"tool 'read' returned {size + 2} bytes") as failed:
            await conversation.ask(agent, str(size))
        assert failed.value.error_type == "ToolOutputTooLarge"
    assert len(await conversation.messages("bounded")) == 4
    assert (await conversation.ask("free", "100000")).output == "read it"
