"""Agents of each framework that read page after page, read back their first archive, and answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import HistoryArchiveSettings, LangChainAdapter, PydanticAdapter

from tests.editing.agents import LangChainRecorder, texts_of
from tests.history.oracle import why_unsendable
from tests.langchain.graphs import ScriptedModel

SETTINGS = HistoryArchiveSettings(threshold_tokens=1_800, preserve_recent_tokens=400, minimum_reduction_tokens=500)
ROUNDS = 11

Step = tuple[str, dict[str, Any], str] | str
"""A tool, its arguments and the call's id; or what is said."""


def page(n: int) -> str:
    return f"PAGE-{n} " + "word " * 200


def read(n: int) -> str:
    """Read a page."""
    return page(n)


def reference_in(texts: list[str]) -> str:
    """The first archive that is named in them."""
    said = "\n".join(texts)
    return said[said.index("[Archive ") + 9 :].partition(":")[0]


@dataclass
class Reader:
    """What the model does, whatever runs it.

    Attributes:
        sent: the texts of each request.
        fails: whether it fails in the end.
        rounds: how many pages it reads; none for less than 0, and nothing back then.
    """

    sent: list[list[str]] = field(default_factory=list[list[str]])
    fails: bool = False
    rounds: int = ROUNDS

    texts_of: ClassVar[Any]

    def step(self, texts: list[str]) -> Step:
        self.sent.append(texts)
        asked = len(self.sent)
        if asked <= self.rounds:
            return "read", {"n": asked}, f"c{asked}"
        if asked == self.rounds + 1:
            return "read_archived", {"reference": reference_in(texts)}, "back"
        if self.fails:
            raise ValueError("it fails in the end")
        return "done"

    def adapter(self, **options: Any) -> Any:
        raise NotImplementedError


class PydanticReader(Reader):
    texts_of = staticmethod(texts_of)

    def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert why_unsendable(messages) is None
        step = self.step(texts_of(messages))
        return ModelResponse(
            [TextPart(step) if isinstance(step, str) else ToolCallPart(*step)], usage=RequestUsage(output_tokens=1)
        )

    def adapter(self, **options: Any) -> PydanticAdapter[None, str]:
        agent = Agent(FunctionModel(self._model, model_name="reader"))
        agent.tool_plain(read)
        return PydanticAdapter(agent, **{"history_archive": SETTINGS, **options})


class AgentReader(Reader):
    """An agent of `create_agent`."""

    texts_of = staticmethod(LangChainRecorder.texts_of)

    def _model(self, messages: list[BaseMessage]) -> AIMessage:
        open_calls: list[str] = []
        for message in messages:
            if isinstance(message, ToolMessage):
                open_calls.remove(message.tool_call_id)
                continue
            assert not open_calls
            open_calls += [str(call["id"]) for call in getattr(message, "tool_calls", ())]
        assert not open_calls
        step = self.step(self.texts_of(messages))
        if isinstance(step, str):
            return AIMessage(step)
        name, args, call_id = step
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id}])

    def graph(self, tools: list[Any]) -> Any:
        return create_agent(ScriptedModel(answer=self._model, model_name="reader"), tools)

    def adapter(self, **options: Any) -> LangChainAdapter:
        graph = self.graph([read, *LangChainAdapter.archive_tools()])
        return LangChainAdapter(graph, **{"history_archive": SETTINGS, **options})


class GraphReader(AgentReader):
    """A `StateGraph` of one's own, whose model node is synchronous: its tools run in threads."""

    def graph(self, tools: list[Any]) -> Any:
        model = ScriptedModel(answer=self._model, model_name="reader").bind_tools(tools)

        def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        def use(state: MessagesState) -> dict[str, Any]:
            return {"messages": by_name(tools, state["messages"][-1])}

        graph = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_node("use", use)
        graph.add_edge(START, "ask")
        graph.add_conditional_edges("ask", lambda state: "use" if state["messages"][-1].tool_calls else END)
        graph.add_edge("use", "ask")
        return graph


def by_name(tools: list[Any], answer: Any) -> list[ToolMessage]:
    """What the calls of an answer come to, run one after the other in the thread that asks."""
    node = ToolNode(tools)
    return [node.tools_by_name[call["name"]].invoke({**call, "type": "tool_call"}) for call in answer.tool_calls]


READERS: list[type[Reader]] = [PydanticReader, AgentReader, GraphReader]
