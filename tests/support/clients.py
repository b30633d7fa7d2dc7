"""SDK clients for a provider on loopback: their own retries off, and no TLS context, which costs 90 ms a client."""

from __future__ import annotations

import anthropic
import openai

from tests.support.provider import ProviderProcess, ProviderServer

Provider = ProviderServer | ProviderProcess
KEY = "test-key"


def openai_client(provider: Provider) -> openai.AsyncOpenAI:
    """A client of the provider's OpenAI APIs; to be closed by the caller."""
    return openai.AsyncOpenAI(
        base_url=provider.openai_url,
        api_key=KEY,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(verify=False),
    )


def anthropic_client(provider: Provider) -> anthropic.AsyncAnthropic:
    """A client of the provider's Anthropic API; to be closed by the caller."""
    return anthropic.AsyncAnthropic(
        base_url=provider.url,
        api_key=KEY,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
    )
