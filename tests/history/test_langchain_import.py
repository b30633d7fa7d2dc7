"""Importing LangChain histories that were made elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from laneway.activities.adapter import IMPORT_MARK
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_import import read_import, stored_import
from laneway.errors import HistoryProcessingValidationError
from laneway.history.repair import ImportRepair

CODEC = MessageCodec()


def calling(*ids: str, **options: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": one, "name": "look", "args": {"at": 1}} for one in ids], **options)


def result(call: str, text: str = "seen") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call, name="look")


def imported(messages: object, *, repair: bool = False) -> tuple[list[BaseMessage], list[ImportRepair]]:
    blob = stored_import(messages, repair=repair, codec=CODEC)
    assert blob.startswith(IMPORT_MARK)
    read, repairs = read_import(blob, CODEC)
    return list(read), list(repairs)


def test_a_valid_history_comes_back_as_it_was() -> None:
    messages = [
        SystemMessage("Be brief.", id="s"),
        HumanMessage([{"type": "text", "text": "two"}], id="h"),
        calling("a", "b", id="c"),
        result("a").model_copy(update={"id": "ra"}),
        result("b").model_copy(update={"id": "rb"}),
        AIMessage("done", id="d", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}),
    ]
    assert imported(messages) == (messages, [])


@pytest.mark.parametrize(
    ("messages", "rule", "index"),
    [
        ([HumanMessage("a"), calling("x"), HumanMessage("b")], "orphan_call", 1),
        ([HumanMessage("a"), calling("x")], "orphan_call", 1),
        ([HumanMessage("a"), calling("x", "y"), result("y"), AIMessage("b")], "orphan_call", 1),
        ([HumanMessage("a"), result("x")], "orphan_result", 1),
        ([HumanMessage("a"), calling("x"), result("x"), result("x")], "orphan_result", 3),
        ([HumanMessage("a"), calling("x", "x"), result("x"), result("x")], "reused_call_id", 1),
        ([HumanMessage("a"), calling("x"), result("x"), calling("x"), result("x")], "reused_call_id", 3),
        ([AIMessage("hello")], "opens_with_model", 0),
        ([HumanMessage("a"), {"type": "human", "data": {"content": "b"}}], "not_native", 1),
        ([HumanMessage("a"), RemoveMessage("a")], "not_native", 1),
        ([], "empty", None),
        (None, "not_a_sequence", None),
        (HumanMessage("a"), "not_a_sequence", None),
    ],
)
def test_what_no_provider_takes_is_refused_with_its_index(messages: Any, rule: str, index: int | None) -> None:
    with pytest.raises(HistoryProcessingValidationError) as refused:
        imported(messages)
    assert (refused.value.rule, refused.value.index) == (rule, index)


def test_repair_closes_each_unanswered_call_with_a_message_of_its_own() -> None:
    given = [HumanMessage("a"), calling("x", "y", "z"), result("y"), HumanMessage("b")]
    messages, repairs = imported(given, repair=True)
    answers = [message for message in messages if isinstance(message, ToolMessage)]
    assert [(one.tool_call_id, one.status) for one in answers] == [("y", "success"), ("x", "error"), ("z", "error")]
    assert [(one.kind, one.index, one.tool_call_id) for one in repairs] == [
        ("call_closed", 1, "x"),
        ("call_closed", 1, "z"),
    ]
    assert imported(messages) == (messages, [])


def test_repair_answers_a_call_that_could_not_be_read() -> None:
    """A tool node leaves it alone, and every request carries it."""
    invalid: Any = {"id": "x", "name": "look", "args": "{", "error": "unreadable"}
    given = [HumanMessage("a"), AIMessage("", invalid_tool_calls=[invalid]), HumanMessage("b")]
    with pytest.raises(HistoryProcessingValidationError, match="orphan_call"):
        imported(given)
    messages, _ = imported(given, repair=True)
    assert isinstance(messages[2], ToolMessage)
    assert messages[2].tool_call_id == "x"
    assert "arguments" in str(messages[2].content)


def test_repair_renames_a_reused_id_wherever_the_call_stands() -> None:
    """In `tool_calls`, in the content, and in its result; an item's own id goes, which names another call."""
    second = AIMessage(
        [{"type": "function_call", "id": "fc_1", "call_id": "x", "name": "look", "arguments": "{}"}],
        tool_calls=[{"id": "x", "name": "look", "args": {}}],
    )
    given = [HumanMessage("a"), calling("x"), result("x", "one"), HumanMessage("b"), second, result("x", "two")]
    messages, repairs = imported(given, repair=True)
    changed, answer = messages[4], messages[5]
    assert isinstance(changed, AIMessage)
    assert isinstance(answer, ToolMessage)
    new = changed.tool_calls[0]["id"]
    assert new not in (None, "x")
    assert changed.content == [{"type": "function_call", "call_id": new, "name": "look", "arguments": "{}"}]
    assert answer.tool_call_id == new
    assert [(one.kind, one.tool_call_id, one.new_tool_call_id) for one in repairs] == [("call_renamed", "x", new)]
    assert second.tool_calls[0]["id"] == "x", "the given message was changed"


def test_repair_removes_results_that_anthropic_keeps_in_a_users_message() -> None:
    mixed = HumanMessage(
        [{"type": "tool_result", "tool_use_id": "gone", "content": "x"}, {"type": "text", "text": "and now?"}]
    )
    messages, repairs = imported([HumanMessage("a"), AIMessage("b"), mixed], repair=True)
    assert messages[2].content == [{"type": "text", "text": "and now?"}]
    assert [one.kind for one in repairs] == ["result_removed"]


def test_every_imported_message_has_an_id_of_its_own() -> None:
    """LangGraph takes two messages of one id for one. The ids are the same for the same import."""
    given = [HumanMessage("a", id="1"), AIMessage("b", id="1"), HumanMessage("a"), AIMessage("b")]
    messages, _ = imported(given)
    ids = [message.id for message in messages]
    assert ids[0] == "1"
    assert None not in ids
    assert len(set(ids)) == 4
    assert [message.id for message in imported(given)[0]] == ids
    assert [message.id for message in given] == ["1", "1", None, None]
