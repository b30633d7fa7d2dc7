"""The shop's talker as a LangGraph agent: it answers to the same prompts in the same words.

An application by itself: the command line loads a copy of this file.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from laneway import Laneway, LangChainAdapter


class Talker(BaseChatModel):
    """Does as the prompt says."""

    @property
    def _llm_type(self) -> str:
        return "talker"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])


def _answer(messages: list[BaseMessage]) -> AIMessage:
    prompt = [message.text for message in messages if isinstance(message, HumanMessage)][-1]
    if isinstance(messages[-1], ToolMessage):
        return AIMessage(f"the clock says {messages[-1].text}")
    if prompt == "fail":
        raise ValueError("the shop is closed")
    if prompt == "time":
        return AIMessage("let me look", tool_calls=[{"name": "clock", "args": {}, "id": f"c{len(messages)}"}])
    return AIMessage(f"you said {prompt}")


def clock() -> str:
    """What time it is."""
    return "noon"


_agent: Any = create_agent(Talker(), [clock])
app = Laneway(agents={"talker": LangChainAdapter(_agent)})
