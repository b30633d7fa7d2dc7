"""Workflows of an agent with `TemporalDurability`. Temporal's sandbox imports this module."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import FunctionModel
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from bench.script import answer

agent: Agent[None, str] = Agent(
    FunctionModel(answer(), model_name="bench"), name="bench", capabilities=[TemporalDurability()]
)


@workflow.defn
class Talk(PydanticAIWorkflow):
    """Holds a conversation's messages, and runs the agent in each update."""

    __pydantic_ai_agents__ = (agent,)

    @workflow.init
    def __init__(self, messages: list[ModelMessage]) -> None:
        self._messages = messages

    @workflow.run
    async def run(self, messages: list[ModelMessage]) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def ask(self, prompt: str) -> str:
        result = await agent.run(prompt, message_history=self._messages)
        self._messages = result.all_messages()
        return result.output


@workflow.defn
class TalkContinued(PydanticAIWorkflow):
    """The same, which continues as new between two updates when Temporal suggests it."""

    __pydantic_ai_agents__ = (agent,)

    @workflow.init
    def __init__(self, messages: list[ModelMessage]) -> None:
        self._messages = messages

    @workflow.run
    async def run(self, messages: list[ModelMessage]) -> None:
        await workflow.wait_condition(
            lambda: workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
        )
        workflow.continue_as_new(self._messages)

    @workflow.update
    async def ask(self, prompt: str) -> str:
        result = await agent.run(prompt, message_history=self._messages)
        self._messages = result.all_messages()
        return result.output
