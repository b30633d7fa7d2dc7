"""What the tests of the stock processors share: histories, and one pass of a processor over one."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage
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

from laneway.activities.langchain_summary import LangChainText
from laneway.activities.pydantic_summary import PydanticText
from laneway.history.editing import EditOutcome
from laneway.history.origins import EntryMetadata
from laneway.history.processor_native import Line
from laneway.history.processors import SlidingWindowProcessor

from tests.history.edits import LANGCHAIN, PYDANTIC, Frame, edit, request_for
from tests.history.twins import twins

Outcome = EditOutcome[ModelMessage]
TEXT = PydanticText()
_LANGCHAIN_TEXT = LangChainText()


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


def in_frame(frame: Frame, messages: Sequence[ModelMessage]) -> list[Any]:
    """A history in the messages of a framework."""
    return list(messages) if frame is PYDANTIC else twins(messages)


def lines(message: Any) -> Sequence[Line]:
    """Everything that a message says, of either framework."""
    return _LANGCHAIN_TEXT.lines(message) if isinstance(message, BaseMessage) else TEXT.lines(message)


def texts(messages: Sequence[Any]) -> list[str]:
    """Everything that a history says, line by line."""
    return [str(line) for message in messages for line in lines(message)]


def says(message: Any) -> bytes:
    """What a message says, to compare histories by content."""
    frame = LANGCHAIN if isinstance(message, BaseMessage) else PYDANTIC
    return bytes(frame.dialect.content(message))


def kept(outcome: EditOutcome[Any], messages: Sequence[Any]) -> list[int]:
    """Which of the messages are left whole, by index."""
    left = [says(message) for message in outcome.messages]
    return [index for index, message in enumerate(messages) if says(message) in left]


def ten_each(messages: Sequence[ModelMessage]) -> int:
    """A counter that takes every message for ten tokens."""
    return 10 * len(messages)


ALWAYS: Final = ("messages", 0)
"""A trigger that any history has reached."""


def window(keep: int, **options: Any) -> SlidingWindowProcessor:
    """A window of so many messages, that cuts each time."""
    return SlidingWindowProcessor(ALWAYS, ("messages", keep), **options)


class Summarizer:
    """Answers every request with the same summary, and remembers the requests."""

    def __init__(self, answer: str = "They spoke.") -> None:
        self.answer = answer
        self.requests: list[str] = []

    def __call__(self, request: str) -> str:
        self.requests.append(request)
        return self.answer
