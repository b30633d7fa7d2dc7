"""The scripted agent as a LangGraph graph, which writes down each request and each tool call that it is given."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.tools import ToolException, tool
from langgraph.types import interrupt

from laneway import Delegation, LangChainAdapter, RetryPolicy

from tests.chaos.script import (
    Failed,
    Message,
    Part,
    Plan,
    ask,
    digest,
    own_of,
    respond,
    sightings,
    told_of_kept,
)
from tests.chaos.watched import current_attempt
from tests.langchain.graphs import ScriptedModel

__all__ = ["graph_adapter", "seen_by_graph"]

_USAGE = UsageMetadata(input_tokens=1, output_tokens=1, total_tokens=2)


class Overloaded(Exception):
    """What a provider answers that asks to be asked again."""

    status_code = 503


def seen_by_graph(messages: Sequence[BaseMessage]) -> list[Message]:
    """LangChain's messages in the script's form, where what comes between two answers is one message."""
    found: list[Message] = []

    def ask_with(part: Part) -> None:
        if found and found[-1][0] == "request":
            found[-1][1].append(part)
        else:
            found.append(("request", [part]))

    for message in messages:
        match message:
            case HumanMessage():
                ask_with(["prompt", str(message.content)])
            case ToolMessage():
                name = str(message.name)
                failed = "retried" if name == "shy" else "failed"
                outcome = failed if message.status == "error" else "success"
                content = _told(name, str(message.content)) if outcome == "success" else str(message.content)
                ask_with(["result", name, message.tool_call_id, outcome, content])
            case AIMessage():
                parts: list[Part] = [["text", str(message.content)]] if message.content else []
                parts += [["call", one["name"], str(one["id"]), json.dumps(one["args"])] for one in message.tool_calls]
                found.append(("response", parts))
            case other:
                ask_with(["unexpected", other.type])
    return found


def _told(tool: str, content: str) -> str:
    if tool != "delegate_to_kept":
        return content
    value = json.loads(content)
    return told_of_kept(value["child"], value["output"])


def _native(parts: Sequence[Part]) -> AIMessage:
    calls = [{"name": part[1], "args": json.loads(part[3]), "id": part[2]} for part in parts if part[0] == "call"]
    text = "".join(part[1] for part in parts if part[0] == "text")
    return AIMessage(text, tool_calls=calls, usage_metadata=_USAGE)


def graph_adapter(
    note: Callable[..., None],
    stand: Callable[[str], bool],
    retries: RetryPolicy,
    delegates: Mapping[str, Delegation],
) -> LangChainAdapter:
    """The agent, with `create_agent`.

    Args:
        note: writes a line.
        stand: stands still at a place, where this process is to; whether it did.
        retries: how its model requests are retried.
        delegates: whom it hands work to.
    """

    async def answer(messages: list[BaseMessage]) -> AIMessage:
        asked = seen_by_graph(messages)
        plan, answers = ask(asked)
        note("model", of=plan.id, asked=digest(asked), answers=answers, outside=vars(sightings(own_of(asked))))
        if plan.pace:
            await asyncio.sleep(plan.pace)
        attempt = current_attempt()
        if plan.flaky and answers == 0 and attempt is not None and attempt.attempt == 1:
            raise Overloaded("try again")
        try:
            parts = respond(asked)
        except Failed as failed:
            raise ValueError(f"no answer for {plan.id}") from failed
        note("answered", of=plan.id, answers=answers)
        stand("model")
        return _native(parts)

    def begin(name: str, runtime: ToolRuntime[Any, Any], call: str) -> Plan:
        plan, _ = ask(seen_by_graph(runtime.state["messages"]))
        note("tool", of=plan.id, tool=name, call=call, given=runtime.tool_call_id)
        return plan

    def end(name: str, call: str) -> str:
        note("tool_done", tool=name, call=call)
        stand("tool")
        if stand("tool_fails"):
            raise RuntimeError("the connection is gone")
        return f"{name} {call}"

    @tool
    async def fetch(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Fetch."""
        await asyncio.sleep(begin("fetch", runtime, call).tool_pace)
        return end("fetch", call)

    @tool
    def count(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Count, in a thread."""
        time.sleep(begin("count", runtime, call).tool_pace)
        return end("count", call)

    @tool
    async def shy(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Refuse a turn's first call."""
        await asyncio.sleep(begin("shy", runtime, call).tool_pace)
        done = end("shy", call)
        own = own_of(seen_by_graph(runtime.state["messages"]))
        if not any(part[0] == "result" and part[3] == "retried" for _, parts in own for part in parts):
            raise ToolException("again")
        return done

    @tool
    async def broken(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Break."""
        await asyncio.sleep(begin("broken", runtime, call).tool_pace)
        raise RuntimeError(f"broken {call}")

    @tool
    async def sign(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Ask for leave."""
        if not interrupt({"ask": "sign", "call": call}):
            return f"refused {call}"
        await asyncio.sleep(begin("sign", runtime, call).tool_pace)
        return end("sign", call)

    @tool
    async def measure(call: str) -> str:
        """Ask for a result from elsewhere."""
        return str(interrupt({"ask": "measure", "call": call}))

    shy.handle_tool_error = True
    model = ScriptedModel(answer=answer, model_name="chaos")
    tools = [fetch, count, shy, broken, sign, measure, *LangChainAdapter.delegate_tools(delegates)]
    agent: Any = create_agent(model, tools)
    return LangChainAdapter(agent, retry_policy=retries, config={"recursion_limit": 100}, delegates=delegates)
