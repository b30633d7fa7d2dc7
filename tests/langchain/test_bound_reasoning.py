"""Reasoning tied to the system text and the tools that a deploy of a graph changes, seen on the wire."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool

from laneway import EventKind, HistoryProcessorContext, LangChainAdapter
from laneway.errors import TurnFailed

from tests.editing.langchain_steps import anthropic_model
from tests.editing.test_bound_reasoning import reasons, thoughts_sent
from tests.support.bench import Bench
from tests.support.provider import ProviderServer

BINDING, UNBOUND = "claude-sonnet-5-5", "claude-opus-5"
DROP: Any = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


def adapter(
    server: ProviderServer,
    prompt: str = "Be brief.",
    *,
    model: str = BINDING,
    description: str = "Looks.",
    processor: Any = None,
    stream: bool = True,
    **settings: Any,
) -> LangChainAdapter:
    @tool(description=description)
    def look() -> str:
        return "seen"

    asked = anthropic_model(server, model, **settings)
    graph = create_agent(asked, [look], system_prompt=prompt)
    return LangChainAdapter(graph, history_processor=processor, stream=stream)


def thoughts_of(messages: list[BaseMessage]) -> list[str]:
    return [
        block["thinking"]
        for message in messages
        if isinstance(message.content, list)
        for block in message.content
        if isinstance(block, dict) and block.get("type") == "thinking"
    ]


CHANGES: dict[str, dict[str, Any]] = {
    "system text": {"prompt": "Be very brief."},
    "a tool": {"description": "Looks closely."},
}


@pytest.mark.parametrize(("change", "stream"), [("system text", True), ("a tool", False)])
async def test_a_deploy_releases_what_was_signed_under_the_old_text_or_tools(
    bench: Bench, conversation_id: str, change: str, stream: bool
):
    """Before the request, by name and once: the provider refuses nothing, and new thoughts are kept again."""
    async with ProviderServer(reasons, bind_thinking=True) as server:
        worker = await bench.worker({"agent": adapter(server, stream=stream)})
        client = await bench.client({"agent": adapter(server)})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await conversation.ask("agent", "look two")
        await worker.aclose()
        await bench.worker({"agent": adapter(server, stream=stream, **CHANGES[change])})
        turn = await conversation.submit("agent", "look three")
        events = [event async for event in turn.events()]
        await conversation.ask("agent", "four")
        assert [record.refusal for record in server.requests] == [None] * len(server.requests)
        assert thoughts_sent(server) == [0, 1, 2, 0, 1, 2]
        (receipt,) = (await turn.record()).tally.edits
        assert receipt.processor == "laneway:bound_reasoning"
        assert len(set(receipt.released_reasoning)) == 3
        assert (receipt.request_index, receipt.groups_before, receipt.groups_after) == (1, 3, 3)
        assert receipt.tokens_after < receipt.tokens_before
        assert (receipt.epoch_before, receipt.epoch_after) == (0, 1)
        assert [event.data["processor"] for event in events if event.kind is EventKind.HISTORY_REWRITTEN] == [
            "laneway:bound_reasoning"
        ]
        assert (await conversation.status("agent")).epoch == 1
        messages = await conversation.messages("agent")
        assert len(thoughts_of(messages)) == 3
        said = [str(message.text) for message in messages if message.text and message.type != "tool"]
        assert said == [text for one in ("one", "look two", "look three", "four") for text in (one, f"re: {one}")]


async def test_the_same_text_on_another_worker_releases_nothing(bench: Bench, conversation_id: str):
    async with ProviderServer(reasons, bind_thinking=True) as server:
        client = await bench.client({"agent": adapter(server)})
        for prompt in ("one", "look two", "three"):
            worker = await bench.worker({"agent": adapter(server)})
            await client.conversation(conversation_id).ask("agent", prompt)
            await worker.aclose()
        assert thoughts_sent(server) == [0, 1, 2, 3]
        head = await client.store.head(client.conversation(conversation_id).lane("agent"))
        assert head is not None
        assert head.checkpoint.epoch == 0


async def test_a_model_that_does_not_bind_keeps_its_reasoning(bench: Bench, conversation_id: str):
    async with ProviderServer(reasons) as server:
        worker = await bench.worker({"agent": adapter(server, model=UNBOUND)})
        client = await bench.client({"agent": adapter(server, model=UNBOUND)})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await worker.aclose()
        await bench.worker({"agent": adapter(server, "Be very brief.", model=UNBOUND)})
        await conversation.ask("agent", "two")
        assert thoughts_sent(server) == [0, 1]
        assert (await conversation.status("agent")).epoch == 0
        head = await client.store.head(conversation.lane("agent"))
        assert head is not None
        assert "prefix" not in head.extras


@pytest.mark.parametrize("drops", [False, True], ids=["refused", "left to the provider"])
async def test_a_change_within_a_turn_is_refused_before_anything_is_sent(
    bench: Bench, conversation_id: str, drops: bool
):
    """Its reasoning carries the work. A caller who has the provider drop such reasoning is left to it."""
    options: dict[str, Any] = {"thinking": DROP, "betas": ["thinking-binding-controls-2026-08-01"]} if drops else {}
    async with ProviderServer(reasons, bind_thinking=True) as server:
        agent = adapter(server, **options)
        changed = adapter(server, "Be very brief.", **options)
        before, taken = agent.step, itertools.count()

        async def step(work: Any) -> Any:
            # The model's answer, its tool call, and then the deploy.
            return await (before if next(taken) < 2 else changed.step)(work)

        agent.step = step  # type: ignore[method-assign]
        client = await bench.serve({"agent": agent})
        conversation = client.conversation(conversation_id)
        if drops:
            assert (await conversation.ask("agent", "look one")).output == "re: look one"
            assert thoughts_sent(server) == [0, 1]
            assert (await conversation.status("agent")).epoch == 0
            return
        with pytest.raises(TurnFailed, match="submit the turn again") as failed:
            await conversation.ask("agent", "look one")
        assert failed.value.error_type == "HistoryProcessingValidationError"
        assert len(server.requests) == 1
        assert (await conversation.ask("agent", "two")).output == "re: two"
        assert all(record.refusal is None for record in server.requests)


@pytest.mark.filterwarnings("ignore:the history processor")
async def test_an_edit_and_a_deploy_before_one_request_are_one_rewrite(bench: Bench, conversation_id: str):
    """One epoch, one receipt: the processor's, with what both released. A repeated attempt asks it no more."""
    edits: list[int] = []

    def add_note(ctx: HistoryProcessorContext[BaseMessage]) -> list[BaseMessage]:
        if "edit" not in str(ctx.messages[-1].content):
            return ctx.messages
        edits.append(len(edits))
        at = ctx.groups[1].entry_start
        return [*ctx.messages[:at], HumanMessage("A note."), AIMessage("Noted."), *ctx.messages[at:]]

    async with ProviderServer(reasons, bind_thinking=True) as server:
        worker = await bench.worker({"agent": adapter(server, processor=add_note)})
        client = await bench.client({"agent": adapter(server)})
        conversation = client.conversation(conversation_id)
        for prompt in ("one", "two"):
            await conversation.ask("agent", prompt)
        await worker.aclose()
        await bench.worker({"agent": adapter(server, "Be very brief.", processor=add_note)})
        turn = await conversation.submit("agent", "edit")
        await turn.result()
        assert all(record.refusal is None for record in server.requests)
        assert thoughts_sent(server) == [0, 1, 0]
        (receipt,) = (await turn.record()).tally.edits
        assert "add_note" in receipt.processor
        assert len(receipt.released_reasoning) == 2
        assert (receipt.entries_before, receipt.entries_after) == (5, 7)
        assert (await conversation.status("agent")).epoch == 1
        assert len(edits) == 1
