"""An application whose agent has a history processor: it forgets when it is told to."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from laneway import HistoryProcessorContext, HistoryProcessorState, Laneway, PydanticAdapter


async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        yield f"the clock says {last.content}"
    elif isinstance(last, UserPromptPart) and last.content == "time":
        yield {0: DeltaToolCall(name="clock", json_args="{}", tool_call_id="c1")}
    else:
        yield "well"


_agent = Agent(FunctionModel(stream_function=answer))


@_agent.tool_plain
def clock() -> str:
    return "noon"


def forget(ctx: HistoryProcessorContext[ModelMessage]) -> list[ModelMessage]:
    return ctx.keep_recent_groups(0) if "forget" in str(ctx.messages[-1]) else ctx.messages


def at_first(state: HistoryProcessorState) -> bool:
    return state.request_index == 1


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    app = Laneway(
        agents={"editor": PydanticAdapter(_agent, history_processor=forget, history_processor_condition=at_first)}
    )
