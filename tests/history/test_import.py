"""A history that was made elsewhere is taken whole, refused with the message at fault, or repaired for the record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.errors import HistoryProcessingValidationError
from laneway.history.repair import ImportRepair, validate_import

from tests.history.edits import DIALECT, says
from tests.history.histories import MadeHistory, histories
from tests.history.oracle import why_unsendable


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def text(content: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(content)])


def calls(*ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("stock", {}, name) for name in ids])


def results(*ids: str) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("stock", f"result of {name}", name) for name in ids])


def ids(messages: list[ModelMessage]) -> list[list[str]]:
    return [
        [part.tool_call_id for part in m.parts if isinstance(part, ToolCallPart | ToolReturnPart)] for m in messages
    ]


@given(histories())
def test_a_valid_history_is_taken_as_it_is_and_needs_no_repair(made: MadeHistory) -> None:
    for repair in (False, True):
        imported = validate_import(DIALECT, made.native, repair=repair)
        assert imported.repairs == ()
        assert [says(message) for message in imported.messages] == [says(message) for message in made.native]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], ("empty", None)),
        ("text", ("not_a_sequence", None)),
        (None, ("not_a_sequence", None)),
        ([user("a"), {"kind": "request"}], ("not_native", 1)),
        ([text("I begin")], ("opens_with_model", 0)),
        ([ModelRequest(parts=[SystemPromptPart("rules")]), text("I begin")], ("opens_with_model", 1)),
        ([user("a"), calls("x"), user("b")], ("orphan_call", 1)),
        ([user("a"), calls("x", "y"), results("x"), text("done")], ("orphan_call", 1)),
        ([user("a"), calls("x")], ("orphan_call", 1)),
        ([user("a"), text("b"), results("x")], ("orphan_result", 2)),
        ([user("a"), calls("x"), results("x", "x")], ("orphan_result", 2)),
        ([user("a"), calls("x"), results("x"), calls("x"), results("x")], ("reused_call_id", 3)),
        ([user("a"), calls("x", "x"), results("x", "x")], ("reused_call_id", 1)),
    ],
)
def test_an_invalid_history_is_refused_with_its_index(messages: Any, expected: tuple[str, int | None]) -> None:
    with pytest.raises(HistoryProcessingValidationError, match="the imported history") as refused:
        validate_import(DIALECT, messages)
    assert (refused.value.rule, refused.value.index) == expected


def test_unanswered_calls_are_closed_where_they_are() -> None:
    given_messages = [user("a"), calls("x", "y"), results("x"), user("b"), calls("z")]
    imported = validate_import(DIALECT, given_messages, repair=True)
    assert imported.repairs == (ImportRepair("call_closed", 1, "y"), ImportRepair("call_closed", 4, "z"))
    assert ids(imported.messages) == [[], ["x", "y"], ["x", "y"], ["z"], ["z"]]
    closed = imported.messages[2].parts[1]
    assert isinstance(closed, ToolReturnPart)
    assert closed.outcome == "interrupted"
    again = validate_import(DIALECT, given_messages, repair=True)
    assert [says(m) for m in again.messages] == [says(m) for m in imported.messages]


def test_results_without_a_call_are_removed() -> None:
    imported = validate_import(DIALECT, [user("a"), calls("x"), results("ghost", "x"), results("late")], repair=True)
    assert imported.repairs == (ImportRepair("result_removed", 2, "ghost"), ImportRepair("result_removed", 3, "late"))
    assert ids(imported.messages) == [[], ["x"], ["x"]]


def test_reused_ids_are_renamed_in_the_call_and_in_its_result() -> None:
    messages = [user("a"), calls("x", "x"), results("x", "x"), calls("x"), results("x"), text("done")]
    imported = validate_import(DIALECT, messages, repair=True)
    assert imported.repairs == (
        ImportRepair("call_renamed", 1, "x", "x-2"),
        ImportRepair("call_renamed", 3, "x", "x-3"),
    )
    assert ids(imported.messages) == [[], ["x", "x-2"], ["x", "x-2"], ["x-3"], ["x-3"], []]
    assert ids(messages) == [[], ["x", "x"], ["x", "x"], ["x"], ["x"], []], "the given messages were changed"
    assert why_unsendable([*imported.messages, user("next")]) is None
