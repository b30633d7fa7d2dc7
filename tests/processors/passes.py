"""What the tests of the stock processors share: histories, and one pass of a processor over one."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from laneway.activities.pydantic_summary import PydanticText
from laneway.history.editing import EditOutcome
from laneway.history.origins import EntryMetadata

from tests.history.edits import PYDANTIC, Frame, edit, request_for, says

Outcome = EditOutcome[ModelMessage]
TEXT = PydanticText()


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def model(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def system(text: str) -> ModelRequest:
    return ModelRequest(parts=[SystemPromptPart(text)])


def asked(question: str) -> list[ModelMessage]:
    """An exchange of two messages."""
    return [user(question), model(f"re: {question}")]


def looked_up(question: str, result: object, *, tool: str = "look", calls: int = 1) -> list[ModelMessage]:
    """An exchange of four messages, with one round of tool calls."""
    ids = [f"{question}-{n}".replace(" ", "-") for n in range(calls)]
    return [
        user(question),
        ModelResponse(parts=[ToolCallPart(tool, {"about": question}, one) for one in ids]),
        ModelRequest(parts=[ToolReturnPart(tool, result, one) for one in ids]),
        model(f"re: {question}"),
    ]


def retry(text: str, call: str) -> ModelRequest:
    """A retry as histories hold it that were stored by versions that had a part of its own for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = RetryPromptPart(text, tool_name="look", tool_call_id=call)  # pyright: ignore[reportDeprecated]
    return ModelRequest(parts=[part])


async def passed(
    processor: Any,
    messages: Sequence[Any],
    entries: Sequence[EntryMetadata] | None = None,
    *,
    request_index: int = 1,
    binds_reasoning: bool = False,
    frame: Frame = PYDANTIC,
) -> EditOutcome[Any]:
    """One pass over a history that ends with the current request."""
    request = request_for(messages, entries, request_index=request_index, binds_reasoning=binds_reasoning, frame=frame)
    return await edit(request, processor, frame=frame)


def run(processor: Any, messages: Sequence[Any], **options: Any) -> EditOutcome[Any]:
    """The same, on a loop of its own: hypothesis calls tests from sync code."""
    with asyncio.Runner() as runner:
        return runner.run(passed(processor, messages, **options))


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Everything that a history says, line by line."""
    return [str(line) for message in messages for line in TEXT.lines(message)]


def kept(outcome: Outcome, messages: Sequence[ModelMessage]) -> list[int]:
    """Which of the messages are left whole, by index."""
    left = [says(message) for message in outcome.messages]
    return [index for index, message in enumerate(messages) if says(message) in left]


def ten_each(messages: Sequence[ModelMessage]) -> int:
    """A counter that takes every message for ten tokens."""
    return 10 * len(messages)
