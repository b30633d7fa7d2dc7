"""What Anthropic refuses, in its words: order, emptiness, tools, cache marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic import APIStatusError

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, answer, by_step, call, thinking

USER: dict[str, Any] = {"role": "user", "content": "hi"}
MARK = {"cache_control": {"type": "ephemeral"}}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def use(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "add", "input": {}} for id in ids]}


def results(*ids: str, before: str | None = None, after: str | None = None) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": before}] if before else []
    blocks += [{"type": "tool_result", "tool_use_id": id, "content": "1"} for id in ids]
    blocks += [{"type": "text", "text": after}] if after else []
    return {"role": "user", "content": blocks}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": value, **more}]}


async def ask(client: Sdk, messages: list[Any], model: str = "test-model", **more: Any):
    return await client.messages.create(model=model, max_tokens=100, messages=messages, **more)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages: at least one message is required"),
        ([said("hello"), USER], 'first message must use the "user" role'),
        ([{"role": "tool", "content": "x"}], "messages.0.role"),
        ([{"role": "system", "content": "x"}, USER], 'Unexpected role "system"'),
        ([text("")], "text content blocks must be non-empty"),
        ([text(" \n")], "text content blocks must contain non-whitespace text"),
        ([text("", **MARK)], "cache_control cannot be set for empty text blocks"),
        ([{"role": "user", "content": []}], "messages.0: all messages must have non-empty content"),
        ([USER, said(""), USER], "text content blocks must be non-empty"),
        ([USER, said("so ")], "final assistant content cannot end with trailing whitespace"),
        ([USER, results("t1")], "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1"),
        ([USER, use("t1"), results("t1"), said("ok"), results("t1")], "unexpected `tool_use_id`"),
        ([USER, use("t1")], "`tool_use` ids were found without `tool_result` blocks immediately after: t1"),
        ([USER, use("t1", "t2"), results("t1")], "without `tool_result` blocks immediately after: t2"),
        ([USER, use("t1"), USER], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ([USER, use("t1"), results("t1", before="first")], "without `tool_result` blocks immediately after: t1"),
        ([USER, use("t1"), results("t1", "t1")], "each tool_use must have a single result"),
        ([USER, use("t1", "t1"), results("t1")], "messages.1.content.1: `tool_use` ids must be unique"),
        ([USER, use("t1"), results("t1"), use("t1"), results("t1")], "`tool_use` ids must be unique"),
        ([USER, use("t 1"), results("t 1")], "String should match pattern"),
    ],
)
async def test_messages_refuses(server: ProviderServer, anthropic: Sdk, messages: list[Any], words: str):
    with pytest.raises(APIStatusError, match="Error code: 400") as refused:
        await ask(anthropic, messages)
    assert words in refused.value.message
    body = refused.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert server.counters.made == 0


@pytest.mark.parametrize(
    "messages",
    [
        [USER, USER, said("a"), said("b"), USER],
        [USER, use("t1", "t2"), results("t2", "t1", after="and so"), said("ok"), USER],
        [USER, use("t1"), results("t1"), use("t2"), results("t2")],
        [USER, use("t1", "t2"), results("t1"), results("t2")],
    ],
)
async def test_messages_accepts_what_is_well_formed(anthropic: Sdk, messages: list[Any]):
    """Neighbours of one role are one turn to the API."""
    await ask(anthropic, messages)


async def test_strict_alternation_is_an_option(connect_anthropic: Callable[[ProviderServer], Sdk]):
    async with ProviderServer(alternate_roles=True) as server:
        with pytest.raises(APIStatusError, match="roles must alternate"):
            await ask(connect_anthropic(server), [USER, USER])


async def test_newer_models_take_no_prefill_but_system_messages(anthropic: Sdk):
    await ask(anthropic, [USER, said("The answer is")])
    with pytest.raises(APIStatusError, match="does not support assistant message prefill"):
        await ask(anthropic, [USER, said("The answer is")], model="claude-opus-5-5")
    await ask(anthropic, [USER, said("a"), USER, {"role": "system", "content": "b"}], model="claude-opus-5-5")


async def test_at_most_four_cache_marks(anthropic: Sdk):
    tools = [{"name": "add", "input_schema": {"type": "object"}, **MARK}]
    system = [{"type": "text", "text": "s", **MARK}]
    marked = results("t1")
    marked["content"][0]["content"] = [{"type": "text", "text": "1", **MARK}]
    messages = [text("a", **MARK), use("t1"), marked]
    await ask(anthropic, messages, tools=tools, system=system)
    with pytest.raises(APIStatusError, match=r"A maximum of 4 blocks with cache_control may be provided. Found 5."):
        await ask(anthropic, [*messages, said("b"), text("c", **MARK)], tools=tools, system=system)


async def test_a_tool_loop_keeps_the_thinking_that_opened_it(server: ProviderServer, anthropic: Sdk):
    """With thinking enabled; only where the server itself had thought before the call."""
    server.script = by_step([answer(thinking("hm"), call("add")), "ok"])
    enabled: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    made = await anthropic.messages.create(model="test-model", max_tokens=2000, messages=[USER], **enabled)
    content = [block.model_dump(exclude_none=True) for block in made.content]
    back = results(content[1]["id"])
    await ask(anthropic, [USER, {"role": "assistant", "content": content}, back], **enabled)
    with pytest.raises(APIStatusError, match="Expected `thinking` or `redacted_thinking`, but found `tool_use`"):
        await ask(anthropic, [USER, {"role": "assistant", "content": content[1:]}, back], **enabled)
    await ask(anthropic, [USER, {"role": "assistant", "content": content[1:]}, back])


async def test_unknown_models_wrong_keys_and_long_prompts(
    connect_anthropic: Callable[[ProviderServer], Sdk],
):
    async def refusal(client: Sdk, prompt: str = "hi", model: str = "claude-opus-5-5") -> APIStatusError:
        with pytest.raises(APIStatusError) as refused:
            await ask(client, [text(prompt)], model=model)
        return refused.value

    async with ProviderServer(api_key="test-key", context_limit_tokens=100) as server:
        client = connect_anthropic(server)
        unknown = await refusal(client, model="claud-5")
        assert unknown.status_code == 404
        assert "model: claud-5" in unknown.message
        wrong = await refusal(client.with_options(api_key="wrong"))
        assert wrong.status_code == 401
        assert "authentication_error" in wrong.message
        long = await refusal(client, prompt="word " * 200)
        assert long.status_code == 400
        assert "prompt is too long" in long.message
        assert "tokens > 100 maximum" in long.message


async def test_missing_fields_headers_and_json(server: ProviderServer):
    good = {"x-api-key": "x", "anthropic-version": "2023-06-01"}
    body: dict[str, Any] = {"model": "claude-opus-5-5", "messages": [USER], "max_tokens": 9}
    async with httpx2.AsyncClient(base_url=server.url) as client:

        async def message(headers: dict[str, str], **sent: Any) -> tuple[int, str]:
            made = await client.post("/v1/messages", headers=headers, **sent)
            return made.status_code, made.json()["error"]["message"]

        assert await message({}, json=body) == (401, "x-api-key header is required")
        assert await message({"x-api-key": "x"}, json=body) == (400, "anthropic-version: header is required")
        assert await message(good, content=b"[1]") == (400, "The request body is not valid JSON")
        for field in ("model", "messages", "max_tokens"):
            less = {key: value for key, value in body.items() if key != field}
            assert await message(good, json=less) == (400, f"{field}: Field required")
