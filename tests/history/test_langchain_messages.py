"""What LangChain's messages are to the rules: every shape of content blocks, calls, reasoning and records."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_summary import LangChainText
from laneway.activities.retries import SerializationFailed

DIALECT = LangChainDialect()
TEXT = LangChainText()

CALL = {"id": "c1", "name": "look", "args": {"at": 1}}
BAD: Any = {"id": "c2", "name": "look", "args": "{", "error": "unreadable"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def by(provider: str, *blocks: Any, **options: Any) -> AIMessage:
    """An answer of a provider's."""
    return AIMessage(list(blocks), response_metadata={"model_provider": provider}, **options)


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (SystemMessage("be brief"), "system"),
        (HumanMessage("hi"), "user"),
        (AIMessage("hi"), "model"),
        (ToolMessage("4", tool_call_id="c1"), "tool"),
        (FunctionMessage("4", name="look"), "tool"),
        (ChatMessage("hi", role="user"), "user"),
        (ChatMessage("hi", role="assistant"), "model"),
        (ChatMessage("be brief", role="developer"), "system"),
        (HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": "4"}]), "tool"),
        (AIMessageChunk("hi"), "model"),
    ],
)
def test_who_speaks(message: BaseMessage, role: str) -> None:
    assert DIALECT.is_native(message)
    assert DIALECT.facts(message).role == role


class Mine(HumanMessage):
    """A class of an application's own."""


@pytest.mark.parametrize("value", [RemoveMessage("x"), Mine("hi"), {"type": "human", "data": {"content": "hi"}}, "hi"])
def test_what_is_no_message_of_a_history(value: object) -> None:
    assert not DIALECT.is_native(value)


def test_an_instruction_to_remove_has_no_content_to_compare() -> None:
    with pytest.raises(SerializationFailed, match="RemoveMessage"):
        DIALECT.content(RemoveMessage("x"))


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        (AIMessage("", tool_calls=[CALL]), ("c1",)),
        (AIMessage([{"type": "tool_use", "id": "c1", "name": "look", "input": {}}], tool_calls=[CALL]), ("c1",)),
        (AIMessage([{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]), ("c1",)),
        (AIMessage([{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}]), ("c1",)),
        (AIMessage(content_blocks=[{"type": "tool_call", **CALL}]), ("c1",)),  # type: ignore[typeddict-item]
        (AIMessage("", tool_calls=[CALL, CALL]), ("c1", "c1")),
        (AIMessage("", tool_calls=[CALL], invalid_tool_calls=[BAD]), ("c1",)),
        (AIMessage([{"type": "function_call", "call_id": "c2", "name": "look"}], invalid_tool_calls=[BAD]), ()),
        (by("anthropic", {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}), ()),
    ],
)
def test_the_calls_that_an_answer_makes(message: BaseMessage, calls: tuple[str, ...]) -> None:
    """Once each, however often they stand in it; those that a provider runs, or nothing does, wait for no answer."""
    assert DIALECT.facts(message).calls == calls


