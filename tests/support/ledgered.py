"""Agents whose models and tools write down what they do. `python -m tests.support.ledgered` runs its workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import laneway.worker
from laneway import Delegation, HistoryProcessorContext, Laneway, LangChainAdapter, PydanticAdapter, Settings
from laneway.activities.adapter import Adapter
from laneway.activities.steps import Steps

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.hooked import hooked
from tests.support.stops import StoppingStore, Stops, append

_noted: dict[str, Path] = {}


def agents(ledger: Path, stops: Stops) -> dict[str, Adapter[Any]]:
    """Agents that call two tools at once and then answer: `plain`, `checked`, which has a validator, and `graph`."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = 0 if any(isinstance(part, UserPromptPart) for part in messages[-1].parts) else 2
        turn = sum(isinstance(part, UserPromptPart) for message in messages for part in message.parts)
        append(ledger, f"turn {turn} model {step} asked")
        await stops.at(f"model {step}")
        append(ledger, f"turn {turn} model {step} answered")
        if step == 0:
            return ModelResponse([ToolCallPart("first", {}, f"a{turn}"), ToolCallPart("second", {}, f"b{turn}")])
        results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse([TextPart(f"turn {turn}: {' and '.join(map(str, results))}")])

    async def graph_answer(messages: list[BaseMessage]) -> AIMessage:
        step = 0 if isinstance(messages[-1], HumanMessage) else 2
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        append(ledger, f"turn {turn} model {step} asked")
        await stops.at(f"model {step}")
        append(ledger, f"turn {turn} model {step} answered")
        if step == 0:
            return called(("first", {}, f"a{turn}"), ("second", {}, f"b{turn}"))
        results = [message.text for message in messages[-2:] if isinstance(message, ToolMessage)]
        return said(f"turn {turn}: {' and '.join(results)}")

    async def first() -> str:
        """Comes first."""
        append(ledger, "first called")
        append(ledger, "first finished")
        return "one"

    async def second() -> str:
        """Comes second."""
        append(ledger, "second called")
        if stops.place == "second":
            # The first one's result is safe by then.
            await stops.until("after j1")
            await stops.at("second")
        append(ledger, "second finished")
        return "two"

    def make() -> Agent[None, str]:
        agent: Agent[None, str] = Agent(FunctionModel(answer, model_name="ledgered"))

        agent.tool_plain(first)
        agent.tool_plain(second)
        return agent

    checked = make()

    @checked.output_validator
    async def check(output: str) -> str:
        await stops.at("validator")
        return output

    graph: Any = create_agent(ScriptedModel(answer=graph_answer), [first, second])
    return {
        "plain": PydanticAdapter(make()),
        "checked": PydanticAdapter(checked),
        "graph": LangChainAdapter(graph),
        **_team(ledger, stops),
        **hooked(ledger),
    }


def application(ledger: Path, stops: Stops, *, version: str = "1") -> Laneway:
    """These agents, and a history processor `trim` that writes down its version."""
    app = Laneway(agents=agents(ledger, stops))
    _noted["ledger"] = ledger  # not enclosed: it would make another version in each process

    @app.processor
    def trim(ctx: HistoryProcessorContext[Any]) -> Any:
        append(_noted["ledger"], f"trim {version}")
        return ctx.messages

    return app


