"""What the stock processors leave, sent by real SDKs: the strict local provider takes it, whatever the history was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.editing import langchain_steps, steps
from tests.editing.test_langchain_wire import has_later_system, knows_all_records
from tests.editing.test_langchain_wire import signed_by as signed_by_langchain
from tests.editing.test_sendable import signed_by
from tests.history.edits import entries_of
from tests.history.histories import MadeHistory, histories
from tests.history.twins import has_feedback, places, twins
from tests.processors.generated import processors
from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderServer, always
from tests.wire.providers import APIS, Api

STEADY = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@dataclass
class Sender:
    """A provider and models of both frameworks, on a loop of their own: hypothesis calls tests from sync code."""

    runner: asyncio.Runner
    server: ProviderServer
    models: dict[str, Any]
    langchain: dict[str, Any]

    def taken(self, send: Callable[[], Any]) -> int:
        """How many of the requests of a step were made; none of them is refused."""
        first = len(self.server.requests)
        self.runner.run(send())
        sent = self.server.requests[first:]
        assert [record.refusal for record in sent] == [None] * len(sent)
        return len(sent)


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    async def open_all() -> Sender:
        server = await stack.enter_async_context(ProviderServer(always("fine")))
        openai, anthropic = openai_client(server), anthropic_client(server)
        stack.push_async_callback(openai.close)
        stack.push_async_callback(anthropic.close)
        by_openai = OpenAIProvider(openai_client=openai)
        models: dict[str, Any] = {
            "chat": OpenAIChatModel("gpt-5", provider=by_openai),
            "responses": OpenAIResponsesModel("gpt-5.2", provider=by_openai),
            "messages": AnthropicModel("claude-opus-5", provider=AnthropicProvider(anthropic_client=anthropic)),
        }
        return Sender(runner, server, models, langchain_steps.models(server))

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        yield runner.run(open_all())
        runner.run(stack.aclose())


@pytest.mark.parametrize("api", APIS)
def test_no_provider_refuses_what_a_processor_leaves(sender: Sender, api: Api) -> None:
    @STEADY
    @given(histories(max_cycles=5), processors())
    def check(made: MadeHistory, processor: Any) -> None:
        messages = [signed_by(sender.server, message) for message in made.native]
        agent, entries, index = steps.agent_of(sender.models[api]), entries_of(messages), made.request_index
        assert sender.taken(lambda: steps.ask(agent, messages, entries, processor, request_index=index)) == 1

    check()


@pytest.mark.parametrize("api", APIS)
def test_no_provider_refuses_what_a_processor_leaves_of_a_graphs_messages(sender: Sender, api: Api) -> None:
    @STEADY
    @given(histories(max_cycles=5), processors())
    def check(made: MadeHistory, processor: Any) -> None:
        # A compaction or a search is of one provider only, and LangChain itself sends Anthropic's models no system text
        # after the first message.
        assume(not has_feedback(made.pieces) and knows_all_records(made))
        assume(api != "messages" or not has_later_system(made))
        messages = signed_by_langchain(sender.server, twins(made.pieces))
        current = places(made.pieces)[-len(made.groups[-1].messages) - 1]
        model, index = sender.langchain[api], made.request_index
        sending = lambda: langchain_steps.ask(model, messages, processor, current=current, request_index=index)  # noqa: E731
        assert sender.taken(sending) == 1

    check()
