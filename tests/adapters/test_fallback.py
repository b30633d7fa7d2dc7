"""Agents whose model is a `FallbackModel`, under all that asks what their model is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import (
    HistoryArchiveSettings,
    PydanticAdapter,
    RequestBudget,
    RetryPolicy,
    SlidingWindowProcessor,
    SummarizationProcessor,
    TextWindow,
)

from tests.support.bench import Bench


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart) or not info.function_tools:
        return ModelResponse([TextPart("done")])
    return ModelResponse([ToolCallPart("look", {}, f"c{len(messages)}")])


def _down(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ModelHTTPError(503, "first")


async def _down_streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    raise ModelHTTPError(503, "first")
    yield ""


async def _streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    yield "done"


def _plain() -> FallbackModel:
    return FallbackModel(FunctionModel(_down, model_name="first"), FunctionModel(_answer, model_name="second"))


def _of_streams() -> FallbackModel:
    down = FunctionModel(stream_function=_down_streamed, model_name="first")
    return FallbackModel(down, FunctionModel(stream_function=_streamed, model_name="second"))


def _nested() -> ConcurrencyLimitedModel:
    return ConcurrencyLimitedModel(FallbackModel(FunctionModel(_down, model_name="zeroth"), _plain()), limiter=2)


def _agent(model: Any) -> Agent[None, str]:
    agent = Agent(model)
    agent.tool_plain(look)
    return agent


def look() -> str:
    return "nothing"


def _summed_up() -> dict[str, Any]:
    summary = SummarizationProcessor(model=_plain(), trigger=("messages", 4), keep=("messages", 2))
    return {"history_processor": summary}


@pytest.mark.filterwarnings("ignore:the history processor")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (_plain, dict),
        (_of_streams, dict),
        (_nested, dict),
        (_plain, lambda: {"history_processor": SlidingWindowProcessor(("messages", 4))}),
        (_plain, _summed_up),
        (_plain, lambda: {"history": TextWindow(2)}),
        (_plain, lambda: {"history_archive": HistoryArchiveSettings()}),
        (_plain, lambda: {"budget": RequestBudget(max_request_tokens=10_000, request_limit=50)}),
    ],
    ids=["plain", "streams", "nested", "window", "summary", "text window", "archive", "budget"],
)
async def test_a_model_that_fails_is_stood_in_for(
    bench: Bench,
    conversation_id: str,
    model: Callable[[], Any],
    options: Callable[[], dict[str, Any]],
):
    client = await bench.serve({"agent": PydanticAdapter(_agent(model()), **options())})
    conversation = client.conversation(conversation_id)
    assert [(await conversation.ask("agent", prompt)).output for prompt in "abc"] == ["done"] * 3


async def test_where_all_models_fail_the_step_is_tried_again(bench: Bench, conversation_id: str):
    """As with a model by itself: what each said is in the turn's record."""
    tried: list[int] = []

    def recovering(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tried.append(len(tried))
        if len(tried) < 3:
            raise ModelHTTPError(503, "second")
        return ModelResponse([TextPart("there again")])

    model = FallbackModel(FunctionModel(_down, model_name="first"), FunctionModel(recovering, model_name="second"))
    policy = RetryPolicy(first_delay=timedelta(seconds=0.05))
    client = await bench.serve({"agent": PydanticAdapter(Agent(model), retry_policy=policy)})
    turn = await client.conversation(conversation_id).submit("agent", "a")
    assert (await turn.result()).output == "there again"
    assert len((await turn.record()).attempts) == 2