@pytest.mark.parametrize(
    ("message", "record"),
    [
        (by("anthropic", SIGNED), "anthropic:thinking:"),
        (AIMessage([SIGNED]), "unknown:thinking:"),
        (by("anthropic", {"type": "redacted_thinking", "data": "xyz"}), "anthropic:redacted_thinking:"),
        (by("anthropic", {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}}), "anthropic:"),
        (by("openai", {"type": "reasoning", "id": "rs_1", "summary": []}), "openai:thinking:"),
        (by("openai", {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}), "openai:thinking:"),
        (by("bedrock_converse", {"type": "reasoning_content", "reasoning_content": {"signature": "s"}}), "bedrock"),
        (by("google_genai", {"type": "text", "text": "hi", "extras": {"signature": "s"}}), "signed:text"),
        (by("anthropic", {"type": "server_tool_use", "id": "s1", "name": "web_search"}), "native:server_tool_use"),
        (by("anthropic", {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}), "native:web"),
        (by("openai", {"type": "web_search_call", "id": "ws_1"}), "native:web_search_call"),
        (by("openai", {"type": "mcp_approval_request", "id": "m"}), "native:mcp_approval_request"),
        (by("openai", {"type": "image_generation_call", "id": "ig"}), "native:image_generation_call"),
        (AIMessage(content_blocks=[{"type": "server_tool_call", "id": "s", "name": "x", "args": {}}]), "native:"),
        (AIMessage([{"type": "non_standard", "value": {"type": "container_upload"}}]), "native:container_upload"),
        (AIMessage([{"type": "from_the_future", "x": 1}]), "native:from_the_future"),
        (AIMessage("hi", additional_kwargs={"audio": {"id": "audio_1"}}), "signed:audio"),
        (AIMessage("", additional_kwargs={"reasoning": {"id": "rs_1", "summary": []}}), "signed:reasoning"),
    ],
)
def test_what_only_a_provider_can_have_made(message: BaseMessage, record: str) -> None:
    names = DIALECT.facts(message).provider
    assert len(names) == 1
    assert names[0].startswith(record)
    assert "hm" not in names[0]


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("hi"),
        AIMessage([{"type": "text", "text": "hi", "id": "msg_1", "annotations": []}]),
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": ""}]),
        by("deepseek", {"type": "reasoning", "reasoning": "hm"}),
        AIMessage("hi", additional_kwargs={"reasoning_content": "hm"}),
        AIMessage([{"type": "refusal", "refusal": "no"}]),
        AIMessage("", tool_calls=[CALL]),
        AIMessage("hi", response_metadata={"id": "resp_1"}),
    ],
)
def test_what_is_no_record_of_a_provider(message: BaseMessage) -> None:
    assert DIALECT.facts(message).provider == ()


@pytest.mark.parametrize(
    ("message", "plain", "empty"),
    [
        (HumanMessage("hi"), True, False),
        (HumanMessage(["hi", {"type": "text", "text": "there"}]), True, False),
        (AIMessage("hi"), True, False),
        (AIMessage("hi", response_metadata={"id": "chatcmpl-1"}), True, False),
        (AIMessage("hi", response_metadata={"id": "resp_1"}), False, False),
        (AIMessage([{"type": "text", "text": "hi", "id": "msg_1"}]), False, False),
        (AIMessage("hi", tool_calls=[CALL]), False, False),
        (AIMessage("hi", additional_kwargs={"reasoning_content": "hm"}), False, False),
        (HumanMessage([{"type": "image", "url": "https://images.test/a.png"}]), False, False),
        (HumanMessage(""), False, True),
        (HumanMessage([]), False, True),
        (HumanMessage(" \n"), True, True),
        (HumanMessage([{"type": "text", "text": "hi"}, {"type": "text", "text": " "}]), True, True),
        (AIMessage(""), False, True),
        (SystemMessage("hi"), False, False),
    ],
)
def test_what_a_processor_may_add(message: BaseMessage, plain: bool, empty: bool) -> None:
    facts = DIALECT.facts(message)
    assert (facts.plain_text, facts.empty) == (plain, empty)


@pytest.mark.parametrize(
    ("message", "unfinished", "checkpoint"),
    [
        (AIMessage("hi", response_metadata={"stop_reason": "pause_turn"}), True, False),
        (by("anthropic", {"type": "server_tool_use", "id": "s", "name": "web_search"}), True, False),
        (
            by(
                "anthropic",
                {"type": "server_tool_use", "id": "s", "name": "web_search"},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            ),
            False,
            False,
        ),
        (AIMessage("hi", response_metadata={"stop_reason": "max_tokens"}), False, False),
        (by("anthropic", {"type": "compaction", "content": "so far"}), False, True),
        (by("openai", {"type": "compaction", "id": "cmp_1", "encrypted_content": "g"}), False, True),
    ],
)
def test_what_is_unfinished_and_what_stands_for_history(
    message: BaseMessage, unfinished: bool, checkpoint: bool
) -> None:
    facts = DIALECT.facts(message)
    assert (facts.unfinished, facts.checkpoint) == (unfinished, checkpoint)


