"""Real SDK clients for a provider under test, their own retries off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.provider import ProviderServer

KEY = "test-key"


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    """A provider that follows the prompt language."""
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def connect_openai() -> AsyncIterator[Callable[[ProviderServer], AsyncOpenAI]]:
    """Makes OpenAI clients that are closed at the end."""
    clients: list[AsyncOpenAI] = []

    def connect(server: ProviderServer) -> AsyncOpenAI:
        clients.append(AsyncOpenAI(base_url=server.openai_url, api_key=KEY, max_retries=0))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def connect_anthropic() -> AsyncIterator[Callable[[ProviderServer], AsyncAnthropic]]:
    """Makes Anthropic clients that are closed at the end."""
    clients: list[AsyncAnthropic] = []

    def connect(server: ProviderServer) -> AsyncAnthropic:
        clients.append(AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
def openai(server: ProviderServer, connect_openai: Callable[[ProviderServer], AsyncOpenAI]) -> AsyncOpenAI:
    return connect_openai(server)


@pytest.fixture
def anthropic(server: ProviderServer, connect_anthropic: Callable[[ProviderServer], AsyncAnthropic]) -> AsyncAnthropic:
    return connect_anthropic(server)
