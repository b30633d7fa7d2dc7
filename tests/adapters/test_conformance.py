"""Laneway's own adapters, and one made for the purpose, against the suite that authors of adapters are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import LangChainAdapter, PydanticAdapter
from laneway.activities.adapter import StepResult, StepWork
from laneway.testing import AdapterCase, CheckFailed, check_adapter

from examples.plain_adapter import Message, PlainAdapter
from tests.langchain.graphs import ScriptedModel


@dataclass
class Counts:
    asked: int = 0
    ran: int = 0

    def run(self, value: int) -> int:
        self.ran += 1
        return value + 1


def plain(counts: Counts, kind: type[PlainAdapter] = PlainAdapter) -> AdapterCase[Message]:
    async def answer(messages: Sequence[Message]) -> Message:
        counts.asked += 1
        start = max(i for i, one in enumerate(messages) if one["role"] == "user")
        prompt, called = messages[start]["text"], sum(one["role"] == "tool" for one in messages[start:])
        if called < prompt.count("add"):
            return {"role": "assistant", "text": "", "call": ["add", {"value": called}]}
        return {"role": "assistant", "text": f"{prompt}: {messages[-1]['text']}"}

    return AdapterCase(
        lambda: kind(answer, name="scripted", tools={"add": counts.run}),
        text_prompt="Hello",
        tool_prompt="add add",
        asked=lambda: counts.asked,
        ran=lambda: counts.ran,
    )


def pydantic(counts: Counts) -> AdapterCase[ModelMessage]:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        counts.asked += 1
        start = max(i for i, one in enumerate(messages) if any(isinstance(p, UserPromptPart) for p in one.parts))
        prompt = next(str(p.content) for p in messages[start].parts if isinstance(p, UserPromptPart))
        called = sum(isinstance(one, ModelResponse) for one in messages[start:])
        if called < prompt.count("add"):
            # Two at once: they are journaled each by itself.
            return ModelResponse([ToolCallPart("add", {"value": n}, f"{called}-{n}") for n in (1, 2)])
        return ModelResponse([TextPart(f"{prompt}: {called}")])

    def make() -> PydanticAdapter[None, str]:
        agent = Agent(FunctionModel(answer, model_name="scripted"))
        agent.tool_plain(name="add")(counts.run)
        return PydanticAdapter(agent)

    return AdapterCase(
        make, text_prompt="Hello", tool_prompt="add add", asked=lambda: counts.asked, ran=lambda: counts.ran
    )


def langchain(counts: Counts) -> AdapterCase[BaseMessage]:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        counts.asked += 1
        start = max(i for i, one in enumerate(messages) if isinstance(one, HumanMessage))
        prompt, called = str(messages[start].content), sum(isinstance(one, AIMessage) for one in messages[start:])
        if called < prompt.count("add"):
            # One at a time: LangGraph runs two at once, and both may have ended before the first can be kept.
            one = {"name": "add", "args": {"value": called}, "id": f"call-{called}", "type": "tool_call"}
            return AIMessage("", tool_calls=[one])
        return AIMessage(f"{prompt}: {called}")

    def add(value: int) -> int:
        """One more."""
        return counts.run(value)

    def make() -> LangChainAdapter:
        return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [add]))

    return AdapterCase(
        make, text_prompt="Hello", tool_prompt="add add", asked=lambda: counts.asked, ran=lambda: counts.ran
    )


@pytest.mark.parametrize("make", [plain, pydantic, langchain])
async def test_an_adapter_conforms(make: Any):
    (await check_adapter(make(Counts()))).raise_for_failures()


# A suite that finds nothing proves nothing: each of these breaks one promise.


class Forgetful(PlainAdapter):
    async def step(self, work: StepWork[Message]) -> StepResult[Message]:
        return await super().step(replace(work, journal=type(work.journal)({}, work.journal.finish)))


class Impure(PlainAdapter):
    async def step(self, work: StepWork[Message]) -> StepResult[Message]:
        result = await super().step(work)
        for message in work.history:
            message["text"] += "!"
        return result


class Lossy(PlainAdapter):
    def encode(self, message: Message) -> bytes:
        return super().encode({**message, "text": message["text"] + "."})


class Rewriting(PlainAdapter):
    async def step(self, work: StepWork[Message]) -> StepResult[Message]:
        result = await super().step(work)
        return replace(result, appended=(), rewritten=[*work.history, *result.appended])


class Boastful(PlainAdapter):
    capabilities = frozenset({"telepathy"})  # type: ignore[assignment]


class Gullible(PlainAdapter):
    def encode_prompt(self, prompt: object) -> bytes:
        return super().encode_prompt(str(prompt) + " ")


class Deaf(PlainAdapter):
    capabilities = frozenset({"history_processing"})  # type: ignore[assignment]


class Unhooked(PlainAdapter):
    capabilities = frozenset({"hooks"})  # type: ignore[assignment]


class Changeable(PlainAdapter):
    def contract(self) -> dict[str, object]:
        return {"at": uuid4().hex}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Forgetful, "repeats nothing"),
        (Impure, "not changed in place"),
        (Lossy, "stored again"),
        (Rewriting, "only append"),
        (Boastful, "capabilities that exist"),
        (Gullible, "what is no prompt is refused"),
        (Changeable, "the same each time"),
        (Deaf, "its failure is the turn's"),
        (Unhooked, "can deny it"),
    ],
)
async def test_the_suite_finds_a_broken_promise(kind: type[PlainAdapter], found: str):
    report = await check_adapter(plain(Counts(), kind))
    assert any(found in failure.name for failure in report.failures), report
    with pytest.raises(CheckFailed):
        report.raise_for_failures()
