"""Agents with hooks that write down when they are asked, and would not say the same thing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import Deny, Edit, Hooks, LangChainAdapter, PydanticAdapter
from laneway.activities.adapter import Adapter
from laneway.activities.hooks import DECIDING, HOOK_NAMES, HookName

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.stops import append, lines


def denying(hook: HookName) -> str:
    """How the id of a conversation ends in which a hook denies what it is asked first."""
    return f"-denied-by-{hook}"


def hooked(ledger: Path) -> dict[str, Adapter[Any]]:
    """`hooked` and `hooked graph` call a tool and then answer with what came of it, under every hook there is."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        append(ledger, f"model {len(messages)}")
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse([TextPart(f"{results[0].outcome}: {results[0].content}")])
        return ModelResponse([ToolCallPart("look", {}, "call")])

    def graph_answer(messages: list[BaseMessage]) -> AIMessage:
        append(ledger, f"model {len(messages)}")
        if isinstance(messages[-1], HumanMessage):
            return called(("look", {}, "call"))
        return said(f"{getattr(messages[-1], 'status', None)}: {messages[-1].text}")

    def look() -> str:
        """Look."""
        append(ledger, "looked")
        return "seen"

    agent: Agent[None, str] = Agent(FunctionModel(answer, model_name="hooked"))
    agent.tool_plain(look)
    hooks: dict[str, Any] = {name: _asked(name, ledger) for name in HOOK_NAMES}
    return {
        "hooked": PydanticAdapter(agent, hooks=Hooks(**hooks)),
        "hooked graph": LangChainAdapter(
            create_agent(ScriptedModel(answer=graph_answer), [look]), hooks=Hooks(**hooks)
        ),
    }


def _asked(name: HookName, ledger: Path) -> Callable[[Any], Any]:
    def ask(event: Any) -> Deny | Edit | None:
        said = f"{name} {event.request_index}" if hasattr(event, "request_index") else name
        append(ledger, said)
        times = lines(ledger).count(said)
        if name in DECIDING and event.conversation.endswith(denying(name)):
            return Deny("the first word") if times == 1 else None
        return Edit(f"edit {times}") if name == "user_prompt_submit" else None

    return ask
