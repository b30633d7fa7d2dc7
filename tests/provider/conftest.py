"""Real SDK clients for a provider under test, their own retries off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderServer

Sdk: TypeAlias = Any
"""A client, untyped: the tests send what its types forbid and read what they hide."""


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
        clients.append(openai_client(server))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def connect_anthropic() -> AsyncIterator[Callable[[ProviderServer], AsyncAnthropic]]:
    """Makes Anthropic clients that are closed at the end."""
    clients: list[AsyncAnthropic] = []

    def connect(server: ProviderServer) -> AsyncAnthropic:
        clients.append(anthropic_client(server))
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