# Content --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HumanMessage("hi", id="1"), HumanMessage("hi", id="2")),
        (HumanMessage("hi"), HumanMessage("hi", additional_kwargs={"tag": 1, "lc_source": "x"})),
        (HumanMessage("hi"), HumanMessage("hi", response_metadata={"seen": True})),
        (AIMessage("hi"), AIMessage("hi", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})),
        (AIMessage("hi"), AIMessageChunk("hi")),
        (AIMessage("", tool_calls=[CALL]), AIMessage("", tool_calls=[{**CALL, "type": "tool_call"}])),
        (ToolMessage("4", tool_call_id="c"), ToolMessage("4", tool_call_id="c", artifact=Document("x"))),
    ],
)
def test_bookkeeping_is_no_content(one: BaseMessage, other: BaseMessage) -> None:
    assert DIALECT.content(one) == DIALECT.content(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HumanMessage("hi"), AIMessage("hi")),
        (HumanMessage("hi"), HumanMessage("hi", name="ada")),
        (ToolMessage("4", tool_call_id="c"), ToolMessage("4", tool_call_id="d")),
        (ToolMessage("4", tool_call_id="c"), ToolMessage("4", tool_call_id="c", status="error")),
        (AIMessage("", tool_calls=[CALL]), AIMessage("", tool_calls=[{**CALL, "args": {}}])),
        (AIMessage("", tool_calls=[CALL]), AIMessage("", tool_calls=[{**CALL, "id": "c9"}])),
        (AIMessage("hi"), AIMessage("hi", additional_kwargs={"reasoning_content": "hm"})),
        (AIMessage([SIGNED]), AIMessage([{**SIGNED, "signature": "other"}])),
        (ChatMessage("hi", role="user"), ChatMessage("hi", role="assistant")),
    ],
)
def test_what_a_provider_is_sent_is_content(one: BaseMessage, other: BaseMessage) -> None:
    assert DIALECT.content(one) != DIALECT.content(other)


def test_content_that_cannot_be_compared_is_an_error_that_names_its_message() -> None:
    with pytest.raises(SerializationFailed, match="'m1'.*object is no JSON value"):
        DIALECT.content(HumanMessage([{"type": "text", "text": "x", "extras": object()}], id="m1"))


def test_a_copy_shares_nothing_that_can_change() -> None:
    message = ToolMessage(
        [{"type": "text", "text": "4", "deep": [{"in": [1]}]}],
        tool_call_id="c",
        artifact=[Document("page", metadata={"k": [1]})],
        additional_kwargs={"a": {"b": [1]}},
        of_its_own={"extra": [1]},
    )
    before = message.model_dump_json()
    copy = DIALECT.detached(message)
    assert copy == message
    assert type(copy) is ToolMessage
    block: Any = copy.content[0]
    block["deep"][0]["in"].append(2)
    copy.additional_kwargs["a"]["b"].append(2)
    copy.artifact[0].metadata["k"].append(2)
    copy.of_its_own["extra"].append(2)  # type: ignore[attr-defined]
    assert message.model_dump_json() == before


# Bound reasoning ------------------------------------------------------------------------------------------------------


def test_thinking_that_claude_signed_is_bound_and_can_be_released() -> None:
    answer = by("anthropic", SIGNED, {"type": "text", "text": "hi"}, id="a")
    assert len(DIALECT.bound_reasoning(answer)) == 1
    released = DIALECT.without_bound_reasoning(answer)
    assert released is not None
    assert released.content == [{"type": "text", "text": "hi"}]
    assert released.id == "a"
    assert len(answer.content) == 2
    assert DIALECT.without_bound_reasoning(by("anthropic", SIGNED)) is None
    calling = DIALECT.without_bound_reasoning(by("anthropic", SIGNED, tool_calls=[CALL]))
    assert calling is not None
    assert DIALECT.facts(calling).calls == ("c1",)


