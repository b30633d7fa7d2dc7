"""A support agent on lanes: `laneway dev examples/support.py`, then `laneway chat examples/support.py support`.

Without SUPPORT_MODEL (such as `openai:gpt-5-mini` or `anthropic:claude-sonnet-4-5`, with its key set) the model is a
few lines of script, so that it runs offline.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from laneway import Laneway, PydanticAdapter

_ORDERS = {7: "left the warehouse this morning", 8: "waits for its payment"}


async def _offline(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Look up the order that the prompt names, and tell what the tool said."""
    part = messages[-1].parts[-1]
    if isinstance(part, ToolReturnPart):
        answer = f"It {part.content}." if part.outcome == "success" else "I find no such order: is the number right?"
        for word in answer.split(" "):
            yield f"{word} "
    elif isinstance(part, UserPromptPart) and (number := re.search(r"\d+", str(part.content))) is not None:
        arguments = json.dumps({"number": int(number[0])})
        yield {0: DeltaToolCall("order_status", arguments, tool_call_id=f"order-{len(messages)}")}
    else:
        yield "I can tell you where an order is: give me its number."


model = os.environ.get("SUPPORT_MODEL") or FunctionModel(stream_function=_offline, model_name="offline")
agent = Agent(model, instructions="You help customers of a small shop. Be brief.")


@agent.tool_plain
def order_status(number: int) -> str:
    """Where an order is."""
    if number not in _ORDERS:
        raise ModelRetry(f"There is no order {number}; ask the customer for the right number.")
    return _ORDERS[number]


app = Laneway(agents={"support": PydanticAdapter(agent)})
