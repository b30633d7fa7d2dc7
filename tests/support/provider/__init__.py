"""A strict model provider for tests: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages.

    async with ProviderServer(by_step([call("add", {"a": 1}), "two"])) as server:
        OpenAIProvider(base_url=server.openai_url, api_key="test")     # or AnthropicProvider(base_url=server.url)
        ...
        request = await server.wait_for_request(1)

It is a real HTTP server on loopback; real SDKs talk to it. It refuses what the providers refuse, in their
words, answers what a script says, fails when told to, and remembers what it saw. ``python -m
tests.support.provider`` runs it as a process of its own.
"""

from tests.support.provider.answers import (
    Answer,
    Answerable,
    Text,
    Thinking,
    ToolCall,
    Usage,
    answer,
    call,
    reply,
    thinking,
)
from tests.support.provider.faults import Fault, cut, reset, slow, stall, status, stream_error
from tests.support.provider.language import prompt_script
from tests.support.provider.ledger import read_ledger
from tests.support.provider.process import ProviderProcess
from tests.support.provider.records import Counters, RequestRecord
from tests.support.provider.scripts import Script, always, by_step, in_order
from tests.support.provider.server import ProviderServer
from tests.support.provider.transcript import Entry, ProviderRequest

__all__ = [
    "Answer",
    "Answerable",
    "Counters",
    "Entry",
    "Fault",
    "ProviderProcess",
    "ProviderRequest",
    "ProviderServer",
    "RequestRecord",
    "Script",
    "Text",
    "Thinking",
    "ToolCall",
    "Usage",
    "always",
    "answer",
    "by_step",
    "call",
    "cut",
    "in_order",
    "prompt_script",
    "read_ledger",
    "reply",
    "reset",
    "slow",
    "stall",
    "status",
    "stream_error",
    "thinking",
]
