"""The provider as a process: the prompt language, the ledger, control from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIConnectionError, APIStatusError

from tests.provider.conftest import Sdk
from tests.support.clients import openai_client
from tests.support.provider import ProviderProcess, ProviderServer, read_ledger


async def step(client: Sdk, messages: list[dict[str, Any]]) -> Any:
    """Ask, and append the answer and a result for each of its calls."""
    made = await client.chat.completions.create(model="gpt-5", messages=messages)
    message = made.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    messages.extend(
        {"role": "tool", "tool_call_id": called.id, "content": f"ran {called.function.name}"}
        for called in message.tool_calls or []
    )
    return message


async def test_a_prompt_orders_tools_thoughts_and_texts(openai: Sdk):
    prompt = 'Please:\n!say both\n!tool add {"a": 1}\n!tool sub\n!then\n!tool mul {}\n!then\n!say fine\n!long 50'
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    first = await step(openai, messages)
    assert first.content == "both"
    assert [(c.function.name, c.function.arguments) for c in first.tool_calls] == [("add", '{"a": 1}'), ("sub", "{}")]
    second = await step(openai, messages)
    assert [c.function.name for c in second.tool_calls] == ["mul"]
    third = await step(openai, messages)
    assert third.content.startswith("fine")
    assert len(third.content) == 4 + 50
    fourth = await step(openai, [*messages, {"role": "user", "content": "thanks"}])
    assert fourth.content == "turn 2: thanks"


async def test_the_last_results_are_the_answer(openai: Sdk):
    messages: list[dict[str, Any]] = [{"role": "user", "content": "!tool add\n!tool sub"}]
    await step(openai, messages)
    assert (await step(openai, messages)).content == "done: add -> ran add; sub -> ran sub"


async def test_a_prompt_orders_faults(server: ProviderServer, openai: Sdk):
    messages: list[dict[str, Any]] = [{"role": "user", "content": "!fail 429 2 0.5\n!delay 0.01\n!chunk 3 0.001"}]
    for _ in range(2):
        with pytest.raises(APIStatusError) as failed:
            await step(openai, list(messages))
        assert failed.value.response.headers["retry-after"] == "0.5"
    assert (await step(openai, list(messages))).content == "turn 1: "
    with pytest.raises(APIConnectionError):
        await step(openai, [{"role": "user", "content": "!cut"}])
    assert server.counters.finished == 1


async def test_a_prompt_can_wait_at_a_gate(server: ProviderServer, openai: Sdk):
    asking = asyncio.create_task(step(openai, [{"role": "user", "content": "wait\n!hold here"}]))
    await server.wait_for_request(1)
    await asyncio.sleep(0.02)
    assert not asking.done()
    server.gate("here").set()
    assert (await asking).content == "turn 1: wait"


async def test_an_unknown_order_is_an_error(server: ProviderServer, openai: Sdk):
    with pytest.raises(APIStatusError, match="no order '!dance'"):
        await step(openai, [{"role": "user", "content": "!dance"}])
    assert isinstance(server.script_errors.pop(), ValueError)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[ProviderProcess]:
    async with ProviderProcess(tmp_path) as running:
        yield running


async def test_a_process_keeps_a_ledger_and_obeys(process: ProviderProcess):
    async with openai_client(process) as client:
        assert (await step(client, [{"role": "user", "content": "hi"}])).content == "turn 1: hi"
        finished = await process.wait_for("finished", 1)
        assert finished["body"]["choices"][0]["message"]["content"] == "turn 1: hi"
        assert process.events("request")[0]["body"]["messages"] == [{"role": "user", "content": "hi"}]

        await process.fail("status", code=429, retry_after=2)
        with pytest.raises(APIStatusError, match="429"):
            await step(client, [{"role": "user", "content": "hi"}])
        assert process.events("fault")[0]["fault"] == "status"

        asking = asyncio.create_task(step(client, [{"role": "user", "content": "!hold x\n!say ok"}]))
        await process.wait_for("made", 2)
        await process.release("x")
        assert (await asking).content == "ok"

        lost = asyncio.create_task(step(client, [{"role": "user", "content": "!hold y"}]))
        await process.wait_for("made", 3)
        lost.cancel()
        assert (await process.wait_for("aborted", 1))["n"] == 3
    assert [event["event"] for event in process.events()].count("finished") == 2


async def test_a_process_comes_back_on_its_port(tmp_path: Path):
    process = ProviderProcess(tmp_path, "--no-bodies")
    for turn in (1, 2):
        async with process:
            url = process.url
            async with openai_client(process) as client:
                await step(client, [{"role": "user", "content": "hi"}])
            await process.wait_for("finished", turn)
        assert process.url == url
    assert [event["event"] for event in read_ledger(process.log)] == ["started", "request", "made", "finished"] * 2
    assert all("body" not in event for event in process.events())
