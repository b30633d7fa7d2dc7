"""Records that only a provider can have made, one kind at a time: they go back as they came, or nothing is sent."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryImage,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from laneway.activities.pydantic_parts import facts_of_response
from laneway.errors import HistoryProcessingValidationError

from tests.editing.steps import agent_of, ask
from tests.history.edits import Context, entries_of
from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderServer, RequestRecord, answer, call, thinking
from tests.support.provider.messages_rules import SUMMARY

Edit = Callable[[Context], list[ModelMessage]]


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def claude(server: ProviderServer) -> AsyncIterator[Model]:
    async with anthropic_client(server) as client:
        yield AnthropicModel("claude-opus-5", provider=AnthropicProvider(anthropic_client=client))


@pytest.fixture
async def gpt(server: ProviderServer) -> AsyncIterator[Model]:
    async with openai_client(server) as client:
        yield OpenAIResponsesModel("gpt-5.2", provider=OpenAIProvider(openai_client=client))


def user(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


async def talk(agent: Agent[None, str], *prompts: str) -> list[ModelMessage]:
    history = list[ModelMessage]()
    for prompt in prompts:
        history = (await agent.run(prompt, message_history=history)).all_messages()
    return [*history, user("now")]


async def sent(
    server: ProviderServer, model: Model, history: list[ModelMessage], edit: Edit, *, request_index: int = 1
) -> RequestRecord:
    """The one request that an accepted edit led to."""
    first = len(server.requests)
    await ask(agent_of(model), history, entries_of(history, "earlier"), edit, request_index=request_index)
    (record,) = server.requests[first:]
    assert record.refusal is None
    return record


async def rejected(
    server: ProviderServer, model: Model, history: list[ModelMessage], edit: Edit, *, request_index: int = 1
) -> str:
    """The rule that an edit broke; nothing was sent."""
    first = len(server.requests)
    with pytest.raises(HistoryProcessingValidationError) as refused:
        await ask(agent_of(model), history, entries_of(history, "earlier"), edit, request_index=request_index)
    assert server.requests[first:] == []
    return str(refused.value.rule)


def without_part(ctx: Context, index: int, part: int) -> list[ModelMessage]:
    message = copy.copy(ctx.messages[index])
    message.parts = [one for at, one in enumerate(message.parts) if at != part]  # type: ignore[assignment]
    return [*ctx.messages[:index], message, *ctx.messages[index + 1 :]]


def in_front(ctx: Context) -> list[ModelMessage]:
    """A note where it touches no group."""
    return [user("a note"), *ctx.messages]


@pytest.mark.parametrize("redacted", [False, True], ids=["thinking", "redacted"])
async def test_signed_and_redacted_thinking_goes_back_as_it_came(server: ProviderServer, claude: Model, redacted: bool):
    server.script = lambda request: answer(thinking("hm", redacted=redacted), f"re: {request.prompt}")
    history = await talk(agent_of(claude), "one", "two")
    kind, key = ("redacted_thinking", "data") if redacted else ("thinking", "signature")
    record = await sent(server, claude, history, in_front)
    blocks = [block for message in record.body["messages"] for block in message["content"] if block["type"] == kind]
    assert [block[key] for block in blocks] == [history[1].parts[0].signature, history[3].parts[0].signature]  # type: ignore[union-attr]
    assert await rejected(server, claude, history, lambda ctx: without_part(ctx, 1, 0)) == "protected_changed"
    assert await rejected(server, claude, history, lambda ctx: ctx.messages[2:]) == "protected_removed"

    def altered(ctx: Context) -> list[ModelMessage]:
        part = ctx.messages[1].parts[0]
        assert isinstance(part, ThinkingPart)
        part.signature = "forged"
        return ctx.messages

    assert await rejected(server, claude, history, altered) == "protected_changed"


async def test_a_reasoning_item_keeps_the_item_that_follows_it(server: ProviderServer, gpt: Model):
    """The provider wants both or neither; the group that holds them goes back whole."""
    server.script = lambda request: (
        answer(thinking("hm"), call("stock", {"q": "a"})) if request.step == 0 else answer(thinking("so"), "done")
    )
    history = await talk(agent_of(gpt), "one")
    record = await sent(server, gpt, history, in_front)
    kinds = [item.get("type", item.get("role")) for item in record.body["input"]]
    at = [number for number, kind in enumerate(kinds) if kind == "reasoning"]
    assert len(at) == 2
    assert kinds[at[0] + 1] == "function_call"
    assert record.body["input"][at[1] + 1]["role"] == "assistant"
    assert await rejected(server, gpt, history, lambda ctx: without_part(ctx, 1, 0)) == "protected_changed"
    assert await rejected(server, gpt, history, lambda ctx: without_part(ctx, 3, 1)) == "protected_changed"


async def test_thinking_with_an_empty_signature_is_not_signed(server: ProviderServer, claude: Model):
    """Its group may go; where it stays, it is sent as text, since no provider would take it back."""
    empty = ModelResponse([ThinkingPart("hm", signature="", provider_name="anthropic"), TextPart("1")])
    history: list[ModelMessage] = [user("one"), empty, user("two"), ModelResponse([TextPart("2")]), user("now")]
    record = await sent(server, claude, history, in_front)
    assert "thinking" not in [block["type"] for message in record.body["messages"] for block in message["content"]]
    record = await sent(server, claude, history, lambda ctx: ctx.messages[2:])
    assert len(record.body["messages"]) == 3


SIGNED = {"thought_signature": "c2ln"}


@pytest.mark.parametrize(
    "part",
    [
        TextPart("t", provider_name="google", provider_details=SIGNED),
        ToolCallPart("stock", {}, "a", provider_name="google", provider_details=SIGNED),
        FilePart(BinaryImage(b"x", media_type="image/png"), provider_name="google", provider_details=SIGNED),
        ThinkingPart("t", provider_name="google", provider_details=SIGNED),
        ThinkingPart("t", signature="c2ln", provider_name="google"),
    ],
    ids=["text", "call", "file", "thinking with details", "thinking with a signature"],
)
def test_a_thought_signature_of_googles_makes_any_part_a_record(part: Any):
    assert facts_of_response(ModelResponse([part])).provider
    bare = replace(part, provider_details=None, **({"signature": None} if isinstance(part, ThinkingPart) else {}))
    assert not facts_of_response(ModelResponse([bare])).provider


async def test_native_tool_parts_stay_together_and_whole(server: ProviderServer, claude: Model):
    searched = ModelResponse(
        [
            NativeToolCallPart("web_search", {"query": "x"}, "srvtoolu_1", provider_name="anthropic"),
            NativeToolReturnPart("web_search", [], "srvtoolu_1", provider_name="anthropic"),
            TextPart("1"),
        ],
        provider_name="anthropic",
    )
    history: list[ModelMessage] = [user("one"), searched, user("two"), ModelResponse([TextPart("2")]), user("now")]
    record = await sent(server, claude, history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    kinds = [block["type"] for message in record.body["messages"] for block in message["content"]]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text", "text"]
    assert await rejected(server, claude, history, lambda ctx: without_part(ctx, 1, 1)) == "protected_changed"
    assert await rejected(server, claude, history, lambda ctx: ctx.messages[2:]) == "protected_removed"


async def test_a_compaction_stands_for_what_is_gone(server: ProviderServer, claude: Model):
    compacted = ModelResponse([CompactionPart(SUMMARY, provider_name="anthropic"), TextPart("1")])
    history: list[ModelMessage] = [user("one"), compacted, user("two"), ModelResponse([TextPart("2")]), user("now")]
    await sent(server, claude, history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    assert await rejected(server, claude, history, lambda ctx: ctx.messages[2:]) == "protected_removed"
    assert await rejected(server, claude, history, lambda ctx: without_part(ctx, 1, 0)) == "protected_changed"


@pytest.mark.parametrize("state", ["suspended", "interrupted", "incomplete"])
async def test_a_response_that_was_cut_off_or_paused_stays(server: ProviderServer, claude: Model, state: Any):
    cut = ModelResponse([TextPart("1, and")], state=state)
    history: list[ModelMessage] = [user("one"), cut, user("two"), ModelResponse([TextPart("2")]), user("now")]
    await sent(server, claude, history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    assert await rejected(server, claude, history, lambda ctx: ctx.messages[2:]) == "protected_removed"


RETRIES: dict[str, Callable[[str], Any]] = {
    "a retry prompt": lambda call_id: RetryPromptPart("again", tool_name="stock", tool_call_id=call_id),
    "a retried result": lambda call_id: ToolReturnPart("stock", "again", call_id, outcome="retried"),
}


@pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")
@pytest.mark.parametrize("api", ["gpt", "claude"])
@pytest.mark.parametrize("kind", RETRIES)
async def test_a_retry_answers_its_call(server: ProviderServer, gpt: Model, claude: Model, kind: str, api: str):
    """The exchange is one group: it goes whole, stays whole, and is refused in parts."""
    model = {"gpt": gpt, "claude": claude}[api]
    history: list[ModelMessage] = [
        user("one"),
        ModelResponse([ToolCallPart("stock", {"q": "x"}, "a1")]),
        ModelRequest([RETRIES[kind]("a1")]),
        ModelResponse([ToolCallPart("stock", {"q": "y"}, "a2")]),
        ModelRequest([ToolReturnPart("stock", 1, "a2")]),
        ModelResponse([TextPart("1")]),
        user("two"),
        ModelResponse([TextPart("2")]),
        user("now"),
    ]
    await sent(server, model, history, in_front)
    await sent(server, model, history, lambda ctx: ctx.messages[6:])
    assert await rejected(server, model, history, lambda ctx: [*ctx.messages[:2], *ctx.messages[3:]]) == "orphan_call"
    assert await rejected(server, model, history, lambda ctx: [ctx.messages[0], *ctx.messages[2:]]) == "orphan_result"


async def test_a_call_that_waits_for_an_approval_stays_until_it_is_answered(server: ProviderServer, claude: Model):
    """Unanswered it is unfinished; answered by the request at hand, call and answer are one open group."""
    waiting: list[ModelMessage] = [
        user("old"),
        ModelResponse([TextPart("0")]),
        user("one"),
        ModelResponse([ToolCallPart("stock", {"q": "x"}, "a1"), ToolCallPart("stock", {"q": "y"}, "a2")]),
        ModelRequest([ToolReturnPart("stock", "approved", "a1"), ToolReturnPart("stock", "denied", "a2")]),
    ]
    record = await sent(server, claude, waiting, lambda ctx: ctx.messages[2:], request_index=2)
    assert len(record.body["messages"]) == 3
    gone = await rejected(server, claude, waiting, lambda ctx: [*ctx.messages[:3], ctx.messages[4]], request_index=2)
    assert gone in ("protected_removed", "orphan_result")
