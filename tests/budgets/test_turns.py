"""Budgets on adapter, conversation and turn: what is refused before it is paid, and what is counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import PydanticAdapter, RequestBudget, RetryPolicy
from laneway.errors import TurnFailed

from tests.editing.agents import AnyRecorder, Held, LangChainRecorder, Recorder
from tests.support.bench import Bench
from tests.support.provider import always
from tests.wire.providers import wire


async def refused(turn: Any) -> TurnFailed:
    with pytest.raises(TurnFailed) as failed:
        await turn
    return failed.value


BOTH = pytest.mark.parametrize("kind", [Recorder, LangChainRecorder], ids=["pydantic", "langchain"])


@BOTH
async def test_the_narrowest_of_adapter_conversation_and_turn_wins(
    bench: Bench, conversation_id: str, kind: type[AnyRecorder]
):
    """Three requests by the adapter; a turn may have fewer, never more; a conversation counts all its turns."""
    agent = kind()
    client = await bench.serve({"agent": agent.adapter(budget=RequestBudget(request_limit=3))})
    plain = client.conversation(conversation_id)
    assert (await plain.ask("agent", "look look")).output == "re: look look"
    error = await refused(plain.ask("agent", "look look look"))
    assert error.error_type == "BudgetExceeded"
    assert "budget of the turn" in error.error_message
    assert "request_limit is 3, 3 are consumed" in error.error_message
    assert "depth 0" in error.error_message
    raised = RequestBudget(request_limit=9)
    assert "request_limit is 3" in (await refused(plain.ask("agent", "look look look", budget=raised))).error_message
    narrow = RequestBudget(request_limit=1)
    assert "request_limit is 1" in (await refused(plain.ask("agent", "look", budget=narrow))).error_message
    assert len(agent.sent) == 3 + 3 + 3 + 1
    # Ten were made, failed turns' among them.
    bounded = client.conversation(conversation_id, budget=RequestBudget(request_limit=12))
    await bounded.ask("agent", "look")
    error = await refused(bounded.ask("agent", "once more"))
    assert "budget of the conversation" in error.error_message
    assert "request_limit is 12, 12 are consumed" in error.error_message
    assert len(agent.sent) == 12
    (left,) = (await bounded.status("agent")).headroom
    assert (left.scope, left.dimension, left.limit, left.consumed, left.remaining) == (
        "conversation",
        "request_limit",
        12,
        12,
        0,
    )


@BOTH
@pytest.mark.parametrize(
    ("budget", "error_type"),
    [
        (RequestBudget(request_limit=0), "BudgetExceeded"),
        (RequestBudget(max_total_input_tokens=0), "BudgetExceeded"),
        (RequestBudget(max_request_tokens=0), "fit-overflow"),
    ],
)
async def test_zero_forbids(
    bench: Bench, conversation_id: str, kind: type[AnyRecorder], budget: RequestBudget, error_type: str
):
    agent = kind()
    client = await bench.serve({"agent": agent.adapter()})
    error = await refused(client.conversation(conversation_id).ask("agent", "hello", budget=budget))
    assert error.error_type == error_type
    assert agent.sent == []


@BOTH
async def test_zero_tool_calls_forbids_them_and_not_the_answer(
    bench: Bench, conversation_id: str, kind: type[AnyRecorder]
):
    agent = kind()
    client = await bench.serve({"agent": agent.adapter(budget=RequestBudget(tool_call_limit=0))})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "hello")).output == "re: hello"
    error = await refused(conversation.ask("agent", "look"))
    assert error.error_type == "BudgetExceeded"
    assert "tool_call_limit is 0, 0 are consumed" in error.error_message
    assert "seen" not in str(agent.sent), "the tool has not run"


@BOTH
async def test_what_failed_is_not_given_back(bench: Bench, conversation_id: str, kind: type[AnyRecorder]):
    """Neither the tool calls nor the requests of a turn that fails in the end: the next turn has what is left."""
    agent = kind()
    client = await bench.serve({"agent": agent.adapter()})
    bounded = RequestBudget(request_limit=5, tool_call_limit=2)
    conversation = client.conversation(conversation_id, budget=bounded)
    agent.fails_after["look, fail"] = 1
    error = await refused(conversation.ask("agent", "look, fail"))
    assert error.error_type == "ValueError"
    assert [one.remaining for one in (await conversation.status("agent")).headroom] == [3, 1]
    assert (await conversation.ask("agent", "look")).output == "re: look"
    assert [one.remaining for one in (await conversation.status("agent")).headroom] == [1, 0]
    error = await refused(conversation.ask("agent", "look"))
    assert "tool_call_limit is 2, 2 are consumed and this takes 1 more" in error.error_message
    assert await conversation.messages("agent") != []
    assert [one.remaining for one in (await conversation.status("agent")).headroom] == [0, 0]


async def test_tool_calls_of_a_response_are_made_all_or_none(bench: Bench, conversation_id: str):
    """Parallel calls cannot together pass the limit, and none has run when they would."""
    called: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = messages[-1].parts
        if isinstance(parts[0], UserPromptPart):
            return ModelResponse([ToolCallPart("add", {"n": n}, f"c{n}") for n in range(int(str(parts[0].content)))])
        return ModelResponse([TextPart("done")])

    agent = Agent(FunctionModel(answer, model_name="adder"))

    @agent.tool_plain
    def add(n: int) -> None:
        called.append(n)

    client = await bench.serve({"agent": PydanticAdapter(agent, budget=RequestBudget(tool_call_limit=2))})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "2")).output == "done"
    assert sorted(called) == [0, 1]
    error = await refused(conversation.ask("agent", "3"))
    assert "tool_call_limit is 2, 0 are consumed and this takes 3 more" in error.error_message
    assert sorted(called) == [0, 1]
    none = RequestBudget(tool_call_limit=0)
    assert "tool_call_limit is 0" in (await refused(conversation.ask("agent", "1", budget=none))).error_message


async def test_requests_that_fail_on_their_way_are_counted(bench: Bench, conversation_id: str):
    asked = 0

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ModelHTTPError(503, "shaky")
        return ModelResponse([TextPart("at last")], usage=RequestUsage(input_tokens=40, output_tokens=1))

    agent = Agent(FunctionModel(answer, model_name="shaky"), instructions="Be brief.")
    quick = RetryPolicy(first_delay=timedelta(milliseconds=10))
    client = await bench.serve({"agent": PydanticAdapter(agent, retry_policy=quick)})
    budget = RequestBudget(request_limit=5, max_total_input_tokens=10_000)
    conversation = client.conversation(conversation_id, budget=budget)
    record = await (await conversation.submit("agent", "hello")).committed()
    assert record.usage.requests == 1
    requests, tokens = (await conversation.status("agent")).headroom
    assert requests.consumed == 3
    # Two that failed, as they were estimated, and one as it was measured.
    assert 40 < tokens.consumed < 40 + 2 * 100
    two = RequestBudget(request_limit=2)
    asked = 0
    error = await refused(conversation.ask("agent", "hello", budget=two))
    assert error.error_type == "BudgetExceeded"
    assert asked == 2


async def test_a_request_over_the_budget_never_reaches_the_provider(bench: Bench, conversation_id: str):
    """Instructions, schemas and the reserved output count; a measured history is not counted twice."""
    async with wire(always("word " * 50)) as provider:
        agent = provider.agent("chat")
        settings: Any = {"max_tokens": 300}
        agent.model_settings = settings
        client = await bench.serve({"agent": PydanticAdapter(agent, budget=RequestBudget(max_request_tokens=900))})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "hello")
        await conversation.ask("agent", "hello again")
        error = await refused(conversation.ask("agent", "word " * 400))
        assert error.error_type == "fit-overflow"
        for words in ("max_request_tokens is 900", "of new content", "of tool schemas", "300 reserved for the output"):
            assert words in error.error_message
        assert "0 measured" not in error.error_message
        assert len(provider.server.requests) == 2
        await conversation.ask("agent", "short")
        assert len(provider.server.requests) == 3


@BOTH
async def test_what_a_running_turn_has_left_is_told(bench: Bench, conversation_id: str, kind: type[AnyRecorder]):
    agent = kind()
    budget = RequestBudget(request_limit=4, tool_call_limit=2, max_request_tokens=10_000)
    client = await bench.serve({"agent": agent.adapter(budget=budget)})
    conversation = client.conversation(conversation_id, budget=RequestBudget(request_limit=9))
    agent.held["hello"] = held = Held()
    turn = await conversation.submit("agent", "hello", budget=RequestBudget(request_limit=2))
    await held.reached.wait()
    left = (await conversation.status("agent")).headroom
    assert [(one.scope, one.dimension, one.limit, one.remaining) for one in left] == [
        ("turn", "request_limit", 2, 1),
        ("turn", "tool_call_limit", 2, 2),
        ("conversation", "request_limit", 9, 8),
    ]
    held.go.set()
    await turn.result()
    (one,) = (await conversation.status("agent")).headroom
    assert (one.scope, one.remaining) == ("conversation", 8)
    spent = (await client.store.accounts.spending(conversation.lane("agent"))).total
    assert (spent.requests, spent.tool_calls, spent.input_tokens) == (1, 0, kind.input_tokens)
