"""Stored messages for readers: both frameworks' serialised forms, and others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, message_to_dict
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.cli.previews import Line, preview


def test_messages_of_pydantic_ai():
    stored = json.loads(
        ModelMessagesTypeAdapter.dump_json(
            [
                ModelRequest([SystemPromptPart("be brief"), UserPromptPart("hello")]),
                ModelResponse([ThinkingPart("hm"), TextPart("hi"), ToolCallPart("find", {"q": 1})]),
                ModelRequest(
                    [
                        ToolReturnPart("find", {"n": 2}, tool_call_id="x"),
                        RetryFeedbackPart("again", retry=RetryInfo("no_output")),
                    ]
                ),
            ]
        )
    )
    assert [line for message in stored for line in preview(message)] == [
        Line("system", "be brief"),
        Line("user", "hello"),
        Line("thinking", "hm"),
        Line("assistant", "hi"),
        Line("call", '{"q": 1}', "find"),
        Line("result", '{"n": 2}', "find"),
        Line("retry", "again"),
    ]


def test_images_are_named_and_not_printed():
    request = ModelRequest([UserPromptPart(["look", BinaryContent(b"\x89PNG", media_type="image/png")])])
    (line,) = preview(json.loads(ModelMessagesTypeAdapter.dump_json([request]))[0])
    assert line == Line("user", "look [binary image/png]")


def test_messages_of_langchain():
    messages = [
        SystemMessage("be brief"),
        HumanMessage("hello"),
        AIMessage("hi", tool_calls=[{"name": "find", "args": {"q": 1}, "id": "x"}]),
        ToolMessage("2", tool_call_id="x", name="find"),
    ]
    assert [line for message in messages for line in preview(message_to_dict(message))] == [
        Line("system", "be brief"),
        Line("user", "hello"),
        Line("assistant", "hi"),
        Line("call", '{"q": 1}', "find"),
        Line("result", "2", "find"),
    ]


@pytest.mark.parametrize("message", [None, 1, "text", [1, {"a": 2}], {}, {"parts": 3}, {"type": "odd"}, {"parts": [1]}])
def test_what_is_not_known_is_shown_as_it_is(message: Any):
    """Never an error: a newer version's messages must still be readable."""
    assert all(line.role == "other" for line in preview(message))
