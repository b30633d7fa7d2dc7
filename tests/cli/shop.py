"""The application that the tests talk to: agents with scripts for models, which do as the prompt says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from laneway import Laneway, PydanticAdapter, RetryPolicy

_attempts: dict[str, int] = {}


def _prompt(messages: list[ModelMessage]) -> str:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content)


async def talk(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    prompt = _prompt(messages)
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        yield f"the clock says {returned[0].content}"
    elif prompt == "fail":
        raise ValueError("the shop is closed")
    elif prompt == "hang":
        yield "let me think"
        await asyncio.sleep(3600)
    elif prompt.startswith("stumble"):
        _attempts[prompt] = _attempts.get(prompt, 0) + 1
        if _attempts[prompt] == 1:
            yield "a wrong beginning"
            # Long enough for the beginning to be published, which the tests wait to see.
            await asyncio.sleep(0.2)
            raise ModelHTTPError(503, "shop")
        yield "the right answer"
    elif prompt == "time":
        yield "let me look"
        yield {1: DeltaToolCall(name="clock", json_args="{}", tool_call_id="c1")}
    else:
        for word in ("you", " said", f" {prompt}"):
            yield word


def _price(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if not info.output_tools:  # asked to sum up
        return ModelResponse([TextPart("prices were asked for")])
    return ModelResponse([ToolCallPart(info.output_tools[0].name, {"product": _prompt(messages), "cents": 1250})])


class Price(BaseModel):
    product: str
    cents: int


_talker = Agent(FunctionModel(stream_function=talk))


@_talker.tool_plain
def clock() -> str:
    return "noon"


app = Laneway(
    agents={
        "talker": PydanticAdapter(_talker, retry_policy=RetryPolicy(backoff=1.0)),
        "pricer": PydanticAdapter(Agent(FunctionModel(_price), output_type=Price)),
    }
)
