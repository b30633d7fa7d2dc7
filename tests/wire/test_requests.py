"""What a provider is sent: the committed history and the new request, as the framework alone would send them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support.bench import Bench
from tests.support.provider import RequestRecord, answer, by_step, call, thinking
from tests.wire.providers import APIS, Api, wire

PROMPTS = ["add one and two, and three and four", "and both sums", "thank you"]
TURNS = [
    [answer("Let me see. ", call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})), "3 and 7"],
    [call("add", {"a": 3, "b": 7}), call("add", {"a": 10, "b": 0}), "10"],
    ["You are welcome."],
]
THOUGHTFUL = [
    [answer(thinking("two sums"), call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})), "3 and 7"],
    [answer(thinking("easy"), call("add", {"a": 3, "b": 7})), answer(thinking("now I know"), "10")],
    [answer(thinking("how nice"), "You are welcome.")],
]


def steady(value: Any, known: dict[str, str]) -> Any:
    """A request body with the provider's ids numbered in the order in which they come: two runs get different ones."""
    if isinstance(value, dict):
        return {key: _numbered(key, inner, known) for key, inner in value.items()}
    if isinstance(value, list):
        return [steady(inner, known) for inner in value]
    return value


_IDS = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "encrypted_content", "signature", "previous_response_id"}
)


def _numbered(key: str, value: Any, known: dict[str, str]) -> Any:
    if key in _IDS and isinstance(value, str):
        return known.setdefault(value, f"{key if key in ('signature', 'encrypted_content') else 'id'} {len(known)}")
    return steady(value, known)


def bodies(records: list[RequestRecord]) -> list[Any]:
    """What was sent, but for the key that Laneway adds so that a conversation finds its cached prefix again."""
    known: dict[str, str] = {}
    return [steady({k: v for k, v in record.body.items() if k != "prompt_cache_key"}, known) for record in records]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_each_request_is_the_committed_history_and_what_is_new(
    bench: Bench, conversation_id: str, api: Api, stream: bool
):
    """Turn by turn and step by step the bodies on the wire are those of the plain agent's conversation."""
    async with wire(by_step(*TURNS)) as provider:
        plain, _ = await provider.plainly(api, PROMPTS, stream=stream)
        first = len(provider.server.requests)
        agents = {"agent": provider.adapter(api, stream=stream)}
        client = await bench.serve(agents)
        conversation = client.conversation(conversation_id)
        for prompt, turn in zip(PROMPTS, TURNS, strict=True):
            result = await conversation.ask("agent", prompt)
            assert result.output == turn[-1]
        sent = provider.server.requests[first:]
    assert [record.refusal for record in sent] == [None] * len(sent)
    assert bodies(sent) == bodies(plain)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_reasoning_goes_back_to_the_provider_as_it_came(
    bench: Bench, conversation_id: str, api: Api, stream: bool
):
    """Signed and encrypted reasoning survives the store: the provider, which checks it, accepts every request."""
    async with wire(by_step(*THOUGHTFUL)) as provider:
        plain, _ = await provider.plainly(api, PROMPTS, stream=stream)
        first = len(provider.server.requests)
        client = await bench.serve({"agent": provider.adapter(api, stream=stream)})
        for prompt in PROMPTS:
            await client.conversation(conversation_id).ask("agent", prompt)
        sent = provider.server.requests[first:]
    assert [record.refusal for record in sent] == [None] * len(sent)
    assert bodies(sent) == bodies(plain)


@pytest.mark.parametrize("api", APIS)
async def test_a_worker_that_knows_nothing_sends_the_same_bytes(bench: Bench, conversation_id: str, api: Api):
    """The prefix that a provider has cached is kept by a new worker: each request begins with the one before it."""
    async with wire(by_step(*TURNS)) as provider:
        for prompt in PROMPTS:
            worker = await bench.worker({"agent": provider.adapter(api)})
            client = await bench.client({"agent": provider.adapter(api)})
            await client.conversation(conversation_id).ask("agent", prompt)
            await worker.aclose()
        sent = provider.server.requests
        key = "input" if api == "responses" else "messages"
        for before, after in pairwise(sent):
            assert after.body[key][: len(before.body[key])] == before.body[key]
