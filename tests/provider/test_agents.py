"""Real agent frameworks run whole conversations against the provider, on all three APIs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStaleThinkingBlockWarning
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, answer, by_step, call, thinking

APIS = ("chat", "responses", "messages")


@dataclass
class Lab:
    """A server and the models that talk to it."""

    server: ProviderServer
    openai: Sdk
    anthropic: Sdk

    def model(self, api: str) -> Model:
        if api == "messages":
            return AnthropicModel("claude-opus-5-5", provider=AnthropicProvider(anthropic_client=self.anthropic))
        provider = OpenAIProvider(openai_client=self.openai)
        if api == "responses":
            return OpenAIResponsesModel("gpt-5", provider=provider)
        return OpenAIChatModel("gpt-5", provider=provider)


@pytest.fixture
def lab(server: ProviderServer, openai: Sdk, anthropic: Sdk) -> Lab:
    return Lab(server, openai, anthropic)


def adder(model: Model) -> Agent[None, str]:
    agent = Agent(model, instructions="Add.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    return agent


async def ask(agent: Agent[None, str], prompt: str, stream: bool, history: list | None = None):
    """One run, streamed or not."""
    if not stream:
        return await agent.run(prompt, message_history=history)
    async with agent.iter(prompt, message_history=history) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for _ in events:
                        pass
    assert run.result is not None
    return run.result


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
async def test_an_agent_thinks_calls_tools_in_parallel_and_goes_on(lab: Lab, api: str, stream: bool):
    """Two turns with parallel calls and thinking: all that the framework sends back is accepted."""
    lab.server.script = by_step(
        [
            answer(
                thinking("two sums at once"),
                "Let me see. ",
                call("add", {"a": 1, "b": 2}),
                call("add", {"a": 3, "b": 4}),
            ),
            answer(thinking("now I know"), "3 and 7"),
        ],
        [call("add", {"a": 3, "b": 7}), "10"],
    )
    agent = adder(lab.model(api))
    first = await ask(agent, "1+2 and 3+4?", stream)
    second = await ask(agent, "together?", stream, first.all_messages())
    assert (first.output, second.output) == ("3 and 7", "10")
    assert [result.text for result in lab.server.requests[1].request.results] == ["3", "7"]
    assert lab.server.counters.finished == 4
    assert lab.server.counters.refused == 0
    assert first.usage.output_tokens > 0


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_a_signed_history_survives_storage(lab: Lab, api: str):
    """Dumped and loaded messages are accepted: nothing of the signature is lost on the way."""
    lab.server.script = by_step([answer(thinking("hm"), "one")], ["two"])
    agent = adder(lab.model(api))
    first = await agent.run("1?")
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    second = await agent.run("2?", message_history=stored)
    assert second.output == "two"
    assert any(entry.role == "thinking" for entry in lab.server.requests[1].request.transcript)


async def test_an_altered_thought_is_refused(lab: Lab):
    lab.server.script = by_step([answer(thinking("hm"), "one")], ["two"])
    agent = adder(lab.model("messages"))
    messages = (await agent.run("1?")).all_messages()
    response = messages[-1]
    assert isinstance(response, ModelResponse)
    assert isinstance(response.parts[0], ThinkingPart)
    response.parts[0].content = "hm!"
    with pytest.raises(ModelHTTPError, match="cannot be modified"):
        await agent.run("2?", message_history=messages)


async def test_previous_response_id_continues_a_conversation(lab: Lab):
    """The framework sends only what is new; the transcript still holds everything."""
    lab.server.script = by_step([answer(thinking("hm"), call("add", {"a": 1, "b": 2})), "3"], ["as I said"])
    agent = adder(lab.model("responses"))
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    first = await agent.run("1+2?", model_settings=settings)
    result = await agent.run("again?", message_history=first.all_messages(), model_settings=settings)
    assert result.output == "as I said"
    last = lab.server.requests[-1]
    assert last.body["previous_response_id"] == lab.server.requests[1].answer_id
    assert len(last.body["input"]) == 1
    assert last.request.turn == 2


async def test_a_response_that_was_not_stored_cannot_be_continued(lab: Lab):
    """The framework asks for it all the same."""
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto", openai_store=False)
    agent = adder(lab.model("responses"))
    first = await agent.run("hello", model_settings=settings)
    with pytest.raises(ModelHTTPError, match="not found"):
        await agent.run("again?", message_history=first.all_messages(), model_settings=settings)


async def test_unstored_reasoning_comes_back_encrypted(lab: Lab):
    lab.server.script = by_step([answer(thinking("hm"), call("add", {"a": 1, "b": 2})), "3"], ["as I said"])
    settings = OpenAIResponsesModelSettings(openai_store=False)
    agent = adder(lab.model("responses"))
    first = await agent.run("1+2?", model_settings=settings)
    result = await agent.run("again?", message_history=first.all_messages(), model_settings=settings)
    assert result.output == "as I said"
    assert [item["type"] for item in lab.server.requests[-1].body["input"] if "type" in item].count("reasoning") == 1


async def test_a_server_owned_conversation_holds_the_history(lab: Lab):
    lab.server.script = by_step([call("add", {"a": 1, "b": 2}), "3"], ["as I said"])
    conversation = await lab.openai.conversations.create()
    agent = adder(lab.model("responses"))
    first = await agent.run("1+2?", model_settings=OpenAIResponsesModelSettings(openai_conversation_id=conversation.id))
    second = await agent.run(
        "again?",
        message_history=first.all_messages(),
        model_settings=OpenAIResponsesModelSettings(openai_conversation_id="auto"),
    )
    assert second.output == "as I said"
    assert lab.server.requests[-1].body["conversation"] == conversation.id
    assert len(lab.server.requests[-1].body["input"]) == 1


async def test_the_framework_recovers_from_a_changed_prefix_with_a_warning(lab: Lab):
    """It is refused once, and sends the request again with the stale thinking dropped."""
    lab.server.script = by_step([answer(thinking("hm"), "one")], ["two"])
    first = await Agent(lab.model("messages"), instructions="Be brief.").run("1?")
    with pytest.warns(AnthropicStaleThinkingBlockWarning):
        second = await Agent(lab.model("messages"), instructions="Be long.").run(
            "2?", message_history=first.all_messages()
        )
    assert second.output == "two"
    assert [request.status for request in lab.server.requests] == [200, 400, 200]
    details = second.response.provider_details or {}
    assert details["input_transformations"][0]["reason"] == "prefix_binding_mismatch"
