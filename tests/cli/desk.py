"""Agents that ask people: one for leave to send, one of LangChain's for the same, and a graph that wants a name.

An application by itself: the command line loads a copy of this file.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import Laneway, LangChainAdapter, PydanticAdapter


def _clerk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return ModelResponse([TextPart(f"it was {' and '.join(returned)}")])
    calls = [ToolCallPart("send", {"to": to}, f"c{place}") for place, to in enumerate(("ada", "bob"))]
    return ModelResponse([TextPart("let me send it"), *calls])


clerk = Agent(FunctionModel(_clerk))


@clerk.tool_plain(requires_approval=True)
def send(to: str) -> str:
    """Send the letter."""
    return f"sent to {to}"


class _Model(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            answer = AIMessage(f"it was {messages[-1].text}")
        else:
            answer = AIMessage("", tool_calls=[{"name": "post", "args": {"to": "ada"}, "id": f"c{len(messages)}"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def post(to: str) -> str:
    """Send the letter."""
    return f"posted to {to}"


poster: Any = create_agent(_Model(), [post], middleware=[HumanInTheLoopMiddleware(interrupt_on={"post": True})])


def greet(state: MessagesState) -> dict[str, Any]:
    name = interrupt("What is your name?")
    return {"messages": [AIMessage(f"hello {name!r}")]}


host: Any = StateGraph(MessagesState)
host.add_node("greet", greet)
host.add_edge(START, "greet")

app = Laneway(
    agents={"clerk": PydanticAdapter(clerk), "poster": LangChainAdapter(poster), "host": LangChainAdapter(host)}
)
