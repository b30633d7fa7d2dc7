"""The scripted agent as a LangGraph graph, which writes down each request and each tool call that it is given."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.tools import ToolException, tool

from laneway import LangChainAdapter, RetryPolicy

from tests.chaos.script import Failed, Message, Part, Plan, ask, digest, respond
from tests.chaos.watched import current_attempt
from tests.langchain.graphs import ScriptedModel, prompts_of

__all__ = ["graph_adapter", "seen_by_graph"]

_USAGE = UsageMetadata(input_tokens=1, output_tokens=1, total_tokens=2)


class Overloaded(Exception):
    """What a provider answers that asks to be asked again."""

    status_code = 503


def seen_by_graph(messages: Sequence[BaseMessage]) -> list[Message]:
    """LangChain's messages in the script's form, where the results of one batch are one message."""
    found: list[Message] = []
    for message in messages:
        match message:
            case HumanMessage():
                found.append(("request", [["prompt", str(message.content)]]))
            case ToolMessage():
                outcome = "retried" if message.status == "error" else "success"
                part: Part = ["result", str(message.name), message.tool_call_id, outcome, str(message.content)]
                if found[-1][0] == "request" and found[-1][1][0][0] == "result":
                    found[-1][1].append(part)
                else:
                    found.append(("request", [part]))
            case AIMessage():
                parts: list[Part] = [["text", str(message.content)]] if message.content else []
                parts += [["call", one["name"], str(one["id"]), json.dumps(one["args"])] for one in message.tool_calls]
                found.append(("response", parts))
            case other:
                found.append(("request", [["unexpected", other.type]]))
    return found


def _native(parts: Sequence[Part]) -> AIMessage:
    calls = [{"name": part[1], "args": json.loads(part[3]), "id": part[2]} for part in parts if part[0] == "call"]
    text = "".join(part[1] for part in parts if part[0] == "text")
    return AIMessage(text, tool_calls=calls, usage_metadata=_USAGE)


def graph_adapter(note: Callable[..., None], stand: Callable[[str], bool], retries: RetryPolicy) -> LangChainAdapter:
    """The agent, with `create_agent`.

    Args:
        note: writes a line.
        stand: stands still at a place, where this process is to; whether it did.
        retries: how its model requests are retried.
    """

    async def answer(messages: list[BaseMessage]) -> AIMessage:
        asked = seen_by_graph(messages)
        plan, answers = ask(asked)
        note("model", of=plan.id, asked=digest(asked), answers=answers)
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
        plan = Plan.from_prompt(prompts_of(runtime.state["messages"])[-1])
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
        own = seen_by_graph(runtime.state["messages"])
        last = max(at for at, (_, parts) in enumerate(own) if parts and parts[0][0] == "prompt")
        if not any(part[0] == "result" and part[3] == "retried" for _, parts in own[last:] for part in parts):
            raise ToolException("again")
        return done

    @tool
    async def broken(call: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Break."""
        await asyncio.sleep(begin("broken", runtime, call).tool_pace)
        raise RuntimeError(f"broken {call}")

    shy.handle_tool_error = True
    model = ScriptedModel(answer=answer, model_name="chaos")
    agent: Any = create_agent(model, [fetch, count, shy, broken])
    return LangChainAdapter(agent, retry_policy=retries, config={"recursion_limit": 100})
