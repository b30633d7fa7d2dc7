"""Turns of a graph that begin with a text window: what opens the prompt, and what the thread keeps of both sides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from laneway.activities.adapter import StepResult
from laneway.activities.langchain_prompt import GraphInput
from laneway.activities.langchain_summary import LangChainText
from laneway.errors import InvalidInput

__all__ = ["check_prompt", "opened_with", "reply_of", "text_of"]

_TEXT: Final = LangChainText()
_CUT_OFF: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "model_length", "incomplete"})


def check_prompt(given: GraphInput) -> None:
    """Refuse a prompt in which nobody says anything.

    Raises:
        InvalidInput: it is one.
    """
    if not any(isinstance(message, HumanMessage) for message in given.messages):
        raise InvalidInput(
            "a turn with a text window opens with what its user says: give text or a HumanMessage, with other channels "
            "beside it"
        )


def text_of(given: GraphInput) -> str:
    """The text of a prompt, with a description of each file."""
    return "\n".join(line.text for message in given.messages for line in _TEXT.lines(message))


def opened_with(opening: str, given: GraphInput) -> GraphInput:
    """A prompt after what stands before it in its request."""
    if not opening:
        return given
    messages = list(given.messages)
    place = next(place for place, one in enumerate(messages) if isinstance(one, HumanMessage))
    messages[place] = messages[place].model_copy(update={"content": _after(opening, messages[place].content)})
    return replace(given, messages=messages)


def _after(opening: str, content: str | list[str | dict[Any, Any]]) -> str | list[str | dict[Any, Any]]:
    if isinstance(content, str):
        return opening + content
    first, *rest = content
    if isinstance(first, str):
        return [opening + first, *rest]
    if first.get("type") == "text":
        return [{**first, "text": opening + str(first.get("text", ""))}, *rest]
    return [{"type": "text", "text": opening}, *content]


def reply_of(result: StepResult[BaseMessage], history: Sequence[BaseMessage]) -> str | None:
    """What a thread keeps of a turn's answer; None of one that was cut off.

    Args:
        result: of the turn's last step.
        history: what the step began from.
    """
    messages = [*history, *result.appended] if result.rewritten is None else result.rewritten
    answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
    if answer is None or _is_cut_off(answer):
        return None
    if result.output is None:
        return str(messages[-1].text)
    output: object = json.loads(result.output)
    return output if isinstance(output, str) else result.output


def _is_cut_off(answer: AIMessage) -> bool:
    metadata = cast("dict[str, Any]", answer.response_metadata)
    return any(metadata.get(key) in _CUT_OFF for key in ("finish_reason", "stop_reason", "status"))
