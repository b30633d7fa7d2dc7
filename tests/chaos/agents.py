"""The scripted agents as Pydantic AI agents, which write down each request and each tool call that they are given."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic_ai import Agent, CallDeferred, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelServerError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import Delegation, PydanticAdapter, RetryPolicy
from laneway.activities.adapter import Adapter

from tests.chaos.graph import graph_adapter
from tests.chaos.ledger import Ledger
from tests.chaos.script import (
    TEAMS,
    Failed,
    Message,
    Part,
    Plan,
    ask,
    digest,
    in_order,
    own_of,
    respond,
    sightings,
    told_of_kept,
)
from tests.chaos.watched import attempt_fields, current_attempt

__all__ = ["AGENTS", "Hold", "Place", "Scripted", "seen"]

AGENTS = ("plain", "careful", "graph")
"""Whom callers talk to. `careful` has an output validator, and a system prompt that changes every few seconds and so
rewrites histories; `graph` is a graph of LangGraph's. `plain` and `graph` hand work to agents of both frameworks."""

_USAGE = RequestUsage(input_tokens=1, output_tokens=1)
_MOOD_SECONDS = 9
_RETRIES = RetryPolicy(first_delay=timedelta(milliseconds=200))


Place = Literal["model", "stage", "tool", "tool_fails"]


@dataclass
class Hold:
    """Makes a process stand still, its event loop included, the first time that it comes by.

    Attributes:
        where: before the model's answer is given, before it is staged or committed, or in a tool, which may then fail.
        gate: it goes on once this file is there.
    """

    where: Place
    gate: Path
    used: bool = False

    def here(self, where: str, ledger: Ledger) -> bool:
        if self.used or where != self.where:
            return False
        self.used = True
        ledger.write("held", where=where)
        while not self.gate.exists():
            time.sleep(0.01)
        ledger.write("released", where=where)
        return True


def delegations(agent: str) -> Mapping[str, Delegation]:
    """The delegates of an agent, as its adapter takes them. Two of a kind at a time, so that some wait for a place."""
    return {
        name: Delegation(
            one.agent,
            f"does what {name} does",
            max_concurrency=2,
            keep=one.keep,
            max_turns=1000,
            on_failure="fail_turn" if one.fails_turn else "tell_model",
        )
        for name, one in TEAMS.get(agent, {}).items()
    }


def _content(value: Any) -> str:
    return told_of_kept(value["child"], value["output"]) if isinstance(value, dict) else str(value)


def seen(messages: Sequence[ModelMessage]) -> list[Message]:
    """Pydantic AI's messages in the script's form."""
    found: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                # What an output validator says is handed to the model as a user's text.
                text = str(part.content)
                parts.append(["prompt", text] if text.startswith("{") else ["feedback"])
            elif isinstance(part, ToolReturnPart):
                parts.append(["result", part.tool_name, part.tool_call_id, part.outcome, _content(part.content)])
            elif isinstance(part, ToolCallPart):
                parts.append(["call", part.tool_name, part.tool_call_id, json.dumps(part.args_as_dict())])
            elif isinstance(part, TextPart):
                parts.append(["text", part.content])
        found.append(("request", in_order(parts)) if isinstance(message, ModelRequest) else ("response", parts))
    return found


def _native(parts: Sequence[Part]) -> ModelResponse:
    return ModelResponse(
        [
            TextPart(part[1]) if part[0] == "text" else ToolCallPart(part[1], json.loads(part[3]), part[2])
            for part in parts
        ],
        usage=_USAGE,
    )


class Scripted:
    """The agents of one process.

    Args:
        ledger: where requests and tool calls are written down; None in a process that only submits.
        hold: see `Hold`.
    """

    def __init__(self, ledger: Ledger | None = None, hold: Hold | None = None) -> None:
        self._ledger = ledger
        self._hold = hold

    def agents(self) -> Mapping[str, Adapter[Any]]:
        native = {
            name: PydanticAdapter(self._agent(name), retry_policy=_RETRIES, delegates=delegations(name))
            for name in ("plain", "careful", "reader")
        }
        graphs = {
            name: graph_adapter(self._note, self._pass, _RETRIES, delegations(name)) for name in ("graph", "scribe")
        }
        return {**native, **graphs}

    def _note(self, kind: str, /, **fields: object) -> None:
        assert self._ledger is not None
        self._ledger.write(kind, **attempt_fields(), **fields)

    def _pass(self, where: str) -> bool:
        """Stand still here, where this process is to; whether it did."""
        return self._hold is not None and self._ledger is not None and self._hold.here(where, self._ledger)

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = seen(messages)
        plan, answers = ask(asked)
        self._note("model", of=plan.id, asked=digest(asked), answers=answers, outside=vars(sightings(own_of(asked))))
        if plan.pace:
            await asyncio.sleep(plan.pace)
        attempt = current_attempt()
        if plan.flaky and answers == 0 and attempt is not None and attempt.attempt == 1:
            raise ModelServerError("chaos", "try again")
        try:
            parts = respond(asked)
        except Failed as failed:
            raise ValueError(f"no answer for {plan.id}") from failed
        self._note("answered", of=plan.id, answers=answers)
        self._pass("model")
        return _native(parts)

    def _agent(self, name: str) -> Agent[None, str]:
        agent: Agent[None, str] = Agent(FunctionModel(self._model, model_name="chaos"), deps_type=type(None), name=name)

        def begin(tool: str, ctx: RunContext[None], call: str) -> Plan:
            plan = Plan.from_prompt(str(ctx.prompt))
            self._note("tool", of=plan.id, run=ctx.run_id, tool=tool, call=call, given=ctx.tool_call_id)
            return plan

        def end(tool: str, call: str) -> str:
            self._note("tool_done", tool=tool, call=call)
            self._pass("tool")
            if self._pass("tool_fails"):
                raise RuntimeError("the connection is gone")
            return f"{tool} {call}"

        @agent.tool
        async def fetch(ctx: RunContext[None], call: str) -> str:
            await asyncio.sleep(begin("fetch", ctx, call).tool_pace)
            return end("fetch", call)

        @agent.tool
        def count(ctx: RunContext[None], call: str) -> str:
            time.sleep(begin("count", ctx, call).tool_pace)
            return end("count", call)

        @agent.tool
        async def shy(ctx: RunContext[None], call: str) -> str:
            await asyncio.sleep(begin("shy", ctx, call).tool_pace)
            answer = end("shy", call)
            if ctx.retry == 0:
                raise ModelRetry("again")
            return answer

        @agent.tool
        async def broken(ctx: RunContext[None], call: str) -> str:
            await asyncio.sleep(begin("broken", ctx, call).tool_pace)
            raise RuntimeError(f"broken {call}")

        @agent.tool(requires_approval=True)
        async def sign(ctx: RunContext[None], call: str) -> str:
            await asyncio.sleep(begin("sign", ctx, call).tool_pace)
            return end("sign", call)

        @agent.tool_plain
        async def measure(call: str) -> str:
            raise CallDeferred

        if name == "careful":

            @agent.output_validator
            async def check(ctx: RunContext[None], output: str) -> str:
                await asyncio.sleep(0.01)
                if Plan.from_prompt(str(ctx.prompt)).redo and ctx.retry == 0:
                    raise ModelRetry("redo")
                return output

            @agent.system_prompt(dynamic=True)
            def mood() -> str:
                return f"mood {int(time.time() / _MOOD_SECONDS)}"

        return agent
