"""The example cases: what a stock processor keeps, and what it refuses where it is made."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.exceptions import ModelAPIError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway.activities.adapter import RetryPolicy
from laneway.activities.langchain_summary import LangChainSummarizer
from laneway.activities.pydantic_summary import PydanticSummarizer
from laneway.errors import HistoryProcessingError
from laneway.history.model_calls import CallAnswer
from laneway.history.processor_native import SummaryRequest
from laneway.history.processors import create_sliding_window_processor, create_summarization_processor

from tests.history.edits import FRAMES, PYDANTIC, Context, Frame, messages_of
from tests.processors.passes import passed

CASES = Path(__file__).parent / "cases"


def cases(kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(CASES.glob(f"{kind}-*.json"))]


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


class Scripted(BaseChatModel):
    """A chat model of LangChain's that answers as a case says."""

    reply: str | None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if self.reply is None:
            raise ModelAPIError("the provider's own words")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.reply))])


def _model(case: dict[str, Any], frame: Frame = PYDANTIC) -> Any:
    if frame.name == "langchain":
        return Scripted(reply=case.get("reply"))

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if status := case.get("reply_status"):
            raise ModelHTTPError(status, "summarizer", "the provider's own words")
        return ModelResponse(parts=[TextPart(case["reply"])])

    return FunctionModel(answer, model_name="summarizer")


def _processor(case: dict[str, Any], frame: Frame = PYDANTIC, *, on_failure: Any = "raise") -> Any:
    if case["processor"] == "sliding_window":
        return create_sliding_window_processor(**case["config"])
    # Not retried here, so that nobody waits.
    kind: Any = LangChainSummarizer if frame.name == "langchain" else PydanticSummarizer
    summarizer = kind(_model(case, frame), RetryPolicy(max_attempts=1))

    async def once(request: str) -> str:
        answer: CallAnswer = await summarizer.summarize(SummaryRequest(request), None)
        return answer.text

    return create_summarization_processor(summarizer=once, on_failure=on_failure, **case["config"])


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize("case", cases("stock"), ids=by_id)
async def test_a_stock_processor_keeps_what_the_case_says(case: dict[str, Any], frame: Frame) -> None:
    messages = frame.load(case[frame.name]["messages"])
    says = frame.dialect.content
    before = [says(message) for message in messages]
    returned: list[bytes] = []
    processor = _processor(case, frame)

    async def recording(ctx: Context) -> Any:
        result = await processor(ctx)
        returned.extend(says(message) for message in result)
        return result

    if case["expect"]["verdict"] == "error":
        with pytest.raises(HistoryProcessingError):
            await passed(recording, messages, frame=frame)
        assert returned == []
    else:
        outcome = await passed(recording, messages, frame=frame)
        assert outcome.verdict == case["expect"]["verdict"]
        assert [before.index(one) if one in before else "new" for one in returned] == case[frame.name]["kept"]
    assert [says(message) for message in messages] == before


@pytest.mark.parametrize("model_of", FRAMES, ids=str)
@pytest.mark.parametrize("frame", FRAMES, ids=str)
async def test_a_model_that_is_given_summarizes(frame: Frame, model_of: Frame) -> None:
    """The case of a summary, with the model itself and not a function around it: of either framework, on both."""
    case = next(case for case in cases("stock") if case["id"] == "stock-16-summary")
    messages = frame.load(case[frame.name]["messages"])
    processor = create_summarization_processor(_model(case, model_of), **case["config"])
    outcome = await passed(processor, messages, frame=frame)
    assert b"They spoke of ports." in frame.dialect.content(outcome.messages[0])


async def test_a_failed_summary_can_let_the_turn_go_on() -> None:
    """Nothing changes, and nothing of the error is in the history."""
    case = next(case for case in cases("stock") if case["id"] == "stock-17-summary-fails")
    messages = messages_of(case["pydantic_ai"]["messages"])
    outcome = await passed(_processor(case, on_failure="keep"), messages)
    assert outcome.verdict == "no-op"
    assert outcome.messages is messages


@pytest.mark.parametrize("case", cases("config"), ids=by_id)
@pytest.mark.parametrize("processor", ["sliding_window", "summarization"])
def test_what_cannot_work_is_refused_where_it_is_made(case: dict[str, Any], processor: str) -> None:
    config = case["config"]
    value = str(config["trigger"][0][1])
    create = {
        "sliding_window": create_sliding_window_processor,
        "summarization": partial(create_summarization_processor, "test:summarizer"),
    }
    with pytest.raises(ValueError, match=value):
        create[processor](**config)