@pytest.mark.parametrize(
    "message",
    [
        by("openai", {"type": "reasoning", "id": "rs_1", "encrypted_content": "g"}),
        by("google_genai", {"type": "thinking", "thinking": "hm", "signature": "s"}),
        by("anthropic", {"type": "thinking", "thinking": "hm"}),
        AIMessage("hi"),
    ],
)
def test_reasoning_of_others_is_not_bound(message: BaseMessage) -> None:
    assert DIALECT.bound_reasoning(message) == ()
    assert DIALECT.without_bound_reasoning(message) == message


# Text and weight ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (HumanMessage("hi"), ["user: hi"]),
        (HumanMessage(["a", {"type": "text", "text": "b"}]), ["user: a", "user: b"]),
        (
            HumanMessage([{"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}]),
            ["user: [image/png, 5 bytes]"],
        ),
        (
            HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGVsbG8="}}]),
            ["user: [image/jpeg, 5 bytes]"],
        ),
        (
            HumanMessage([{"type": "image_url", "image_url": "https://images.test/a.png"}]),
            ["user: [image, file at https://images.test/a.png]"],
        ),
        (
            HumanMessage([{"type": "document", "source": {"type": "base64", "media_type": "a/pdf", "data": "aGk="}}]),
            ["user: [a/pdf, 2 bytes]"],
        ),
        (HumanMessage([{"type": "document", "source": {"type": "text", "data": "page one"}}]), ["user: page one"]),
        (HumanMessage([{"type": "file", "file": {"file_id": "file_9"}}]), ["user: [document, uploaded file file_9]"]),
        (
            HumanMessage([{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}]),
            ["user: [audio/wav, 2 bytes]"],
        ),
        (HumanMessage([{"image": {"format": "png", "source": {"bytes": b"12345"}}}]), ["user: [image/png, 5 bytes]"]),
        (
            by("anthropic", SIGNED, {"type": "text", "text": "so"}, tool_calls=[CALL]),
            ["assistant (thinking): hm", "assistant: so", 'assistant called look({"at":1})'],
        ),
        (
            by("openai", {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "thus"}]}),
            ["assistant (thinking): thus"],
        ),
        (AIMessage("hi", additional_kwargs={"reasoning_content": "hm"}), ["assistant: hi", "assistant (thinking): hm"]),
        (AIMessage("", invalid_tool_calls=[BAD]), ["assistant called look({)"]),
        (AIMessage([{"type": "refusal", "refusal": "no"}]), ["assistant: no"]),
        (ToolMessage("4", tool_call_id="c", name="look"), ["look returned: 4"]),
        (
            ToolMessage(["a", {"type": "image", "base64": "aGk=", "mime_type": "image/png"}], tool_call_id="c"),
            ["c returned: a\n[image/png, 2 bytes]"],
        ),
        (SystemMessage("be brief"), ["system: be brief"]),
    ],
)
def test_all_that_a_message_says_reaches_a_summary(message: BaseMessage, lines: list[str]) -> None:
    """Text in lists, reasoning, calls and results as they are; of what is binary, what it is."""
    assert [str(line) for line in TEXT.lines(message)] == lines


def test_every_text_and_file_is_weighed_once() -> None:
    answer = by(
        "anthropic",
        SIGNED,
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
        tool_calls=[CALL],
    )
    assert DIALECT.weight(answer).texts == ("hm", "sig", "so", "look", '{"at":1}')
    seen = HumanMessage(["look", {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}])
    weight = DIALECT.weight(seen)
    assert weight.texts == ("look",)
    assert [(media.kind, media.size_bytes) for media in weight.media] == [("image", 5)]
