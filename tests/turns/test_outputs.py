"""A turn's output comes back as what it was: of its own type, by way of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, computed_field, field_serializer, field_validator
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from laneway import LangChainAdapter, PydanticAdapter
from laneway.activities.outputs import OutputForm
from laneway.activities.profiles import RunProfile
from laneway.errors import StoreError

from tests.langchain.graphs import ScriptedModel
from tests.support.bench import Bench


class Sold(BaseModel):
    message: str


class Refused(BaseModel):
    message: str


class Box(BaseModel):
    """Forbids what it does not know, and computes something."""

    model_config = ConfigDict(extra="forbid")
    width: int
    height: int

    @computed_field
    def area(self) -> int:
        return self.width * self.height


class Order(BaseModel):
    """Reads by one name, and writes by another."""

    order_id: int = Field(validation_alias="orderId", serialization_alias="id")
    box: Box | None = None


class Checked(BaseModel):
    """Its validator asks for a context."""

    value: int

    @field_validator("value")
    @classmethod
    def check(cls, value: int, info: ValidationInfo) -> int:
        if not info.context:
            raise ValueError("no context")
        return value


@dataclass
class Place:
    city: str


@dataclass
class Person:
    city: str


class Colour(Enum):
    RED = "red"


class Day(BaseModel):
    """Writes what it does not read."""

    at: datetime

    @field_serializer("at")
    def shown(self, at: datetime) -> str:
        return at.strftime("%d %B")


OUTPUTS: list[tuple[list[Any], Any]] = [
    ([Sold, Refused], Refused(message="no")),
    ([Sold, Refused], Sold(message="yes")),
    ([list[Sold], list[Refused]], [Refused(message="no")]),
    ([Place, Person], Person("Oslo")),
    ([Box], Box(width=2, height=3)),
    ([Order], Order(orderId=7, box=Box(width=2, height=3))),  # type: ignore[call-arg]
    ([bytes], b"\xff\x00"),
    ([int, bool], True),
    ([float], float("inf")),
    ([Decimal, str], Decimal("1.10")),
    ([str, Sold], "text"),
    ([Colour], Colour.RED),
    ([set[int]], {1, 2}),
    ([type(None), int], None),
    ([int], 10**40),
    ([], {"any": [1, None]}),
]


@pytest.mark.parametrize(("types", "output"), OUTPUTS, ids=[repr(output)[:30] for _, output in OUTPUTS])
def test_an_output_comes_back_as_it_was(types: list[Any], output: Any):
    """Of the type that it had, also where another of the agent's types has the same fields."""
    stored, name = OutputForm(types).encode(output)
    found = OutputForm(types).decode(stored, name)
    assert (type(found), found) == (type(output), output)


def test_a_context_for_validators_is_there_when_an_output_is_read():
    form = OutputForm([Checked], context={"known": 1})
    output = Checked.model_validate({"value": 3}, context={"known": 1})
    assert form.decode(*form.encode(output)) == output


def test_the_context_is_that_of_the_agent_beneath_a_profile_or_a_wrapper():
    agent = Agent(TestModel(), output_type=Checked, validation_context={"a": 1})
    adapter = PydanticAdapter(agent)
    wrapped = PydanticAdapter(WrapperAgent(agent))
    under = adapter.with_profile(RunProfile(model_settings={"temperature": 0.5}))
    for one in (adapter, wrapped, under):
        assert one.decode_output('{"value":3}') == Checked.model_construct(value=3)


def test_an_output_that_was_written_by_alias_is_read_still():
    """As versions before wrote it: with no type beside it."""
    assert OutputForm([Order]).decode('{"orderId":7,"box":null}') == Order(orderId=7)  # type: ignore[call-arg]


def test_an_output_that_its_type_does_not_take_back_is_told_with_its_json():
    form = OutputForm([Day])
    stored = form.encode(Day(at=datetime(2026, 5, 12, tzinfo=UTC)))
    with pytest.raises(StoreError, match=r'Day does not take its own JSON back \(at: .*The JSON is \{"at":"12 May"\}'):
        form.decode(*stored)


def refusing(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([ToolCallPart(info.output_tools[1].name, {"message": "no"})])


def refusing_graph() -> Any:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        return AIMessage(
            "", tool_calls=[{"name": "Refused", "args": {"message": "no"}, "id": "c", "type": "tool_call"}]
        )

    return create_agent(ScriptedModel(answer=answer), [], response_format=ToolStrategy(Sold | Refused))


@pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])
async def test_a_turn_gives_the_type_that_the_model_chose(bench: Bench, conversation_id: str, framework: str):
    """The caller reads it from Redis, and has the second of two types that look alike."""
    adapter: Any
    if framework == "pydantic_ai":
        agent: Agent[None, Sold | Refused] = Agent(FunctionModel(refusing), output_type=Sold | Refused)  # type: ignore[arg-type]
        adapter = PydanticAdapter(agent)
    else:
        adapter = LangChainAdapter(refusing_graph())
    client = await bench.serve({"agent": adapter})
    turn = await client.conversation(conversation_id).submit("agent", "Two, please.")
    assert (await turn.result()).output == Refused(message="no")
    assert (await turn.record()).output_type == "Refused"
