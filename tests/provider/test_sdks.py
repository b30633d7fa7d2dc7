"""The providers' own SDKs, without a framework: what an answer looks like and what it costs."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, Usage, answer, call, reply, thinking

CHAT_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
LONG = "a long system prompt, " * 200


async def test_a_chat_completion_whole_and_streamed(server: ProviderServer, openai: Sdk):
    server.script = lambda request: answer("Let me add.", call("add", {"a": 1}), call("add", {"a": 2}))
    messages = [{"role": "user", "content": "hi"}]
    whole = await openai.chat.completions.create(model="gpt-5", messages=messages, tools=CHAT_TOOLS)
    message = whole.choices[0].message
    assert message.content == "Let me add."
    assert [json.loads(c.function.arguments) for c in message.tool_calls or []] == [{"a": 1}, {"a": 2}]
    assert whole.choices[0].finish_reason == "tool_calls"
    assert server.requests[0].request.tools == ("add",)

    text, arguments = "", {0: "", 1: ""}
    usage: Any = None
    async for chunk in await openai.chat.completions.create(
        model="gpt-5", messages=messages, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                arguments[part.index] += part.function.arguments
    assert text == "Let me add."
    assert [json.loads(a) for a in arguments.values()] == [{"a": 1}, {"a": 2}]
    assert usage.completion_tokens == whole.usage.completion_tokens


async def test_a_response_whole_and_streamed(server: ProviderServer, openai: Sdk):
    server.script = lambda request: answer(thinking("hm"), "Let me add.", call("add", {"a": 1}))
    whole = await openai.responses.create(model="gpt-5", input="hi")
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert whole.output_text == "Let me add."
    async with openai.responses.stream(model="gpt-5", input="hi") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "Let me add."
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert whole.usage.output_tokens_details.reasoning_tokens == 1


async def test_a_message_whole_and_streamed(server: ProviderServer, anthropic: Sdk):
    server.script = lambda request: answer(
        thinking("hm"), thinking("secret", redacted=True), "Let me add.", call("add", {"a": 1})
    )
    ask = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    whole = await anthropic.messages.create(**ask)
    async with anthropic.messages.stream(**ask) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
        assert message.content[0].signature
        assert message.content[3].input == {"a": 1}
        assert message.stop_reason == "tool_use"
    assert whole.usage.output_tokens == streamed.usage.output_tokens


async def test_an_answer_that_ran_out_of_tokens_says_so(server: ProviderServer, openai: Sdk, anthropic: Sdk):
    server.script = lambda request: answer("half of", finish="length")
    messages = [{"role": "user", "content": "hi"}]
    chat = await openai.chat.completions.create(model="gpt-5", messages=messages)
    response = await openai.responses.create(model="gpt-5", input="hi")
    message = await anthropic.messages.create(model="claude-opus-5-5", max_tokens=9, messages=messages)
    assert chat.choices[0].finish_reason == "length"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert message.stop_reason == "max_tokens"


async def test_chat_and_responses_count_the_cached_prefix(openai: Sdk):
    """What an earlier request with the same cache key began with is cached; another key knows nothing of it."""

    async def cached(key: str, *prompts: str) -> int:
        messages = [{"role": "system", "content": LONG}]
        for prompt in prompts:
            messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": "ok"}]
        made = await openai.chat.completions.create(model="gpt-5", messages=messages[:-1], prompt_cache_key=key)
        return made.usage.prompt_tokens_details.cached_tokens

    assert await cached("lane", "one") == 0
    second = await cached("lane", "one", "two")
    assert second > len(LONG) // 4
    assert await cached("lane", "one", "two", "three") > second
    assert 0 < await cached("lane", "edited", "two", "three") < second
    assert await cached("other", "one", "two") == 0


async def test_messages_counts_only_what_is_marked(anthropic: Sdk):
    """Up to the last mark, a prefix is written once and read after; without marks nothing is cached."""

    async def usage(*prompts: str, marked: bool):
        mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
        messages = []
        for at, prompt in enumerate(prompts):
            block = {"type": "text", "text": prompt, **(mark if at == len(prompts) - 1 else {})}
            messages += [{"role": "user", "content": [block]}, {"role": "assistant", "content": "ok"}]
        made = await anthropic.messages.create(
            model="claude-opus-5-5", max_tokens=9, system=LONG, messages=messages[:-1]
        )
        return made.usage

    plain = await usage("one", marked=False)
    assert (plain.cache_read_input_tokens, plain.cache_creation_input_tokens) == (0, 0)
    first = await usage("one", marked=True)
    second = await usage("one", "two", marked=True)
    assert first.cache_creation_input_tokens == plain.input_tokens
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert 0 < second.cache_creation_input_tokens < 100
    assert (await usage("edited", "two", marked=True)).cache_read_input_tokens == 0


async def test_a_script_can_set_the_figures(server: ProviderServer, openai: Sdk):
    server.script = lambda request: reply("x", usage=Usage(input_tokens=1000, output_tokens=5, cached_tokens=900))
    made = await openai.responses.create(model="gpt-5", input="hi")
    assert (made.usage.input_tokens, made.usage.output_tokens) == (1000, 5)
    assert made.usage.input_tokens_details.cached_tokens == 900


async def test_tokens_can_be_counted_beforehand(server: ProviderServer, anthropic: Sdk):
    ask = {"model": "claude-opus-5-5", "messages": [{"role": "user", "content": "hi"}]}
    counted = await anthropic.messages.count_tokens(**ask)
    made = await anthropic.messages.create(**ask, max_tokens=9)
    assert counted.input_tokens == made.usage.input_tokens
    assert len(server.requests) == 1


async def test_an_answer_comes_without_nagles_delay(server: ProviderServer, openai: Sdk):
    """Several small writes on a kept connection: with the delay, each answer would take 40 ms."""
    messages = [{"role": "user", "content": "hi"}]
    took: list[float] = []
    for _ in range(10):
        begun = time.monotonic()
        await openai.chat.completions.create(model="gpt-5", messages=messages)
        took.append(time.monotonic() - begun)
    assert min(took) < 0.035


async def test_what_is_no_endpoint_is_not_found(server: ProviderServer):
    async with httpx2.AsyncClient(base_url=server.url) as client:
        missing = await client.get("/v1/nothing", headers={"authorization": "Bearer x"})
        keyless = await client.get("/v1/nothing")
    assert missing.status_code == 404
    assert keyless.status_code == 401


@pytest.mark.parametrize("chars", [1, 1_000_000])
async def test_answers_of_any_size_arrive(server: ProviderServer, openai: Sdk, chars: int):
    server.script = lambda request: reply("x" * chars, chunk_chars=10_000)
    whole = await openai.responses.create(model="gpt-5", input="hi")
    assert len(whole.output_text) == chars
    async with openai.responses.stream(model="gpt-5", input="hi") as stream:
        assert len((await stream.get_final_response()).output_text) == chars
