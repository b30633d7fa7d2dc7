"""Compaction by the provider, on the wire: OpenAI's Responses API and Anthropic, streamed and not."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic_ai.messages import CompactionPart, ModelResponse

from laneway import EventKind, HistoryProcessorContext, PydanticAdapter
from laneway.activities.pydantic_compaction import COMPACTION, can_compact
from laneway.errors import ConfigurationError, TurnFailed, UnsupportedCapability

from tests.editing.agents import Recorder
from tests.support.bench import Bench
from tests.support.provider import answer, call, in_order
from tests.wire.providers import FRAMEWORKS, Api, Framework, wire

LONG = "tell me more of it " * 14_000
"""More than 50,000 tokens, which is the least that Anthropic compacts from."""


def drop_all(ctx: HistoryProcessorContext[Any]) -> Any:
    return ctx.keep_recent_groups(0)


def compactions_of(message: Any) -> int:
    if isinstance(message, ModelResponse):
        return sum(isinstance(part, CompactionPart) for part in message.parts)
    blocks = message.content if isinstance(message, AIMessage) else []
    return sum(isinstance(block, dict) and block.get("type") == "compaction" for block in blocks)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_a_compaction_is_a_protected_record_and_one_epoch(
    bench: Bench, conversation_id: str, api: Api, stream: bool, framework: Framework
):
    """It comes with an answer, in the middle of a tool loop; what came before it is not sent again, and sending it back
    rotates the epoch no more; no edit can take it away."""
    answers = ["Hello.", answer(call("add", {"a": 1, "b": 2})), "3 it is.", "Fine.", "Bye."]
    async with wire(in_order(*answers)) as provider:
        client = await bench.serve({"agent": provider.adapter(api, stream=stream, framework=framework)})
        async with client.history(conversation_id, compaction_mode="native", compaction_threshold=50_000) as talk:
            await client.ask("agent", "hello")
            assert (await talk.status("agent")).epoch == 0
            turn = await client.current.submit("agent", LONG)
            events = [event async for event in turn.events()]
            assert (await turn.result()).output == "3 it is."
            assert (await talk.status("agent")).epoch == 1
            await client.ask("agent", "fine?")
            assert (await talk.status("agent")).epoch == 1
            async with client.history(processor=drop_all):
                await client.ask("agent", "bye")
        sent = provider.server.requests
        messages = await talk.messages("agent")
        records = await client.turns(talk.lane("agent"))
    assert [record.refusal for record in sent] == [None] * 5
    assert [LONG in str(record.body) for record in sent] == [False, True, False, False, False]
    assert sum(map(compactions_of, messages)) == 1
    receipts = [receipt for record in records[:3] for receipt in record.tally.edits]
    assert [receipt.processor for receipt in receipts] == [COMPACTION]
    assert receipts[0].tokens_before > 50_000 > receipts[0].tokens_after
    assert [event.data["processor"] for event in events if event.kind is EventKind.HISTORY_REWRITTEN] == [COMPACTION]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_below_its_threshold_nothing_is_compacted(
    bench: Bench, conversation_id: str, api: Api, framework: Framework
):
    async with wire(in_order("Hello.", "Again.")) as provider:
        client = await bench.serve({"agent": provider.adapter(api, framework=framework)})
        async with client.history(conversation_id, compaction_mode="native", compaction_threshold=60_000) as talk:
            await client.ask("agent", "hello")
            async with client.history(compaction_mode="disabled"):
                await client.ask("agent", "again")
        bodies = [record.body for record in provider.server.requests]
        assert (await talk.status("agent")).epoch == 0
    assert ["context_management" in body for body in bodies] == [True, False]
    assert "60000" in str(bodies[0]["context_management"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_where_no_provider_compacts_nothing_is_sent(bench: Bench, conversation_id: str, framework: Framework):
    """Refused by the client; and a threshold that the provider would refuse by the step, before it asks."""
    agent = Recorder()
    async with wire(in_order("Hello.")) as provider:
        agents = {
            "agent": agent.adapter(),
            "chat": provider.adapter("chat", framework=framework),
            "claude": provider.adapter("messages", framework=framework),
        }
        client = await bench.serve(agents)
        async with client.history(conversation_id, compaction_mode="native"):
            for name in ("agent", "chat"):
                assert "native_compaction" not in client.capabilities(name)
                with pytest.raises(UnsupportedCapability, match="native_compaction"):
                    await client.ask(name, "hello")
            async with client.history(compaction_threshold=1000):
                with pytest.raises(TurnFailed, match="give 50000 or more") as failed:
                    await client.ask("claude", "hello")
        assert failed.value.error_type == "ConfigurationError"
        async with client.history(conversation_id, compaction_mode="disabled", compaction_threshold=1000):
            with pytest.raises(ConfigurationError, match="compaction_mode='native'"):
                await client.ask("claude", "hello")
        assert provider.server.requests == []
    assert agent.sent == []


def test_which_models_can():
    assert can_compact("anthropic:claude-sonnet-5")
    assert can_compact("openai:gpt-5")
    assert not can_compact("openai-chat:gpt-5")
    assert not can_compact("google:gemini-3")
    assert not can_compact(None)
    assert "native_compaction" not in PydanticAdapter(Recorder().adapter().agent).capabilities
