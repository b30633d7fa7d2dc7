"""A lead that hands out work as its prompt says, and readers that do it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import Delegation, PydanticAdapter

from tests.lanes.agents import prompts_of
from tests.waiting.agents import results_in

USAGE = RequestUsage(input_tokens=10, output_tokens=1)


def calls_of(prompt: str) -> list[Any]:
    """`reader: a | reader: b` hands out `a` and `b`; arguments may be JSON."""
    calls: list[Any] = []
    for number, part in enumerate(prompt.split(" | ")):
        name, _, brief = part.partition(": ")
        arguments = json.loads(brief) if brief.startswith("{") else {"brief": brief}
        calls.append(ToolCallPart(f"delegate_to_{name}", arguments, f"call-{number}"))
    return calls


@dataclass
class Team:
    """Agents whose models follow their prompts.

    `lead` and `middle` hand out what their prompt says (`reader: text | middle: reader: text`), and answer with what
    they got. `reader` answers with the text; it waits for a gate where the text has `wait`, and fails on `fail`.

    Attributes:
        read: how often a reader was asked each text.
        running, most: how many readers ran, and the most at once.
        cancelled: the texts that readers were stopped at.
    """

    delegates: Mapping[str, Delegation] = field(
        default_factory=lambda: {
            "reader": Delegation("reader", "reads"),
            "middle": Delegation("middle", "hands on"),
        }
    )
    read: Counter[str] = field(default_factory=Counter[str])
    running: int = 0
    most: int = 0
    begun: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: list[str] = field(default_factory=list[str])

    def _hand_out(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], UserPromptPart):
            return ModelResponse(calls_of(prompts_of(messages)[-1]), usage=USAGE)
        here = [one for one in messages[-1:] if isinstance(one, ModelRequest)]
        got = [f"{outcome}: {content}" for _, outcome, content in results_in(here)]
        return ModelResponse([TextPart("; ".join(got))], usage=USAGE)

    async def _read(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        text = prompts_of(messages)[-1]
        self.read[text] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun[text].set()
        try:
            if "wait" in text:
                await self.gate.wait()
            if "fail" in text:
                raise ValueError(f"cannot read {text}")
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(text)
            raise
        finally:
            self.running -= 1
        earlier = "+".join(prompts_of(messages)[:-1])
        return ModelResponse([TextPart(f"read {text}{' after ' + earlier if earlier else ''}")], usage=USAGE)

    def agents(self, **budgets: Any) -> dict[str, PydanticAdapter[None, Any]]:
        hand_out = FunctionModel(self._hand_out, model_name="lead")
        return {
            "lead": PydanticAdapter(Agent(hand_out), delegates=self.delegates, **budgets),
            "middle": PydanticAdapter(Agent(hand_out), delegates=self.delegates),
            "reader": PydanticAdapter(Agent(FunctionModel(self._read, model_name="reader"))),
        }
