"""What a test can see: requests, their ends, cancelled ones above all; and scripts."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import pytest
from anthropic import APIConnectionError
from openai import APIStatusError

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, always, call, in_order, reply, stall


async def test_a_request_is_recorded(server: ProviderServer, openai: Sdk):
    before = time.monotonic()
    made = await openai.responses.create(model="gpt-5", input="hi", extra_headers={"x-extra": "1"})
    record = await server.wait_for_request(1)
    assert (record.index, record.api, record.path) == (0, "responses", "/v1/responses")
    assert record.body == {"model": "gpt-5", "input": "hi"}
    assert record.headers["x-extra"] == "1"
    assert before <= record.arrived_at <= time.monotonic()
    await record.ended()
    assert (record.completed, record.aborted, record.status) == (True, False, 200)
    assert record.answer_id == made.id
    assert record.answer_body is not None
    assert record.answer_body["output"][0]["content"][0]["text"] == "turn 1: hi"
    assert record.closed_at is None
    with pytest.raises(AttributeError):
        record.index = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at", ["start", "body"])
async def test_a_cancelled_request_is_seen_to_close(
    server: ProviderServer, openai: Sdk, stream: bool, at: Literal["start", "body"]
):
    """While the server is silent, before the answer and in the middle of it."""
    server.fail(stall(at=at))

    async def ask() -> None:
        made = await openai.responses.create(model="gpt-5", input="hi", stream=stream)
        async for _ in made:
            pass

    asking = asyncio.create_task(ask())
    record = await server.wait_for_request(1)
    await asyncio.sleep(0.05)
    assert record.closed_at is None
    cancelled = time.monotonic()
    asking.cancel()
    closed_at = await record.closed(timeout_seconds=60)
    await record.ended()
    assert 0 <= closed_at - cancelled < 2
    assert (record.aborted, record.completed, record.closed_by) == (True, False, "client")
    assert server.counters.aborted == 1
    assert server.counters.finished == 0


async def test_a_client_that_goes_while_chunks_flow_is_seen(server: ProviderServer, openai: Sdk):
    server.script = always(reply("word " * 1000, chunk_delay_seconds=0.01))
    made = await openai.responses.create(model="gpt-5", input="hi", stream=True)
    await made.__anext__()
    await made.close()
    record = server.requests[0]
    await record.closed(timeout_seconds=60)
    assert record.aborted


async def test_an_answer_waits_for_its_gate(server: ProviderServer, openai: Sdk):
    server.script = always(reply("at last", gate="go"))
    asking = [asyncio.create_task(openai.responses.create(model="gpt-5", input="hi")) for _ in range(3)]
    await server.wait_for_request(3)
    await asyncio.sleep(0.02)
    assert server.counters.made == 3
    assert server.counters.finished == 0
    server.gate("go").set()
    assert {made.output_text for made in await asyncio.gather(*asking)} == {"at last"}


async def test_waiting_for_a_request_gives_up(server: ProviderServer):
    with pytest.raises(TimeoutError):
        await server.wait_for_request(1, timeout_seconds=0.01)


async def test_a_script_sees_the_same_request_through_every_api(server: ProviderServer, openai: Sdk):
    server.script = always("ok")
    await openai.chat.completions.create(
        model="gpt-5",
        messages=[
            {"role": "system", "content": "s"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ],
    )
    await openai.responses.create(
        model="gpt-5",
        instructions="s",
        input=[
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "3"},
        ],
    )
    chat, responses = (record.request for record in server.requests)
    assert chat.transcript == responses.transcript
    assert (chat.system, chat.prompt, chat.turn, chat.step, chat.answers) == ("s", "two", 2, 1, 2)
    assert [(result.name, result.text) for result in chat.results] == [("add", "3")]


async def test_a_script_may_be_asynchronous_and_return_parts(server: ProviderServer, openai: Sdk):
    async def script(request):
        await asyncio.sleep(0)
        return ["two calls", call("a"), call("b", id="mine")]

    server.script = script
    made = await openai.responses.create(model="gpt-5", input="hi")
    assert [item.type for item in made.output] == ["message", "function_call", "function_call"]
    assert made.output[2].call_id == "mine"


async def test_a_script_that_fails_is_not_overlooked(openai: Sdk):
    """The client sees a 500, and leaving the server raises what the script raised."""
    server = ProviderServer(in_order("only one"))
    await server.__aenter__()
    client = openai.with_options(base_url=server.openai_url)
    await client.responses.create(model="gpt-5", input="hi")
    with pytest.raises(APIStatusError, match="the script failed"):
        await client.responses.create(model="gpt-5", input="hi")
    with pytest.raises(AssertionError, match="after the last of 1 scripted answers"):
        await server.__aexit__(None, None, None)


async def test_an_answer_that_cannot_be_rendered_does_not_hang(server: ProviderServer, anthropic: Sdk):
    """Messages has no way to put out arguments that are not JSON."""
    server.script = always(call("add", "{nope"))
    with pytest.raises(APIConnectionError):
        await anthropic.messages.create(
            model="claude-opus-5-5", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    assert isinstance(server.script_errors.pop(), ValueError)


async def test_bodies_can_be_forgotten(openai: Sdk):
    async with ProviderServer(keep_bodies=False) as server:
        client = openai.with_options(base_url=server.openai_url)
        await client.responses.create(model="gpt-5", input="hi")
        await server.requests[0].ended()
        assert server.requests[0].body == {}


async def test_leaving_the_server_ends_what_it_still_holds(openai: Sdk):
    async with ProviderServer() as server:
        server.fail(stall())
        client = openai.with_options(base_url=server.openai_url)
        asking = asyncio.create_task(client.responses.create(model="gpt-5", input="hi"))
        await server.wait_for_request(1)
    with pytest.raises(Exception, match="Connection error"):
        await asking
    assert server.requests[0].closed_by == "server"
