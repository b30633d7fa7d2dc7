"""Processors and conditions that can be imported, and so referred to."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage

from laneway import HistoryProcessorContext, HistoryProcessorState

Context = HistoryProcessorContext[ModelMessage]


def keep_none(ctx: Context) -> list[ModelMessage]:
    return ctx.keep_recent_groups(0)


def keep_one(ctx: Context) -> list[ModelMessage]:
    return ctx.keep_recent_groups(1)


async def keep_all(ctx: Context) -> list[ModelMessage]:
    return ctx.messages


def outer(ctx: Context) -> list[ModelMessage]:
    return ctx.messages


def inner(ctx: Context) -> list[ModelMessage]:
    return ctx.messages


def own(ctx: Context) -> list[ModelMessage]:
    return ctx.messages


def always(state: HistoryProcessorState) -> bool:
    return True


def never(state: HistoryProcessorState) -> bool:
    return False


def outer_condition(state: HistoryProcessorState) -> bool:
    return True


def inner_condition(state: HistoryProcessorState) -> bool:
    return True


def own_condition(state: HistoryProcessorState) -> bool:
    return True
