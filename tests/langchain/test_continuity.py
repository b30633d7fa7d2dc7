"""What a lane sends for a graph in place of what is stored, and what of a provider's own memory it goes on from."""

from __future__ import annotations

import warnings
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from laneway import HistoryProcessorContext, LangChainAdapter

from tests.editing.langchain_steps import anthropic_model, openai_model
from tests.support.bench import Bench
from tests.support.provider import ProviderRequest, ProviderServer, answer, call


@tool
def look() -> str:
    """Look."""
    return "seen"


def always_the_same_id(request: ProviderRequest) -> Any:
    """Calls the tool once a turn, under one and the same id, as some models do."""
    return answer(call("look", {}, id="call_0")) if request.step == 0 else answer(f"re: {request.prompt}")


def plainly(request: ProviderRequest) -> Any:
    return answer(f"re: {request.prompt}")


def adapter(graph: Any, processor: Any = None) -> LangChainAdapter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LangChainAdapter(graph, history_processor=processor)


async def test_a_response_is_continued_until_an_edit_and_from_the_answer_after_it_on(
    bench: Bench, conversation_id: str
):
    def last_alone(ctx: HistoryProcessorContext[BaseMessage]) -> list[BaseMessage]:
        return ctx.keep_recent_groups(0) if "edit" in str(ctx.messages[-1].content) else ctx.messages

    async with ProviderServer(plainly) as server:
        model = openai_model(server, use_responses_api=True, use_previous_response_id=True)
        client = await bench.serve({"agent": adapter(create_agent(model), last_alone)})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "edit three", "four"):
            await conversation.ask("agent", prompt)
        bodies = [record.body for record in server.requests]
        assert all(record.refusal is None for record in server.requests)
        assert ["previous_response_id" in body for body in bodies] == [False, True, False, True]
        assert [len(body["input"]) for body in bodies] == [1, 1, 1, 1]
        stored = await conversation.messages("agent")
        assert [m.text for m in stored if isinstance(m, HumanMessage)] == ["edit three", "four"]


async def test_a_graph_that_forgets_ends_what_the_provider_remembers(bench: Bench, conversation_id: str):
    """Nobody edited: a node has removed messages. What the provider holds is no longer the history."""
    async with ProviderServer(plainly) as server:
        model = openai_model(server, use_responses_api=True, use_previous_response_id=True)

        def trim(state: MessagesState) -> dict[str, Any]:
            return {"messages": [RemoveMessage(id=str(message.id)) for message in state["messages"][:-2]]}

        async def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_sequence([trim, ask])
        graph.add_edge(START, "trim")
        client = await bench.serve({"agent": adapter(graph)})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two", "three"):
            await conversation.ask("agent", prompt)
        bodies = [record.body for record in server.requests]
        assert ["previous_response_id" in body for body in bodies] == [False, False, False]
        assert [len(body["input"]) for body in bodies] == [1, 2, 2]
        assert all(record.refusal is None for record in server.requests)


async def test_a_response_of_a_history_made_elsewhere_is_not_continued(bench: Bench, conversation_id: str):
    """Nobody knows whether what the provider holds under it is that history. Its successors are continued."""
    answered = AIMessage("two", response_metadata={"id": "resp_elsewhere", "model_provider": "openai"})
    async with ProviderServer(plainly) as server:
        model = openai_model(server, use_responses_api=True, use_previous_response_id=True)
        client = await bench.serve({"agent": adapter(create_agent(model))})
        conversation = client.conversation(conversation_id)
        await conversation.import_messages("agent", [HumanMessage("one"), answered])
        for prompt in ("three", "four"):
            await conversation.ask("agent", prompt)
        bodies = [record.body for record in server.requests]
        assert [record.refusal for record in server.requests] == [None, None]
        assert ["previous_response_id" in body for body in bodies] == [False, True]
        stored = await conversation.messages("agent")
        assert stored[1].response_metadata["id"] == "resp_elsewhere"


async def test_calls_that_share_an_id_are_sent_apart_and_stored_as_they_came(bench: Bench, conversation_id: str):
    async with ProviderServer(always_the_same_id) as server:
        models = {"openai": openai_model(server, use_responses_api=True), "anthropic": anthropic_model(server)}
        agents = {name: adapter(create_agent(model, [look])) for name, model in models.items()}
        client = await bench.serve(agents)
        conversation = client.conversation(conversation_id)
        for name in agents:
            for prompt in ("one", "two", "three"):
                assert (await conversation.ask(name, prompt)).output == f"re: {prompt}"
            stored = await conversation.messages(name)
            asked = [call["id"] for message in stored if isinstance(message, AIMessage) for call in message.tool_calls]
            assert asked == ["call_0"] * 3
            assert [m.tool_call_id for m in stored if isinstance(m, ToolMessage)] == ["call_0"] * 3
            assert (await conversation.status(name)).epoch == 0
        assert [record.refusal for record in server.requests] == [None] * 12


async def test_thinking_that_nobody_signed_and_a_call_that_nothing_ran_stay_out_of_a_lanes_way(
    bench: Bench, conversation_id: str
):
    """They are in a history that was made elsewhere, and each later request would be refused for them."""
    unsigned = AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "two"}])
    async with ProviderServer(plainly) as server:
        client = await bench.serve({"agent": adapter(create_agent(anthropic_model(server)))})
        conversation = client.conversation(conversation_id)
        await conversation.import_messages("agent", [HumanMessage("one"), unsigned])
        assert (await conversation.ask("agent", "three")).output == "re: three"
        assert server.requests[0].refusal is None
        assert "hm" not in str(server.requests[0].body)
        stored = await conversation.messages("agent")
        assert stored[1].content == unsigned.content
