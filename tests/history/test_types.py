"""What type checkers infer: a processor for Pydantic AI works on `list[ModelMessage]` without an annotation."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import assert_type

import pytest
from pydantic_ai.messages import ModelMessage

from laneway.activities.pydantic_messages import PydanticDialect
from laneway.history.context import HistoryProcessor, HistoryProcessorContext, HistoryProcessorState
from laneway.history.dialect import RepairableDialect
from laneway.history.groups import HistoryGroup
from laneway.history.origins import EntryMetadata, HistoryOrigin
from laneway.history.scopes import HistoryProcessingSettings


def test_a_lambda_is_inferred_to_work_on_native_messages() -> None:
    settings = HistoryProcessingSettings[ModelMessage](
        processor=lambda ctx: assert_type(ctx.keep_recent_groups(2), list[ModelMessage]),
        condition=lambda state: assert_type(state.estimated_tokens, int) > 1,
    )
    assert settings.processor is not None


def test_the_context_is_generic_over_the_native_message() -> None:
    def processor(
        ctx: HistoryProcessorContext[ModelMessage],
    ) -> Sequence[ModelMessage] | Awaitable[Sequence[ModelMessage]]:
        assert_type(ctx.messages, list[ModelMessage])
        return ctx.messages

    accepted: HistoryProcessor[ModelMessage] = processor
    assert accepted is processor


def test_the_description_of_pydantic_ai_is_complete() -> None:
    dialect: RepairableDialect[ModelMessage] = PydanticDialect()
    assert dialect.is_native(None) is False


@pytest.mark.parametrize(
    "frozen",
    [
        HistoryOrigin("user"),
        EntryMetadata(),
        HistoryGroup("g", 0, 1, closed=True, protected=False, protected_reasons=(), origins=()),
        HistoryProcessorState("pydantic_ai", "m", 1, 0, 0, "v"),
        HistoryProcessorContext[ModelMessage]([], (), (), "pydantic_ai", "m", 1, 0, 0),
        HistoryProcessingSettings[ModelMessage](),
    ],
)
def test_what_callbacks_are_given_is_frozen(frozen: object) -> None:
    assert is_dataclass(frozen)
    for field in fields(frozen):
        with pytest.raises(FrozenInstanceError):
            setattr(frozen, field.name, None)