def _team(ledger: Path, stops: Stops) -> dict[str, Adapter[Any]]:
    """`lead` hands work to `helper`, and at the same time asks to `sign`; `payer` calls a tool that runs once.

    `graph lead` does the same as a graph, and `lead of graphs` hands it to `graph helper`.
    """

    def lead(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        append(ledger, f"lead asked {len(results)}")
        if results:
            return ModelResponse([TextPart(" and ".join(map(str, results)))])
        return ModelResponse(
            [ToolCallPart("delegate_to_helper", {"brief": "help"}, "h"), ToolCallPart("sign", {}, "s")]
        )

    async def helper(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        append(ledger, "helper asked")
        await stops.at("helper")
        return ModelResponse([TextPart("helped")])

    def graph_lead(messages: list[BaseMessage]) -> AIMessage:
        results = [message.text for message in messages if isinstance(message, ToolMessage)]
        append(ledger, f"lead asked {len(results)}")
        if results:
            return said(" and ".join(results))
        return called(("delegate_to_helper", {"brief": "help"}, "h"), ("sign", {}, "s"))

    async def graph_helper(messages: list[BaseMessage]) -> AIMessage:
        append(ledger, "helper asked")
        await stops.at("helper")
        return said("helped")

    @tool(name_or_callable="sign")
    def graph_sign() -> str:
        """Sign, once that is allowed."""
        if not interrupt("sign"):
            return "refused"
        append(ledger, "signed")
        return "signed"

    def payer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse([TextPart(f"{results[0].outcome}: {results[0].content}")])
        return ModelResponse([ToolCallPart("pay", {"amount": 5}, "p")])

    def sign() -> str:
        append(ledger, "signed")
        return "signed"

    def leading() -> Agent[None, str]:
        agent: Agent[None, str] = Agent(FunctionModel(lead, model_name="lead"))
        agent.tool_plain(requires_approval=True)(sign)
        return agent

    to_helper = {"helper": Delegation("helper", "helps")}
    tools = [graph_sign, *LangChainAdapter.delegate_tools(to_helper)]
    graph: Any = create_agent(ScriptedModel(answer=graph_lead), tools)
    helping: Any = create_agent(ScriptedModel(answer=graph_helper), [])

    paying: Agent[None, str] = Agent(FunctionModel(payer, model_name="payer"))

    @paying.tool_plain(metadata={"retry": "never"})
    async def pay(amount: int) -> str:
        append(ledger, f"paid {amount}")
        await stops.at("pay")
        return "paid"

    return {
        "lead": PydanticAdapter(leading(), delegates=to_helper),
        "graph lead": LangChainAdapter(graph, delegates=to_helper),
        "lead of graphs": PydanticAdapter(leading(), delegates={"helper": Delegation("graph helper", "helps")}),
        "graph helper": LangChainAdapter(helping),
        "helper": PydanticAdapter(Agent(FunctionModel(helper, model_name="helper"))),
        "payer": PydanticAdapter(paying),
    }


async def work(folder: Path, place: str | None) -> None:
    """Run a worker that stops at `place`; after an `@` comes the version of its application."""
    place, _, version = (place or "").partition("@")
    stops = Stops(place or None, folder / "stopped")
    StoppingStore.stops = stops
    laneway.worker.HistoryStore = StoppingStore
    # However slow the machine is, another worker comes in time.
    laneway.worker.Steps = partial(Steps, mismatch_grace=timedelta(minutes=2))  # type: ignore[misc, assignment]
    async with application(folder / "ledger", stops, version=version or "1").worker(_settings(folder)):
        append(folder / "ready", "ready")
        await asyncio.Event().wait()


async def talk(folder: Path, conversation_id: str) -> None:
    """Go on with a conversation in a scope, as a caller that knows nothing of it but its id."""
    async with (
        application(folder / "ledger", Stops()).client(_settings(folder)) as client,
        client.history(conversation_id, processor="trim"),
    ):
        result = await client.ask("plain", "and on")
    append(folder / "said", str(result.output))


def _settings(folder: Path) -> Settings:
    return Settings.model_validate(json.loads((folder / "settings.json").read_text()))


def main() -> None:
    """Start and kill workers as asked on standard input, and have callers talk.

    Each is forked off this process, which has imported everything and started nothing: a worker of its own within a
    second, where a new interpreter would first import for several.
    """
    for line in sys.stdin:
        order, _, rest = line.strip().partition(" ")
        if order == "kill":
            os.kill(int(rest), signal.SIGKILL)
            os.waitpid(int(rest), 0)
            answer = "gone"
        else:
            folder, _, what = rest.partition("|")
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.run(work(Path(folder), what or None) if order == "start" else talk(Path(folder), what))
                finally:
                    os._exit(1)
            answer = str(pid)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
