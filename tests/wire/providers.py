"""Agents on the three APIs of the local provider, streamed and not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from laneway import LangChainAdapter, PydanticAdapter, RetryPolicy

from tests.support.clients import anthropic_client, langchain_anthropic, langchain_openai, openai_client
from tests.support.provider import ProviderServer, RequestRecord

Api = Literal["chat", "responses", "messages"]
APIS: tuple[Api, ...] = ("chat", "responses", "messages")
Framework = Literal["pydantic_ai", "langchain"]
FRAMEWORKS: tuple[Framework, ...] = ("pydantic_ai", "langchain")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Wire:
    """A provider and the agents that talk to it. The SDK clients retry, as they do by default."""

    server: ProviderServer
    _clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    def model(self, api: Api) -> Model:
        """A model with an SDK client of its own."""
        if api == "messages":
            anthropic = anthropic_client(self.server)
            anthropic.max_retries = 2
            self._clients.push_async_callback(anthropic.close)
            return AnthropicModel("claude-sonnet-5", provider=AnthropicProvider(anthropic_client=anthropic))
        openai = openai_client(self.server)
        openai.max_retries = 2
        self._clients.push_async_callback(openai.close)
        provider = OpenAIProvider(openai_client=openai)
        kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
        return kind("gpt-5", provider=provider)

    def agent(self, api: Api) -> Agent[None, str]:
        """An agent that adds."""
        agent: Agent[None, str] = Agent(self.model(api), instructions="Add up.", system_prompt="You can count.")

        @agent.tool_plain
        async def add(a: int, b: int) -> int:
            return a + b

        return agent

    def langchain_model(self, api: Api, **settings: Any) -> BaseChatModel:
        """A model of LangChain's. Its SDK client retries, as it does by default."""
        if api == "messages":
            return langchain_anthropic(self.server, "claude-sonnet-5", **settings)
        settings = {"stream_usage": True, **settings}
        return langchain_openai(self.server, "gpt-5", use_responses_api=api == "responses", **settings)

    def adapter(
        self,
        api: Api,
        *,
        stream: bool = False,
        policy: RetryPolicy | None = None,
        framework: Framework = "pydantic_ai",
    ) -> PydanticAdapter[Any, Any] | LangChainAdapter:
        if framework == "langchain":
            agent = create_agent(self.langchain_model(api), [add], system_prompt="You can count.")
            return LangChainAdapter(agent, stream=stream, retry_policy=policy)
        return PydanticAdapter(self.agent(api), stream=stream, retry_policy=policy)

    async def plainly(
        self, api: Api, prompts: list[str], *, stream: bool = False
    ) -> tuple[list[RequestRecord], list[ModelMessage]]:
        """Ask without Laneway; what was sent, and the messages in the end."""
        first = len(self.server.requests)
        agent, history = self.agent(api), list[ModelMessage]()
        for prompt in prompts:
            handler = _read if stream else None
            history = (await agent.run(prompt, message_history=history, event_stream_handler=handler)).all_messages()
        return self.server.requests[first:], history


async def _read(ctx: object, events: Any) -> None:
    async for _ in events:
        pass


@asynccontextmanager
async def wire(script: Any = None) -> AsyncIterator[Wire]:
    """A provider that runs, and clients that are closed at the end."""
    async with ProviderServer(script) as server:
        running = Wire(server)
        async with running._clients:
            yield running
