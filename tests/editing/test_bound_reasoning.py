"""Reasoning tied to instructions and tools that a deploy changes, seen on the wire."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ThinkingPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider

from laneway import EventKind, HistoryProcessorContext, PydanticAdapter
from laneway.errors import TurnFailed

from tests.editing.agents import texts_of
from tests.support.bench import Bench
from tests.support.clients import anthropic_client
from tests.support.provider import ProviderRequest, ProviderServer, answer, call, thinking

Sdk = Callable[[ProviderServer], AsyncAnthropic]
DROP: Any = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
BINDING, UNBOUND = "claude-sonnet-5-5", "claude-opus-5"


@pytest.fixture
async def sdk() -> AsyncIterator[Sdk]:
    """Makes SDK clients, and closes them after the test."""
    made: list[AsyncAnthropic] = []

    def make(server: ProviderServer) -> AsyncAnthropic:
        made.append(anthropic_client(server))
        return made[-1]

    yield make
    for client in made:
        await client.close()


def reasons(request: ProviderRequest) -> Any:
    """Thinks in every answer; calls `look` where the prompt says so."""
    thought = thinking(f"thought {request.turn}.{request.step}")
    if request.prompt.startswith("look") and request.step == 0:
        return answer(thought, call("look", {}))
    return answer(thought, f"re: {request.prompt}")


def adapter(
    client: AsyncAnthropic,
    instructions: Any = "Be brief.",
    *,
    model: str = BINDING,
    description: str = "Looks.",
    look: Callable[[], str] = lambda: "seen",
    processor: Any = None,
    stream: bool | None = None,
    system: Callable[[], str] | None = None,
    **settings: Any,
) -> PydanticAdapter[None, str]:
    agent = Agent(
        AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client)),
        instructions=instructions,
        model_settings=AnthropicModelSettings(**settings),
    )
    agent.tool_plain(name="look", description=description)(look)
    if system is not None:
        agent.system_prompt(dynamic=True)(system)
    return PydanticAdapter(agent, history_processor=processor, stream=stream)


def thoughts_sent(server: ProviderServer) -> list[int]:
    """How many thinking blocks each request carried."""
    return [
        sum(
            block["type"] == "thinking"
            for message in record.body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        )
        for record in server.requests
    ]


def thoughts_of(messages: list[ModelMessage]) -> list[str]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ThinkingPart)]


CHANGES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": "Be very brief."},
    "a tool": {"description": "Looks closely."},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_deploy_releases_what_was_signed_under_the_old_instructions_or_tools(
    bench: Bench, conversation_id: str, sdk: Sdk, change: str, stream: bool
):
    """Before the request, by name and once: the provider refuses nothing, and new thoughts are kept again."""
    async with ProviderServer(reasons, bind_thinking=True) as server:
        worker = await bench.worker({"agent": adapter(sdk(server), stream=stream)})
        client = await bench.client({"agent": adapter(sdk(server))})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await conversation.ask("agent", "look two")
        await worker.aclose()
        changed = CHANGES[change]
        await bench.worker({"agent": adapter(sdk(server), stream=stream, **changed)})
        turn = await conversation.submit("agent", "look three")
        events = [event async for event in turn.events()]
        await conversation.ask("agent", "four")
        assert [record.refusal for record in server.requests] == [None] * len(server.requests)
        assert thoughts_sent(server) == [0, 1, 2, 0, 1, 2]
        record = await turn.record()
        (receipt,) = record.tally.edits
        assert receipt.processor == "laneway:bound_reasoning"
        assert len(set(receipt.released_reasoning)) == 3
        assert (receipt.request_index, receipt.groups_before, receipt.groups_after) == (1, 3, 3)
        assert (receipt.entries_before, receipt.entries_after) == (7, 7)
        assert receipt.tokens_after < receipt.tokens_before
        assert (receipt.epoch_before, receipt.epoch_after) == (0, 1)
        assert [event.data["processor"] for event in events if event.kind is EventKind.HISTORY_REWRITTEN] == [
            "laneway:bound_reasoning"
        ]
        assert (await conversation.status("agent")).epoch == 1
        messages = await conversation.messages("agent")
        assert len(thoughts_of(messages)) == 3
        assert [text for text in texts_of(messages) if text not in ("ThinkingPart", "look()", "seen")] == [
            text for prompt in ("one", "look two", "look three", "four") for text in (prompt, f"re: {prompt}")
        ]


async def test_the_same_instructions_on_another_worker_release_nothing(bench: Bench, conversation_id: str, sdk: Sdk):
    async with ProviderServer(reasons, bind_thinking=True) as server:
        for prompt in ("one", "look two", "three"):
            worker = await bench.worker({"agent": adapter(sdk(server))})
            client = await bench.client({"agent": adapter(sdk(server))})
            await client.conversation(conversation_id).ask("agent", prompt)
            await worker.aclose()
        assert thoughts_sent(server) == [0, 1, 2, 3]
        head = await client.store.head(client.conversation(conversation_id).lane("agent"))
        assert head is not None
        assert head.checkpoint.epoch == 0


async def test_a_model_that_does_not_bind_keeps_its_reasoning_and_stores_nothing_for_it(
    bench: Bench, conversation_id: str, sdk: Sdk
):
    async with ProviderServer(reasons) as server:
        worker = await bench.worker({"agent": adapter(sdk(server), model=UNBOUND)})
        client = await bench.client({"agent": adapter(sdk(server), model=UNBOUND)})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await worker.aclose()
        await bench.worker({"agent": adapter(sdk(server), "Be very brief.", model=UNBOUND)})
        await conversation.ask("agent", "two")
        assert thoughts_sent(server) == [0, 1]
        head = await client.store.head(conversation.lane("agent"))
        assert head is not None
        assert (head.checkpoint.epoch, head.extras) == (0, {})


async def test_a_turn_that_fails_after_a_release_leaves_the_old_history(bench: Bench, conversation_id: str, sdk: Sdk):
    """The old instructions come back, and with them the reasoning is good again."""
    fails = [False]

    def script(request: ProviderRequest) -> Any:
        return answer(thinking("hm"), call("unknown", {})) if fails[0] else reasons(request)

    async with ProviderServer(script, bind_thinking=True) as server:
        worker = await bench.worker({"agent": adapter(sdk(server))})
        client = await bench.client({"agent": adapter(sdk(server))})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        head = await client.store.head(conversation.lane("agent"))
        await worker.aclose()
        worker = await bench.worker({"agent": adapter(sdk(server), "Be very brief.")})
        fails[0] = True
        with pytest.raises(TurnFailed):
            await conversation.ask("agent", "two")
        assert await client.store.head(conversation.lane("agent")) == head
        fails[0] = False
        await worker.aclose()
        await bench.worker({"agent": adapter(sdk(server))})
        await conversation.ask("agent", "three")
        assert thoughts_sent(server)[-1] == 1
        assert all(record.refusal is None for record in server.requests)


async def test_instructions_changed_by_a_deploy_within_a_turn_are_refused_before_anything_is_sent(
    bench: Bench, conversation_id: str, sdk: Sdk
):
    """Its reasoning carries the work. The message says what to do; the lane goes on with the next turn."""
    async with ProviderServer(reasons, bind_thinking=True) as server:
        agent = adapter(sdk(server))
        client = await bench.serve({"agent": agent})
        conversation = client.conversation(conversation_id)
        _deploy_after_the_first_answer(agent, server)
        with pytest.raises(TurnFailed, match="submit the turn again") as failed:
            await conversation.ask("agent", "look one")
        assert failed.value.error_type == "HistoryProcessingValidationError"
        assert len(server.requests) == 1
        assert (await conversation.ask("agent", "two")).output == "re: two"
        assert all(record.refusal is None for record in server.requests)


async def test_a_caller_who_has_the_provider_drop_is_left_to_it(bench: Bench, conversation_id: str, sdk: Sdk):
    settings = {"anthropic_thinking": DROP, "anthropic_betas": ["thinking-binding-controls-2026-08-01"]}
    async with ProviderServer(reasons, bind_thinking=True) as server:
        agent = adapter(sdk(server), **settings)
        client = await bench.serve({"agent": agent})
        conversation = client.conversation(conversation_id)
        _deploy_after_the_first_answer(agent, server)
        assert (await conversation.ask("agent", "look one")).output == "re: look one"
        assert thoughts_sent(server) == [0, 1]
        assert (await conversation.status("agent")).epoch == 0


def _deploy_after_the_first_answer(agent: PydanticAdapter[None, str], server: ProviderServer) -> None:
    """What a deploy between two steps does: the next one is taken by an agent with other static instructions."""
    model: Any = agent.agent.model
    changed = adapter(model.client, "Be very brief.", **(agent.agent.model_settings or {}))
    before, taken = agent.step, itertools.count()

    async def step(work: Any) -> Any:
        return await (before if next(taken) < 2 else changed.step)(work)

    agent.step = step  # type: ignore[method-assign]


@pytest.mark.filterwarnings("ignore::pydantic_ai.models.anthropic.AnthropicStaleThinkingBlockWarning")
async def test_instructions_that_a_function_makes_anew_within_a_turn_are_the_frameworks_to_recover(
    bench: Bench, conversation_id: str, sdk: Sdk
):
    """An agent that is told the time works as it does alone: the framework has the provider drop, and goes on."""
    clock = itertools.count()
    async with ProviderServer(reasons, bind_thinking=True) as server:
        client = await bench.serve({"agent": adapter(sdk(server), lambda: f"It is {next(clock)} o'clock.")})
        conversation = client.conversation(conversation_id)
        assert (await conversation.ask("agent", "look one")).output == "re: look one"
        assert (await conversation.ask("agent", "two")).output == "re: two"
        refused = [record.refusal is not None for record in server.requests]
        assert refused == [False, True, False, False]
        assert thoughts_sent(server) == [0, 1, 1, 0]  # once the cycle is closed, Laneway releases what it held


async def test_a_system_prompt_with_another_value_releases_too(bench: Bench, conversation_id: str, sdk: Sdk):
    """The framework changes it in the stored history; whatever was signed after the old one would be refused."""
    day = ["Monday"]
    async with ProviderServer(reasons, bind_thinking=True) as server:
        client = await bench.serve({"agent": adapter(sdk(server), system=lambda: f"It is {day[0]}.")})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await conversation.ask("agent", "two")
        day[0] = "Tuesday"
        await conversation.ask("agent", "three")
        await conversation.ask("agent", "four")
        assert all(record.refusal is None for record in server.requests)
        assert thoughts_sent(server) == [0, 1, 0, 1]
        assert (await conversation.status("agent")).epoch == 1


@pytest.mark.filterwarnings("ignore:the history processor")
async def test_an_edit_and_a_deploy_before_one_request_are_one_rewrite(bench: Bench, conversation_id: str, sdk: Sdk):
    """One epoch, one receipt: the processor's, with what both released."""

    def add_note(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
        if "edit" not in str(ctx.messages[-1]):
            return ctx.messages
        at = ctx.groups[1].entry_start
        return [*ctx.messages[:at], ModelRequest([UserPromptPart("A note.")]), *ctx.messages[at:]]

    async with ProviderServer(reasons, bind_thinking=True) as server:
        worker = await bench.worker({"agent": adapter(sdk(server), processor=add_note)})
        client = await bench.client({"agent": adapter(sdk(server))})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two"):
            await conversation.ask("agent", prompt)
        await worker.aclose()
        await bench.worker({"agent": adapter(sdk(server), "Be very brief.", processor=add_note)})
        turn = await conversation.submit("agent", "edit")
        await turn.result()
        assert all(record.refusal is None for record in server.requests)
        assert thoughts_sent(server) == [0, 1, 0]
        (receipt,) = (await turn.record()).tally.edits
        assert "add_note" in receipt.processor
        assert len(receipt.released_reasoning) == 2
        assert (receipt.entries_before, receipt.entries_after) == (5, 5)  # the note is merged with the prompt after it
        assert (await conversation.status("agent")).epoch == 1
