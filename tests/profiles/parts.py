"""Parts of profiles that can be imported."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage

from laneway import Edit, HistoryProcessorContext, HistoryProcessorState, UserPromptSubmit


def look() -> str:
    return "seen by a profile's tool"


def other(value: int) -> int:
    return value


def keep_none(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
    return ctx.keep_recent_groups(0)


def instructions(ctx: RunContext[None]) -> str:
    return "made by a function"


def exclaim(event: UserPromptSubmit) -> Edit:
    return Edit(event.prompt + "!")


def ask(event: UserPromptSubmit) -> Edit:
    return Edit(event.prompt + "?")


def always(state: HistoryProcessorState) -> bool:
    return True
