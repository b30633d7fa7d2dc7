"""Records that only a provider can have made, one kind at a time: they go back as they came, or nothing is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage
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

from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.pydantic_parts import facts_of_response
from laneway.errors import HistoryProcessingValidationError

from tests.editing.sides import SIDES, AnyEdit, LangChainSide, Side, side_of
from tests.support.provider import ProviderServer, RequestRecord, answer, call, thinking
from tests.support.provider.messages_rules import SUMMARY


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture(params=SIDES)
async def side(request: pytest.FixtureRequest, server: ProviderServer) -> AsyncIterator[Side]:
    """Each framework: the same history, edits and rules."""
    async with side_of(request.param, server) as opened:
        yield opened


def user(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


async def sent(
    server: ProviderServer, side: Side, model: str, history: list[Any], edit: AnyEdit, **which: int
) -> RequestRecord:
    """The one request that an accepted edit led to."""
    first = len(server.requests)
    await side.send(model, history, edit, **which)
    (record,) = server.requests[first:]
    assert record.refusal is None
    return record


async def rejected(
    server: ProviderServer, side: Side, model: str, history: list[Any], edit: AnyEdit, **which: int
) -> str:
    """The rule that an edit broke; nothing was sent."""
    first = len(server.requests)
    with pytest.raises(HistoryProcessingValidationError) as refused:
        await side.send(model, history, edit, **which)
    assert server.requests[first:] == []
    return str(refused.value.rule)


def without_part(side: Side, index: int, part: int) -> AnyEdit:
    """Takes one part out of one answer."""
    return lambda ctx: [
        side.without_part(message, part) if at == index else message for at, message in enumerate(ctx.messages)
    ]


def without(index: int) -> AnyEdit:
    """Takes one message out."""
    return lambda ctx: [*ctx.messages[:index], *ctx.messages[index + 1 :]]


def in_front(side: Side) -> AnyEdit:
    """Puts a note where it touches no group."""
    return lambda ctx: [side.user("a note"), *ctx.messages]


@pytest.mark.parametrize("redacted", [False, True], ids=["thinking", "redacted"])
async def test_signed_and_redacted_thinking_goes_back_as_it_came(server: ProviderServer, side: Side, redacted: bool):
    server.script = lambda request: answer(thinking("hm", redacted=redacted), f"re: {request.prompt}")
    history = await side.talk("claude", "one", "two")
    kind, key = ("redacted_thinking", "data") if redacted else ("thinking", "signature")
    record = await sent(server, side, "claude", history, in_front(side))
    blocks = [
        block
        for message in record.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == kind
    ]
    assert [block[key] for block in blocks] == [side.signature(history[1]), side.signature(history[3])]
    assert await rejected(server, side, "claude", history, without_part(side, 1, 0)) == "protected_changed"
    assert await rejected(server, side, "claude", history, lambda ctx: ctx.messages[2:]) == "protected_removed"

    def altered(ctx: Any) -> list[Any]:
        side.forge(ctx.messages[1])
        return list(ctx.messages)

    assert await rejected(server, side, "claude", history, altered) == "protected_changed"


async def test_a_reasoning_item_keeps_the_item_that_follows_it(server: ProviderServer, side: Side):
    """The provider wants both or neither; the group that holds them goes back whole."""
    server.script = lambda request: (
        answer(thinking("hm"), call("stock", {"q": "a"})) if request.step == 0 else answer(thinking("so"), "done")
    )
    history = await side.talk("gpt", "one")
    record = await sent(server, side, "gpt", history, in_front(side))
    kinds = [item.get("type", item.get("role")) for item in record.body["input"]]
    at = [number for number, kind in enumerate(kinds) if kind == "reasoning"]
    assert len(at) == 2
    assert kinds[at[0] + 1] == "function_call"
    assert record.body["input"][at[1] + 1]["role"] == "assistant"
    assert await rejected(server, side, "gpt", history, without_part(side, 1, 0)) == "protected_changed"
    assert await rejected(server, side, "gpt", history, without_part(side, 3, 1)) == "protected_changed"


async def test_thinking_with_an_empty_signature_is_not_signed(server: ProviderServer, side: Side):
    """Its group may go; where it stays, it is not sent as thinking, since no provider would take it back."""
    empty = ModelResponse([ThinkingPart("hm", signature="", provider_name="anthropic"), TextPart("1")])
    history = side.native([user("one"), empty, user("two"), ModelResponse([TextPart("2")]), user("now")])
    record = await sent(server, side, "claude", history, in_front(side))
    assert "thinking" not in kinds_of(record)
    record = await sent(server, side, "claude", history, lambda ctx: ctx.messages[2:])
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


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "t"},
        {"type": "tool_call", "id": "a", "name": "stock", "args": {}},
        {"type": "image", "base64": "eA==", "mime_type": "image/png"},
        {"type": "reasoning", "reasoning": "t"},
    ],
    ids=["text", "call", "file", "thinking"],
)
def test_a_thought_signature_of_googles_makes_any_block_a_record(block: Any):
    facts = LangChainDialect().facts
    by_google = {"model_provider": "google_genai"}
    signed = {**block, "extras": {"signature": "c2ln"}}
    assert facts(AIMessage([signed], response_metadata=by_google)).provider
    assert not facts(AIMessage([block], response_metadata=by_google)).provider


def kinds_of(record: RequestRecord) -> list[str]:
    """The kinds of blocks that a request to Anthropic carried; a plain text is one."""
    contents = [message["content"] for message in record.body["messages"]]
    return [kind for one in contents for kind in (["text"] if isinstance(one, str) else [b["type"] for b in one])]


SEARCHED = ModelResponse(
    [
        NativeToolCallPart("web_search", {"query": "x"}, "srvtoolu_1", provider_name="anthropic"),
        NativeToolReturnPart("web_search", [], "srvtoolu_1", provider_name="anthropic"),
        TextPart("1"),
    ],
    provider_name="anthropic",
)
SEARCHED_BY_LANGCHAIN = AIMessage(
    [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "1"},
    ],
    response_metadata={"model_provider": "anthropic"},
)


async def test_native_tool_parts_stay_together_and_whole(server: ProviderServer, side: Side):
    history = side.native([user("one"), SEARCHED, user("two"), ModelResponse([TextPart("2")]), user("now")])
    if isinstance(side, LangChainSide):
        history[1] = SEARCHED_BY_LANGCHAIN
    record = await sent(server, side, "claude", history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    assert kinds_of(record) == ["text", "server_tool_use", "web_search_tool_result", "text", "text"]
    assert await rejected(server, side, "claude", history, without_part(side, 1, 1)) == "protected_changed"
    assert await rejected(server, side, "claude", history, lambda ctx: ctx.messages[2:]) == "protected_removed"


async def test_a_compaction_stands_for_what_is_gone(server: ProviderServer, side: Side):
    compacted = ModelResponse([CompactionPart(SUMMARY, provider_name="anthropic"), TextPart("1")])
    history = side.native([user("one"), compacted, user("two"), ModelResponse([TextPart("2")]), user("now")])
    await sent(server, side, "claude", history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    assert await rejected(server, side, "claude", history, lambda ctx: ctx.messages[2:]) == "protected_removed"
    assert await rejected(server, side, "claude", history, without_part(side, 1, 0)) == "protected_changed"


@pytest.mark.parametrize(
    ("side", "state"),
    # LangChain's messages know of a pause alone.
    [*(("pydantic_ai", state) for state in ("suspended", "interrupted", "incomplete")), ("langchain", "suspended")],
    indirect=["side"],
)
async def test_a_response_that_was_cut_off_or_paused_stays(server: ProviderServer, side: Side, state: Any):
    cut = ModelResponse([TextPart("1, and")], state=state)
    history = side.native([user("one"), cut, user("two"), ModelResponse([TextPart("2")]), user("now")])
    await sent(server, side, "claude", history, lambda ctx: [*ctx.messages[:2], ctx.messages[-1]])
    assert await rejected(server, side, "claude", history, lambda ctx: ctx.messages[2:]) == "protected_removed"


RETRIES: dict[str, Callable[[str], Any]] = {
    "a retry prompt": lambda call_id: RetryPromptPart("again", tool_name="stock", tool_call_id=call_id),
    "a retried result": lambda call_id: ToolReturnPart("stock", "again", call_id, outcome="retried"),
}


@pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")
@pytest.mark.parametrize("model", ["gpt", "claude"])
@pytest.mark.parametrize(
    ("side", "kind"),
    # LangChain has one message for both.
    [*(("pydantic_ai", kind) for kind in RETRIES), ("langchain", "a retried result")],
    indirect=["side"],
)
async def test_a_retry_answers_its_call(server: ProviderServer, side: Side, kind: str, model: str):
    """The exchange is one group: it goes whole, stays whole, and is refused in parts."""
    history = side.native(
        [
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
    )
    await sent(server, side, model, history, in_front(side))
    await sent(server, side, model, history, lambda ctx: ctx.messages[6:])
    assert await rejected(server, side, model, history, without(2)) == "orphan_call"
    assert await rejected(server, side, model, history, without(1)) == "orphan_result"


async def test_a_call_that_waits_for_an_approval_stays_until_it_is_answered(server: ProviderServer, side: Side):
    """Unanswered it is unfinished; answered by the request at hand, call and answer are one open group."""
    waiting: list[ModelMessage] = [
        user("old"),
        ModelResponse([TextPart("0")]),
        user("one"),
        ModelResponse([ToolCallPart("stock", {"q": "x"}, "a1"), ToolCallPart("stock", {"q": "y"}, "a2")]),
        ModelRequest([ToolReturnPart("stock", "approved", "a1"), ToolReturnPart("stock", "denied", "a2")]),
    ]
    which = {"request_index": 2, "current": 2}
    history = side.native(waiting)
    record = await sent(server, side, "claude", history, lambda ctx: ctx.messages[2:], **which)
    assert len(record.body["messages"]) == 3
    gone = await rejected(server, side, "claude", history, without(3), **which)
    assert gone in ("protected_removed", "orphan_result")
