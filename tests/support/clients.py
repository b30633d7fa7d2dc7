"""SDK clients and LangChain models for a provider on loopback, with no TLS context, which costs 90 ms a client.

LangChain keeps one HTTP client for each address as long as the process is: with connections of a test's event loop,
which the next test on that address would meet. Models from here have clients of their own, closed with the provider.
"""

from __future__ import annotations

from typing import Any

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.support.provider import ProviderProcess, ProviderServer

Provider = ProviderServer | ProviderProcess
KEY = "test-key"


def openai_client(provider: Provider) -> openai.AsyncOpenAI:
    """A client of the provider's OpenAI APIs, without retries; to be closed by the caller."""
    return openai.AsyncOpenAI(
        base_url=provider.openai_url,
        api_key=KEY,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(verify=False),
    )


def anthropic_client(provider: Provider) -> anthropic.AsyncAnthropic:
    """A client of the provider's Anthropic API, without retries; to be closed by the caller."""
    return anthropic.AsyncAnthropic(
        base_url=provider.url,
        api_key=KEY,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
    )


def langchain_openai(provider: ProviderServer, model: str, **settings: Any) -> ChatOpenAI:
    """A model on the provider's OpenAI APIs, which retries as it does by default."""
    http = openai.DefaultAsyncHttpxClient(verify=False)
    provider.on_exit(http.aclose)
    return ChatOpenAI(
        model=model, base_url=provider.openai_url, api_key=SecretStr(KEY), http_async_client=http, **settings
    )


def langchain_anthropic(provider: ProviderServer, model: str, **settings: Any) -> ChatAnthropic:
    """A model on the provider's Anthropic API, which retries as it does by default."""
    settings = {"timeout": None, "stop": None, **settings}
    made = ChatAnthropic(model_name=model, base_url=provider.url, api_key=SecretStr(KEY), **settings)
    # It takes no HTTP client, and makes its SDK client with the shared one when it is first asked.
    shared: anthropic.AsyncAnthropic = getattr(made, "_async_client")  # noqa: B009
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    provider.on_exit(http.aclose)
    vars(made)["_async_client"] = shared.with_options(http_client=http)
    return made
