"""Injected faults, as the SDKs see them, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import anthropic as anthropic_sdk
import httpx2
import openai as openai_sdk
import pytest

from tests.provider.conftest import Sdk
from tests.support.provider import ProviderServer, cut, reply, reset, slow, stall, status, stream_error

Ask = Callable[[bool], Coroutine[Any, Any, str]]
APIS = ("chat", "responses", "messages")
BROKEN = (httpx2.TransportError, openai_sdk.APIConnectionError, anthropic_sdk.APIConnectionError)
STATUS = (openai_sdk.APIStatusError, anthropic_sdk.APIStatusError)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def ask(api: str, server: ProviderServer, openai: Sdk, anthropic: Sdk) -> Ask:
    """Ask for the text ``Hello there, friend.``, whole or streamed."""
    server.script = lambda request: reply("Hello there, friend.", chunk_chars=4)
    messages: Any = [{"role": "user", "content": "hi"}]

    async def chat(stream: bool) -> str:
        made = await openai.chat.completions.create(model="gpt-5", messages=messages, stream=stream)
        if not stream:
            return made.choices[0].message.content
        return "".join([c.choices[0].delta.content or "" async for c in made if c.choices])

    async def responses(stream: bool) -> str:
        made = await openai.responses.create(model="gpt-5", input="hi", stream=stream)
        if not stream:
            return made.output_text
        return "".join([e.delta async for e in made if e.type == "response.output_text.delta"])

    async def message(stream: bool) -> str:
        made = await anthropic.messages.create(model="claude-opus-5-5", max_tokens=9, messages=messages, stream=stream)
        if not stream:
            return made.content[0].text
        return "".join([e.delta.text async for e in made if e.type == "content_block_delta"])

    return {"chat": chat, "responses": responses, "messages": message}[api]


@pytest.mark.parametrize("code", [400, 401, 404, 429, 500, 503, 529])
async def test_the_next_requests_fail_with_a_status(server: ProviderServer, ask: Ask, api: str, code: int):
    server.fail(status(code), times=2)
    for _ in range(2):
        with pytest.raises(STATUS) as failed:
            await ask(False)
        assert failed.value.status_code == code
        body: Any = failed.value.body
        error = body["error"] if api == "messages" else body
        assert error["type"]
        assert error["message"]
    assert await ask(False) == "Hello there, friend."
    assert (server.counters.faulted, server.counters.made, server.counters.refused) == (2, 1, 0)
    assert [request.status for request in server.requests] == [code, code, 200]


async def test_retry_after_in_seconds_and_as_a_date(server: ProviderServer, ask: Ask):
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    server.fail(status(429, retry_after=1.5, message="slow down"))
    server.fail(status(503, retry_after=moment))
    with pytest.raises(STATUS, match="slow down") as first:
        await ask(True)
    with pytest.raises(STATUS) as second:
        await ask(True)
    assert first.value.response.headers["retry-after"] == "1.5"
    assert parsedate_to_datetime(second.value.response.headers["retry-after"]) == moment


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_is_reset_before_the_answer(server: ProviderServer, ask: Ask, stream: bool):
    server.fail(reset())
    with pytest.raises(BROKEN):
        await ask(stream)
    record = server.requests[0]
    assert (record.status, record.aborted, record.fault, record.closed_by) == (None, True, "reset", "server")
    assert server.counters.made == 0
    assert await ask(stream) == "Hello there, friend."


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_is_cut(server: ProviderServer, ask: Ask, stream: bool, fraction: float):
    """The answer was made, and would be billed, but never arrived whole."""
    server.fail(cut(fraction))
    with pytest.raises(BROKEN):
        await ask(stream)
    record = server.requests[0]
    assert (record.status, record.aborted, record.completed) == (200, True, False)
    assert (server.counters.made, server.counters.finished) == (1, 0)
    assert await ask(stream) == "Hello there, friend."


async def test_the_sdks_own_retries_pay_twice_for_a_cut_answer(server: ProviderServer, openai: Sdk):
    server.fail(cut())
    client = openai.with_options(max_retries=2)
    await client.responses.create(model="gpt-5", input="hi")
    assert (server.counters.made, server.counters.finished) == (2, 1)


async def test_a_stream_ends_with_an_error_event(server: ProviderServer, ask: Ask, api: str):
    server.fail(stream_error(529), times=2)
    if api == "responses":
        assert await ask(True) != "Hello there, friend."  # the SDK hands `response.failed` on as an event
    else:
        with pytest.raises((openai_sdk.APIError, anthropic_sdk.APIStatusError)):
            await ask(True)
    assert server.requests[0].status == 200
    with pytest.raises(STATUS):
        await ask(False)
    assert server.requests[1].status == 529


@pytest.mark.parametrize("at", ["start", "body"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_stalls_until_its_gate_opens(
    server: ProviderServer, ask: Ask, stream: bool, at: Literal["start", "body"]
):
    server.fail(stall(gate="go", at=at))
    asking = asyncio.create_task(ask(stream))
    record = await server.wait_for_request(1)
    with pytest.raises(TimeoutError):
        await record.ended(timeout_seconds=0.05)
    server.gate("go").set()
    assert await asking == "Hello there, friend."
    await record.ended()
    assert record.completed


async def test_an_answer_stalls_for_a_time(server: ProviderServer, ask: Ask):
    server.fail(stall(0.1))
    begun = time.monotonic()
    await ask(False)
    assert time.monotonic() - begun >= 0.1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_trickles(server: ProviderServer, ask: Ask, stream: bool):
    server.fail(slow(0.01))
    begun = time.monotonic()
    assert await ask(stream) == "Hello there, friend."
    assert time.monotonic() - begun >= 0.05


async def test_a_script_can_order_faults_and_delays(server: ProviderServer, openai: Sdk):
    answers = [reply("x", fault=status(500)), reply("x", fault=cut()), reply("late", delay_seconds=0.1)]
    server.script = lambda request: answers[request.index]
    with pytest.raises(STATUS):
        await openai.responses.create(model="gpt-5", input="hi")
    with pytest.raises(BROKEN):
        await openai.responses.create(model="gpt-5", input="hi")
    begun = time.monotonic()
    assert (await openai.responses.create(model="gpt-5", input="hi")).output_text == "late"
    assert time.monotonic() - begun >= 0.1
    assert [request.fault for request in server.requests] == ["status", "cut", None]


async def test_a_fault_can_pick_its_request(server: ProviderServer, openai: Sdk):
    server.fail(status(500), where=lambda record: record.body["input"] == "second")
    await openai.responses.create(model="gpt-5", input="first")
    with pytest.raises(STATUS):
        await openai.responses.create(model="gpt-5", input="second")
    await openai.responses.create(model="gpt-5", input="second")
