"""Hooks on prompts, as a provider sees it: an edited prompt is all that there is, a denied one was never there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from laneway import Deny, Edit, Hooks, Laneway, LanewayClient, RequestBudget, Telemetry, Turn, UserPromptSubmit
from laneway.errors import TurnDenied, TurnFailed

from tests.observability.collector import Collector
from tests.support.bench import Bench
from tests.support.contents import everything_in, temporal_history
from tests.support.provider import Answerable, ProviderRequest, always, by_step, call
from tests.wire.providers import APIS, FRAMEWORKS, Api, Framework, wire
from tests.wire.test_requests import bodies

EITHER = pytest.mark.parametrize("framework", FRAMEWORKS)
API = pytest.mark.parametrize("api", APIS)

SECRET = "xyzzy-4711"
"""What is in prompts that were submitted, and must be nowhere afterwards."""


def redact(event: UserPromptSubmit) -> Edit | Deny | None:
    """Edits prompts with the secret, and denies those that beg."""
    if "please" in event.prompt:
        return Deny("no begging")
    return Edit(event.prompt.replace(SECRET, "one and two")) if SECRET in event.prompt else None


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


async def everywhere(
    client: LanewayClient, redis: Redis, turns: list[Turn], events: list[Any], collector: Collector, sent: list[Any]
) -> dict[str, str]:
    """All that is left of turns, by where it is."""
    await asyncio.to_thread(collector.flush)
    lane = turns[0].lane
    return {
        "on the wire": str([(record.path, record.headers, record.body) for record in sent]),
        "in Redis": str(await everything_in(redis, client.settings)),
        "in Temporal": str(await temporal_history(client, client.workflow_id(lane))),
        "in telemetry": str([span.text for span in collector.spans]) + str(collector.points),
        "in events": str(events),
        "in records": str(await client.turns(lane)),
        "in the history": str(await client.messages(lane)),
    }


@EITHER
@API
async def test_the_original_of_an_edited_prompt_is_nowhere(
    bench: Bench, redis: Redis, conversation_id: str, collector: Collector, api: Api, framework: Framework
):
    """Neither while the turn runs nor afterwards; and what is sent is what a caller of the edited prompt would send."""
    arrived, goes_on = asyncio.Event(), asyncio.Event()
    steps = by_step([call("add", {"a": 1, "b": 2}), "It is 3."], ["You are welcome."])

    async def script(request: ProviderRequest) -> Answerable:
        arrived.set()
        await goes_on.wait()
        value: Any = steps(request)
        return value  # type: ignore[no-any-return]

    given = collector.telemetry
    telemetry = Telemetry(given.tracer_provider, given.meter_provider, include_content=True)
    async with wire(script) as provider:
        agents = {"agent": provider.adapter(api, framework=framework)}
        app = Laneway(agents=agents, hooks=Hooks(user_prompt_submit=redact), telemetry=telemetry)
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id)
            first = await conversation.submit("agent", f"add {SECRET}")
            events: list[Any] = []

            async def listen() -> None:
                events.extend([(event.kind, event.data) async for event in first.events()])

            listening = asyncio.create_task(listen())
            await arrived.wait()
            assert SECRET not in str(await everything_in(redis, bench.settings)), "while the model is asked"
            goes_on.set()
            assert (await first.result()).output == "It is 3."
            second = await conversation.submit("agent", "thank you")
            await second.result()
            await listening
            sent = list(provider.server.requests)
            left = await everywhere(client, redis, [first, second], events, collector, sent)
            assert [place for place, what in left.items() if SECRET in what] == []
            said = [place for place, what in left.items() if "add one and two" in what]
            assert said == ["on the wire", "in Redis", "in telemetry", "in the history"]
            plain = client.conversation(f"{conversation_id}-plain")
            await plain.ask("agent", "add one and two")
            await plain.ask("agent", "thank you")
        assert bodies(provider.server.requests[len(sent) :]) == bodies(sent)


@EITHER
@API
async def test_a_denied_turn_sends_nothing_and_leaves_nothing_in_history(
    bench: Bench, redis: Redis, conversation_id: str, collector: Collector, api: Api, framework: Framework
):
    given = collector.telemetry
    telemetry = Telemetry(given.tracer_provider, given.meter_provider, include_content=True)
    async with wire(always("here you are")) as provider:
        agents = {"agent": provider.adapter(api, framework=framework)}
        app = Laneway(agents=agents, telemetry=telemetry)
        app.hook(redact)
        async with (
            app.worker(bench.settings),
            app.client(bench.settings) as client,
            client.history(conversation_id, hooks=Hooks(user_prompt_submit="redact")) as conversation,
        ):
            await client.ask("agent", "hello")
            before = await conversation.status("agent")
            denied = await conversation.submit("agent", f"please, {SECRET}")
            events = [(event.kind, event.data) async for event in denied.events()]
            with pytest.raises(TurnDenied, match="no begging"):
                await denied.result()
            after = await conversation.status("agent")
            assert (after.head, after.version) == (before.head, before.version)
            async with client.history(enabled=False):
                with pytest.raises(TurnDenied):
                    await client.ask("agent", f"please, {SECRET}, by itself")
            assert len(provider.server.requests) == 1
            await client.ask("agent", "bye")
            sent = list(provider.server.requests)
            assert len(sent) == 2
            left = await everywhere(client, redis, [denied], events, collector, sent)
            assert [place for place, what in left.items() if SECRET in what] == []
            assert [place for place, what in left.items() if "no begging" in what] == [
                "in Redis",
                "in events",
                "in records",
            ]
            assert len(await conversation.messages("agent")) == 4


@EITHER
async def test_a_budget_sees_the_edited_prompt(bench: Bench, conversation_id: str, framework: Framework):
    """One that was made short enough is sent, and one that was made too long is not."""

    def resized(event: UserPromptSubmit) -> Edit:
        return Edit("word " * 3000 if event.prompt == "short" else "short now")

    budget = RequestBudget(max_request_tokens=1500)
    async with wire(always("here you are")) as provider:
        agents = {"agent": provider.adapter("responses", framework=framework)}
        app = Laneway(agents=agents, hooks=Hooks(user_prompt_submit=resized))
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id, budget=budget)
            with pytest.raises(TurnFailed) as failed:
                await conversation.ask("agent", "short")
            assert failed.value.error_type in ("RequestTooLarge", "fit-overflow")
            assert provider.server.requests == []
            await conversation.ask("agent", "word " * 3000)
        (request,) = provider.server.requests
    assert "short now" in str(request.body)


@EITHER
@pytest.mark.parametrize(("hook", "error"), [("raises", "HookError"), ("hangs", "HookTimedOut")])
@pytest.mark.parametrize("place", ["user_prompt_submit", "before_model_request"])
async def test_nothing_is_sent_after_a_hook_that_failed(
    bench: Bench, conversation_id: str, framework: Framework, hook: str, error: str, place: str
):
    async def fails(event: Any) -> None:
        if hook == "hangs":
            await asyncio.Event().wait()
        raise ValueError("no")

    hooks: dict[str, Any] = {place: fails}
    async with wire(always("here you are")) as provider:
        agents = {"agent": provider.adapter("responses", framework=framework)}
        app = Laneway(agents=agents, hooks=Hooks(**hooks, timeout=timedelta(seconds=0.05)))
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id)
            with pytest.raises(TurnFailed) as failed:
                await conversation.ask("agent", "hello")
            assert failed.value.error_type == error
            assert await conversation.messages("agent") == []
        assert provider.server.requests == []
