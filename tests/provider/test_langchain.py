"""LangChain's models against the provider, on all three APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from tests.support.clients import langchain_anthropic, langchain_openai
from tests.support.provider import ProviderServer, answer, by_step, call, thinking


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model(api: str, server: ProviderServer) -> BaseChatModel:
    if api == "messages":
        return langchain_anthropic(server, "claude-opus-5-5", max_retries=0)
    return langchain_openai(server, "gpt-5", max_retries=0, use_responses_api=api == "responses", stream_usage=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_tool_loop_of_two_turns(server: ProviderServer, api: str, stream: bool):
    server.script = by_step(
        [
            answer(thinking("hm"), "Let me see.", call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})),
            "3 and 7",
        ],
        ["10"],
    )
    bound = model(api, server).bind_tools([add])

    async def ask(messages: list[Any]) -> AIMessage:
        if not stream:
            return await bound.ainvoke(messages)
        whole: Any = None
        async for chunk in bound.astream(messages):
            whole = chunk if whole is None else whole + chunk
        return whole

    messages: list[Any] = [HumanMessage("1+2 and 3+4?")]
    messages.append(await ask(messages))
    assert [called["args"] for called in messages[-1].tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    messages += [ToolMessage(str(add.invoke(c["args"])), tool_call_id=c["id"]) for c in messages[-1].tool_calls]
    messages.append(await ask(messages))
    assert messages[-1].text == "3 and 7"
    messages.append(HumanMessage("together?"))
    assert (await ask(messages)).text == "10"
    assert server.counters.refused == 0
    assert messages[-2].usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_model_has_no_connections_of_another_event_loop(api: str):
    """As tests have a loop each, and the system may give a port twice."""

    async def ask(port: int) -> int:
        async with ProviderServer(lambda request: "yes", port=port) as server:
            assert (await model(api, server).ainvoke("Well?")).text == "yes"
            return int(server.url.rpartition(":")[2])

    port = asyncio.run(ask(0))
    assert asyncio.run(ask(port)) == port
    assert asyncio.run(ask(0)) != port
