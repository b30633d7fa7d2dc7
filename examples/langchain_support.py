"""A LangChain agent on lanes, which asks before it cancels an order.

Try it with `laneway dev examples/langchain_support.py` and `laneway chat examples/langchain_support.py support`.
Without SUPPORT_MODEL (such as `openai:gpt-5-mini` or `anthropic:claude-sonnet-4-5`, with its key set) the model is a
few lines of script, so that it runs offline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from laneway import Laneway, LangChainAdapter

_ORDERS = {7: "left the warehouse this morning", 8: "waits for its payment"}


def order_status(number: int) -> str:
    """Where an order is."""
    return _ORDERS.get(number, "is not known: ask the customer for the right number")


def cancel_order(number: int) -> str:
    """Cancel an order. Somebody of the shop has to agree."""
    return f"was cancelled, number {number}"


class Offline(BaseChatModel):
    """Looks up or cancels the order that the prompt names, and tells what the tool said."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[getattr(tool, "name", str(tool)) for tool in tools])

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if not isinstance(last, HumanMessage):
            return AIMessage(f"Your order {last.text}.")
        number = re.search(r"\d+", last.text)
        if number is None:
            return AIMessage("I can tell you where an order is, or cancel it: give me its number.")
        tool = "cancel_order" if "cancel" in last.text.lower() else "order_status"
        call = {"name": tool, "args": {"number": int(number[0])}, "id": f"order-{len(messages)}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])


agent = create_agent(
    os.environ.get("SUPPORT_MODEL") or Offline(),
    [order_status, cancel_order],
    system_prompt="You help customers of a small shop. Be brief.",
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"cancel_order": True})],
)

app = Laneway(agents={"support": LangChainAdapter(agent)})
