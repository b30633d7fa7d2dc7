"""The same agent of each framework: it waits for leave to sign what its prompt says, and says what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter

from tests.langchain.graphs import ScriptedModel, called, said
from tests.steering.agents import shape

Framework = Literal["pydantic_ai", "langchain"]
FRAMEWORKS: tuple[Framework, ...] = ("pydantic_ai", "langchain")


@dataclass
class Desk:
    """Its answer is the version, what was signed, and the prompts since.

    Attributes:
        version: of the agent's code.
        signed: what it did, once it was let.
    """

    version: str = "v1"
    signed: list[str] = field(default_factory=list[str])

    def _answer(self, told: list[str]) -> str | None:
        """What is said; None to ask for leave."""
        last = next((at + 1 for at in range(len(told) - 1, -1, -1) if told[at].startswith("says")), 0)
        since = told[last:]
        if not any(one.startswith("result") for one in since):
            return None
        return f"{self.version}: {', '.join(one.partition(' ')[2] for one in since if not one.startswith('calls'))}"

    def _sign(self, what: str) -> str:
        self.signed.append(what)
        return f"signed {what}"

    def adapter(self, framework: Framework) -> PydanticAdapter[None, str] | LangChainAdapter:
        return self.pydantic() if framework == "pydantic_ai" else self.langchain()

    def pydantic(self) -> PydanticAdapter[None, str]:
        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            text = self._answer(told := shape(messages))
            if text is None:
                return ModelResponse([ToolCallPart("sign", {"what": told[-1]}, f"c{len(messages)}")])
            return ModelResponse([TextPart(text)])

        agent: Agent[None, str] = Agent(
            FunctionModel(answer, model_name="desk"), instructions=f"You are {self.version}."
        )
        agent.tool_plain(requires_approval=True, name="sign")(self._sign)
        return PydanticAdapter(agent)

    def langchain(self) -> LangChainAdapter:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            messages = [one for one in messages if one.type != "system"]
            text = self._answer(told := shape(messages))
            return called(("sign", {"what": told[-1]}, f"c{len(messages)}")) if text is None else said(text)

        @tool
        def sign(what: str) -> str:
            """Sign, once that is allowed."""
            return self._sign(what) if interrupt({"sign": what}) else "refused"

        made: Any = create_agent(ScriptedModel(answer=answer), tools=[sign], system_prompt=f"You are {self.version}.")
        return LangChainAdapter(made)
