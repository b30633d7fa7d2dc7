"""What a turn did to the world is known after it has come to nothing: an abort drops messages, and no evidence."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import Deny, EventKind, Hooks, LangChainAdapter, PydanticAdapter
from laneway.errors import TurnCancelled, TurnFailed

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench
from tests.turns.test_atomicity import ADAPTERS, Hold


@pytest.mark.parametrize("framework", ADAPTERS)
@pytest.mark.parametrize("end", ["fail", "hold"], ids=["failed", "cancelled"])
async def test_a_tool_that_ran_is_on_record_when_its_turn_has_failed_or_was_cancelled(
    bench: Bench, conversation_id: str, framework: str, end: str
):
    """It is counted, and on the stream with its outcome; of the turn's messages there is none."""
    hold = Hold()
    client = await bench.serve({"agent": ADAPTERS[framework](hold)})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", f"work; {end}")
    if end == "hold":
        await hold.reached.wait()
        assert await turn.cancel() == "cancelled"
    with pytest.raises((TurnFailed, TurnCancelled)):
        await turn.result()
    assert await conversation.messages("agent") == []
    record = await client.store.record(turn.lane, turn.turn_id)
    assert record is not None
    assert record.outcome == ("failed" if end == "fail" else "cancelled")
    assert record.usage.tool_calls == 1
    events = [event async for event in turn.events()]
    assert [event.data["tool"] for event in events if event.kind is EventKind.TOOL_CALLED] == ["work"]
    (finished,) = [event for event in events if event.kind is EventKind.TOOL_FINISHED]
    assert finished.data["outcome"] == "returned"


def _noting(framework: str, text: str, **options: Any) -> Any:
    """An agent that notes a text with its tool, and then is done."""

    def note(text: str) -> str:
        """Note."""
        return "noted"

    if framework == "langchain":
        calling = lambda messages: (  # noqa: E731
            called(("note", {"text": text}, "c1")) if isinstance(messages[-1], HumanMessage) else said("done")
        )
        return LangChainAdapter(create_agent(ScriptedModel(answer=calling), [note]), **options)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        first = isinstance(messages[-1].parts[-1], UserPromptPart)
        return ModelResponse([ToolCallPart("note", {"text": text}, "c1") if first else TextPart("done")])

    agent = Agent(FunctionModel(answer, model_name="noting"))
    agent.tool_plain(note)
    return PydanticAdapter(agent, **options)


async def test_long_arguments_are_shown_alike_wherever_they_are_shown(bench: Bench, conversation_id: str):
    """Whichever framework the call was made in, with a hook around it and without."""
    text = "word " * 1000
    denies = Hooks(before_tool=lambda event: Deny("not now"))
    agents = {name: _noting(name, text) for name in ADAPTERS}
    agents |= {f"{name}-denied": _noting(name, text, hooks=denies) for name in ADAPTERS}
    client = await bench.serve(agents)
    for name in agents:
        turn = await client.conversation(conversation_id).submit(name, "go")
        await turn.result()
        shown = [event.data["arguments"] async for event in turn.events() if event.kind is EventKind.TOOL_CALLED]
        assert shown == [f'{{"text":"{text}'[:2000]]
