"""A conversation from end to end, without anything going wrong."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import PydanticAdapter

from tests.support.bench import Bench


def counting(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the time once, then says how many messages there are."""
    if not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse([ToolCallPart("clock", {}, "c1")])
    return ModelResponse([TextPart(f"{len(messages)} messages")])


async def test_turns_of_a_conversation_are_committed_one_after_another(bench: Bench, conversation_id: str):
    """Each turn sees the messages of the ones before, and the lane's head moves with it."""
    agent = Agent(FunctionModel(counting))
    agent.tool_plain(name="clock")(lambda: "noon")
    client = await bench.serve({"agent": PydanticAdapter(agent)})
    conversation = client.conversation(conversation_id)
    for number in (1, 2, 3):
        result = await conversation.ask("agent", f"question {number}")
        assert result.output == f"{4 * number - 1} messages"
        assert result.steps == 3
        assert result.checkpoint.length == 4 * number
    assert len(await conversation.messages("agent")) == 12
    status = await conversation.status("agent")
    assert (status.version, status.turn, status.queue) == (3, None, ())
