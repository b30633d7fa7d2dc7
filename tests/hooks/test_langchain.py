"""The same hooks around turns of a LangChain agent."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from laneway import Deny, Edit, Hooks, Laneway, LangChainAdapter, TurnDenied
from laneway.activities.hooks import AfterModelRequest, BeforeModelRequest
from laneway.errors import UnsupportedCapability

from tests.hooks import told
from tests.langchain.graphs import ScriptedModel
from tests.support.bench import Bench


def agent_of(sent: list[list[str]], hooks: Hooks) -> LangChainAdapter:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        sent.append([str(message.text) for message in messages])
        start = max(i for i, one in enumerate(messages) if isinstance(one, HumanMessage))
        if "look" in str(messages[start].text) and start == len(messages) - 1:
            call = {"name": "look", "args": {}, "id": f"call-{len(messages)}", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(f"re: {messages[start].text}")

    def look() -> str:
        """Look."""
        return "seen"

    return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [look]), hooks=hooks)


async def test_hooks_edit_prompts_and_are_told_of_model_requests(bench: Bench, conversation_id: str):
    sent: list[list[str]] = []
    seen: list[Any] = []
    hooks = Hooks(
        user_prompt_submit=lambda event: Edit(f"{event.prompt}!"),
        before_model_request=seen.append,
        after_model_request=seen.append,
    )
    client = await bench.serve({"agent": agent_of(sent, hooks)})
    result = await client.conversation(conversation_id).ask("agent", "look")
    assert result.output == "re: look!"
    assert sent == [["look!"], ["look!", "", "seen"]]
    assert [type(event) for event in seen] == [BeforeModelRequest, AfterModelRequest] * 2
    assert [event.request_index for event in seen] == [1, 1, 2, 2]
    assert [(event.text, event.tools) for event in seen if isinstance(event, AfterModelRequest)] == [
        ("", ("look",)),
        ("re: look!", ()),
    ]


async def test_a_prompt_and_a_model_request_can_be_denied(bench: Bench, conversation_id: str):
    sent: list[list[str]] = []
    hooks = Hooks(before_model_request=lambda event: Deny("enough") if event.request_index == 2 else None)
    client = await bench.serve({"agent": agent_of(sent, hooks)})
    conversation = client.conversation(conversation_id)
    with pytest.raises(TurnDenied, match="enough"):
        await conversation.ask("agent", "look")
    async with client.scope(hooks=Hooks(user_prompt_submit=told.no_secrets)):
        with pytest.raises(TurnDenied, match="it has a secret"):
            await conversation.ask("agent", "the secret")
    assert (await conversation.ask("agent", "hello")).output == "re: hello"
    assert sent == [["look"], ["hello"]]


def test_hooks_around_tools_are_refused():
    with pytest.raises(UnsupportedCapability, match="tool_hooks"):
        Laneway(agents={"agent": agent_of([], Hooks(before_tool=told.note))})
