"""A provider that fails: what is tried again, by whom, and how it ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import RetryPolicy
from laneway.errors import TurnFailed

from tests.support.bench import Bench
from tests.support.provider import Fault, always, cut, reset, status, stream_error
from tests.wire.providers import APIS, FRAMEWORKS, Api, Framework, wire

QUICK = RetryPolicy(first_delay=timedelta(milliseconds=20), backoff=1.0, max_attempts=3)
EITHER = pytest.mark.parametrize("framework", FRAMEWORKS)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


PASSING: dict[str, Fault] = {
    "500": status(500),
    "503": status(503),
    "429": status(429),
    "a reset": reset(),
    "a cut": cut(),
    "an error in the stream": stream_error(),
}


@STREAM
@EITHER
@pytest.mark.parametrize("api", APIS)
async def test_a_failure_that_may_pass_is_tried_again_once_for_each_attempt(
    bench: Bench, conversation_id: str, api: Api, stream: bool, framework: Framework
):
    """The SDK retries nothing by itself: each failure is one request, and one attempt in the turn's record."""
    async with wire(always("here you are")) as provider:
        client = await bench.serve({"agent": provider.adapter(api, stream=stream, policy=QUICK, framework=framework)})
        for name, fault in PASSING.items():
            first = len(provider.server.requests)
            times = 2 if fault is PASSING["500"] else 1
            provider.server.fail(fault, times=times)
            conversation = client.conversation(f"{conversation_id} {name}")
            turn = await conversation.submit("agent", "hello")
            assert (await turn.result()).output == "here you are", name
            bodies = [request.body for request in provider.server.requests[first:]]
            assert len(bodies) == times + 1, name
            assert all(body == bodies[0] for body in bodies)
            record = await turn.record()
            assert [(one.step, one.attempt) for one in record.attempts] == [(0, 1), (0, 2)][:times], name
            assert record.usage.requests == 1
            assert len(await conversation.messages("agent")) == 2
        assert provider.server.counters.finished == len(PASSING)


@EITHER
@pytest.mark.parametrize("api", APIS)
async def test_attempts_end_where_the_policy_says(bench: Bench, conversation_id: str, api: Api, framework: Framework):
    """After the last attempt the turn fails with the provider's own words; the lane goes on."""
    async with wire(always("here you are")) as provider:
        provider.server.fail(status(500, message="the machine is on fire"), times=3)
        client = await bench.serve({"agent": provider.adapter(api, policy=QUICK, framework=framework)})
        conversation = client.conversation(conversation_id)
        turn = await conversation.submit("agent", "hello")
        with pytest.raises(TurnFailed, match="the machine is on fire") as failed:
            await turn.result()
        assert failed.value.error_type in ("ModelServerError", "OpenAIAPIError", "AnthropicAPIError")
        assert len(provider.server.requests) == 3
        assert [one.attempt for one in (await turn.record()).attempts] == [1, 2, 3]
        assert await conversation.messages("agent") == []
        assert (await conversation.ask("agent", "again")).output == "here you are"


@STREAM
@EITHER
@pytest.mark.parametrize("api", APIS)
async def test_a_refusal_fails_the_turn_at_once(
    bench: Bench, conversation_id: str, api: Api, stream: bool, framework: Framework
):
    """It would be refused again: one request, one attempt, and the provider's message."""
    async with wire(always("here you are")) as provider:
        client = await bench.serve({"agent": provider.adapter(api, stream=stream, policy=QUICK, framework=framework)})
        conversation = client.conversation(conversation_id)
        for code in (400, 401, 403, 404, 422):
            first = len(provider.server.requests)
            provider.server.fail(status(code, message="not like this"))
            turn = await conversation.submit("agent", "hello")
            with pytest.raises(TurnFailed, match="not like this"):
                await turn.result()
            assert len(provider.server.requests) == first + 1
            record = await turn.record()
            assert [(one.step, one.attempt) for one in record.attempts] == [(0, 1)]
            assert "not like this" in record.attempts[0].error_message
        assert (await conversation.ask("agent", "again")).output == "here you are"


@EITHER
@pytest.mark.parametrize("api", APIS)
async def test_the_provider_says_when_to_come_back(bench: Bench, conversation_id: str, api: Api, framework: Framework):
    """`Retry-After` goes before the policy's own delay, up to its longest."""
    async with wire(always("here you are")) as provider:
        provider.server.fail(status(429, retry_after=1.0))
        client = await bench.serve({"agent": provider.adapter(api, policy=QUICK, framework=framework)})
        await client.conversation(conversation_id).ask("agent", "hello")
        first, second = provider.server.requests
        assert second.arrived_at - first.arrived_at >= 1.0


@EITHER
@pytest.mark.parametrize("api", APIS)
async def test_a_wait_longer_than_the_policy_allows_fails_the_turn(
    bench: Bench, conversation_id: str, api: Api, framework: Framework
):
    async with wire(always("here you are")) as provider:
        provider.server.fail(status(429, retry_after=3600))
        client = await bench.serve({"agent": provider.adapter(api, policy=QUICK, framework=framework)})
        with pytest.raises(TurnFailed) as failed:
            await client.conversation(conversation_id).ask("agent", "hello")
        assert failed.value.error_type.endswith("RateLimitError")
        assert len(provider.server.requests) == 1
