"""One activity takes a model request and the steps that lead to it, and loses nothing by that."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from redis.asyncio import Redis
from temporalio.api.enums.v1 import EventType
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from laneway import LanewayClient, LangChainAdapter, PydanticAdapter, RetryPolicy, Settings
from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput, StepOutcome
from laneway.connect import connect_redis
from laneway.errors import TurnCancelled
from laneway.history.cache import HistoryCache
from laneway.history.checkpoints import EMPTY
from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.records import EventKind, LaneEvent
from laneway.history.store import HistoryStore

from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.bench import Bench

STARTED = LaneEvent(EventKind.TURN_STARTED, "turn")
QUICKLY = RetryPolicy(max_attempts=3, first_delay=timedelta(milliseconds=1))


def nothing() -> None:
    return None


class Looking:
    """An agent of each framework that calls `look` for `rounds` rounds and then answers.

    Attributes:
        asked: for each model request, how many tools had been run by then.
        looked: how often the tool ran.
    """

    def __init__(self, *, rounds: int = 1, before_answer: Callable[[], Any] = nothing) -> None:
        self.rounds = rounds
        self.asked: list[int] = []
        self.looked = 0
        self.before_answer = before_answer
        self.while_looking: Callable[[], Any] | None = None

    def of(self, framework: str) -> Adapter[Any]:
        return self._pydantic() if framework == "pydantic_ai" else self._langchain()

    async def look(self) -> str:
        """Look."""
        self.looked += 1
        if self.while_looking is not None:
            await self.while_looking()
        return "seen"

    async def _answers(self, results: int) -> bool:
        self.asked.append(self.looked)
        if results and inspect.isawaitable(held := self.before_answer()):
            await held
        return results >= self.rounds

    def _pydantic(self) -> PydanticAdapter[Any, Any]:
        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            prompts = [n for n, one in enumerate(messages) if any(isinstance(p, UserPromptPart) for p in one.parts)]
            parts = [part for one in messages[prompts[-1] :] for part in one.parts]
            results = sum(isinstance(part, ToolReturnPart) for part in parts)
            if await self._answers(results):
                return ModelResponse([TextPart("done")])
            return ModelResponse([ToolCallPart("look", {}, f"call-{len(messages)}")])

        agent: Agent[None, str] = Agent(FunctionModel(answer, model_name="looking"))
        agent.tool_plain(self.look)
        return PydanticAdapter(agent, retry_policy=QUICKLY)

    def _langchain(self) -> LangChainAdapter:
        async def answer(messages: list[BaseMessage]) -> AIMessage:
            if await self._answers(sum(isinstance(one, ToolMessage) for one in messages)):
                return said("done")
            return called(("look", {}, f"call-{len(messages)}"))

        graph: Any = create_agent(ScriptedModel(answer=answer), [self.look])
        return LangChainAdapter(graph, retry_policy=QUICKLY)


BOTH = pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])


async def activities_of(client: LanewayClient, lane: LaneKey) -> int:
    """How many activities a lane's workflow has scheduled."""
    handle = client.temporal.get_workflow_handle(client.workflow_id(lane))
    kinds = [event.event_type async for event in handle.fetch_history_events()]
    return kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)


@BOTH
@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_a_turn_takes_an_activity_for_each_model_request(
    bench: Bench, conversation_id: str, framework: str, rounds: int
):
    """Its record, its events and its numbers of steps are those of a turn whose steps are activities each."""
    agent = Looking(rounds=rounds)
    client = await bench.serve({"agent": agent.of(framework)})
    turn = await client.conversation(conversation_id).submit("agent", "go")
    result = await turn.result()
    assert (result.output, result.steps, result.usage.requests) == ("done", 2 * rounds + 1, rounds + 1)
    assert agent.asked == list(range(rounds + 1))
    assert await activities_of(client, turn.lane) == rounds + 1
    events = [event async for event in turn.events()]
    assert [one.step for one in events if one.kind is EventKind.TOOL_CALLED] == [2 * n + 1 for n in range(rounds)]
    assert EventKind.STEP_RETRIED not in {one.kind for one in events}


class Count(TypedDict):
    messages: list[BaseMessage]
    count: int


async def test_nodes_that_ask_no_model_are_taken_in_one_activity(bench: Bench, conversation_id: str):
    """Each of them is a step with a stage of its own all the same."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Count)

    def add(state: Count) -> dict[str, object]:
        return {"count": state.get("count", 0) + 1}

    def answer(state: Count) -> dict[str, object]:
        return {"messages": [*state["messages"], AIMessage(f"counted {state['count']}")]}

    for name in ("first", "second", "third"):
        graph.add_node(name, add)
    graph.add_node("answer", answer)
    for edge in [(START, "first"), ("first", "second"), ("second", "third"), ("third", "answer"), ("answer", END)]:
        graph.add_edge(*edge)
    client = await bench.serve({"agent": LangChainAdapter(graph.compile())})
    turn = await client.conversation(conversation_id).submit("agent", "go")
    result = await turn.result()
    assert (result.output, result.steps) == ("counted 3", 4)
    assert await activities_of(client, turn.lane) == 1


async def test_a_refused_request_is_tried_again_without_the_tools_before_it(bench: Bench, conversation_id: str):
    """As often as the policy says, however its activity began."""
    refusals = 2

    def refuse() -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise ModelHTTPError(503, "looking", {"error": "busy"})

    agent = Looking(before_answer=refuse)
    client = await bench.serve({"agent": agent.of("pydantic_ai")})
    turn = await client.conversation(conversation_id).submit("agent", "go")
    assert (await turn.result()).output == "done"
    assert (agent.looked, agent.asked) == (1, [0, 1, 1, 1])
    record = await turn.record()
    assert [(one.step, one.error_type) for one in record.attempts] == [(2, "ModelHTTPError")] * 2
    refusals = 3
    failed = await client.conversation(conversation_id).submit("agent", "go")
    with pytest.raises(Exception, match="503"):
        await failed.result()
    assert agent.looked == 2


@BOTH
async def test_a_message_that_comes_while_tools_run_is_in_the_request_after_them(
    bench: Bench, conversation_id: str, framework: str
):
    """The activity that ran the tools was not told of it, and leaves the request to the next one."""
    agent = Looking()
    begun, gate = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await gate.wait()

    agent.while_looking = hold
    client = await bench.serve({"agent": agent.of(framework)})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "go")
    await begun.wait()
    await conversation.submit("agent", "and this", turn_id="steering", when_busy="steer")
    gate.set()
    result = await turn.result()
    assert (await turn.record()).tally.taken == ["steering"]
    assert result.steps == 3
    assert await activities_of(client, turn.lane) == 3


@BOTH
async def test_a_lane_s_status_says_which_step_of_an_activity_it_is_at(
    bench: Bench, conversation_id: str, framework: str
):
    reached, gate = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await gate.wait()

    client = await bench.serve({"agent": Looking(before_answer=hold).of(framework)})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", "go")
    await reached.wait()
    assert (await conversation.status("agent")).step == 2
    gate.set()
    await turn.result()


@BOTH
async def test_a_turn_that_is_cancelled_in_a_later_step_of_an_activity_says_how_far_it_came(
    bench: Bench, conversation_id: str, framework: str
):
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.Event().wait()

    client = await bench.serve({"agent": Looking(before_answer=hold).of(framework)})
    turn = await client.conversation(conversation_id).submit("agent", "go")
    await reached.wait()
    assert await turn.cancel() == "cancelled"
    with pytest.raises(TurnCancelled):
        await turn.result()
    assert (await turn.record()).steps == 2


# One activity, taken here ---------------------------------------------------------------------------------------------


class Worker:
    """Takes activities of one lane, each attempt as a worker that knows nothing of the others."""

    def __init__(self, redis: Redis, settings: Settings, conversation_id: str, adapter: Adapter[Any]) -> None:
        self.agents = Agents({"agent": adapter})
        self.store = HistoryStore(redis, prefix=settings.redis_prefix)
        self.lane = self.agents.lane(conversation_id, "agent")
        self._encoded = adapter.encode_prompt("go")

    async def submit(self, turn_id: str = "turn") -> StepInput:
        await self.store.inputs.put(self.lane, turn_id, digest="d", prompt=self._encoded)
        return StepInput(self.lane.conversation, self.lane.agent, self.lane.contract, turn_id, "d")

    async def submit_and_ask(self) -> StepInput:
        """Have the turn's first request made; what the workflow asks for then: the tools, and what follows them."""
        first = await self.submit()
        return after(first, await self.take(first))

    async def take(
        self,
        request: StepInput,
        *,
        attempt: int = 1,
        limit: float = 600,
        environment: ActivityEnvironment | None = None,
    ) -> StepOutcome:
        environment = environment or ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info, attempt=attempt, start_to_close_timeout=timedelta(seconds=limit)
        )
        return await environment.run(Steps(self.store, self.agents, cache=HistoryCache(0)).step, request)


def after(request: StepInput, outcome: StepOutcome) -> StepInput:
    """What the workflow asks for next."""
    return dataclasses.replace(request, n=(outcome.n or request.n) + 1, f=outcome.f)


@pytest.fixture
def looking() -> Looking:
    return Looking()


@BOTH
async def test_a_worker_that_stops_takes_no_further_step(
    redis: Redis, settings: Settings, conversation_id: str, looking: Looking, framework: str
):
    worker = Worker(redis, settings, conversation_id, looking.of(framework))
    second = await worker.submit_and_ask()
    stopping = ActivityEnvironment()
    looking.while_looking = lambda: asyncio.sleep(0, stopping.worker_shutdown())
    outcome = await worker.take(second, environment=stopping)
    assert (outcome.s, outcome.n, looking.asked) == ("next", 0, [0])
    assert (await worker.take(after(second, outcome))).s == "committed"
    assert looking.looked == 1


@BOTH
async def test_a_request_after_long_tools_has_all_of_an_activity_s_time(
    redis: Redis, settings: Settings, conversation_id: str, looking: Looking, framework: str
):
    """A tenth of it at most may be gone; a request that ran out of time would be paid for twice."""
    worker = Worker(redis, settings, conversation_id, looking.of(framework))
    second = await worker.submit_and_ask()
    looking.while_looking = lambda: asyncio.sleep(0.2)
    outcome = await worker.take(second, limit=1)
    assert (outcome.s, looking.asked) == ("next", [0])


@BOTH
async def test_a_lane_with_turns_behind_it_goes_step_by_step(
    redis: Redis, settings: Settings, conversation_id: str, looking: Looking, framework: str
):
    """Any of them may be a message for the turn that runs."""
    worker = Worker(redis, settings, conversation_id, looking.of(framework))
    second = await worker.submit_and_ask()
    await worker.submit("behind")
    outcome = await worker.take(second)
    assert (outcome.s, outcome.n, looking.asked) == ("next", 0, [0])


@BOTH
@pytest.mark.parametrize("stops", [True, False], ids=["given back", "gone on"])
async def test_an_attempt_that_lives_on_unheard_is_replaced_in_the_step_that_it_went_on_to(
    redis: Redis, settings: Settings, conversation_id: str, looking: Looking, framework: str, stops: bool
):
    """Also where the activity was given back before that step: the next activity's attempts count on."""
    worker = Worker(redis, settings, conversation_id, looking.of(framework))
    second = await worker.submit_and_ask()
    frozen, thaw = threading.Event(), threading.Event()

    def freeze() -> None:
        if not frozen.is_set():
            frozen.set()
            assert thaw.wait(60)

    looking.before_answer = freeze
    # In a thread with an event loop of its own: it stands still whole.
    apart = asyncio.create_task(
        asyncio.to_thread(_take_apart, settings, conversation_id, looking.of(framework), second)
    )
    assert await asyncio.to_thread(frozen.wait, 60)
    environment = ActivityEnvironment()
    if stops:
        environment.worker_shutdown()
    outcome = await worker.take(second, attempt=2, environment=environment)
    if stops:
        assert (outcome.s, outcome.n, outcome.f, looking.asked) == ("next", 0, 2, [0, 1])
        request = after(second, outcome)
        fields = await worker.store.turns.unfinished(worker.lane, "turn")
        step = Fence(worker.lane, "turn", request.n, request.f + 1)
        await worker.store.turns.load(step, held=EMPTY, started=STARTED, retried=None, now=0)
        assert await worker.store.turns.unfinished(worker.lane, "turn") == {**fields, f"a{request.n}": b"3"}
        thaw.set()
        with pytest.raises(ApplicationError, match="was replaced by attempt 3"):
            await apart
        outcome = await worker.take(request)
    thaw.set()
    assert outcome.s == "committed"
    if not stops:
        assert await apart == "committed"  # it learns that the turn has ended, and reports to nobody
    assert looking.asked == [0, 1, 1]
    head = await worker.store.head(worker.lane)
    assert (head.version, head.checkpoint.length) == (1, 4)


def _take_apart(settings: Settings, conversation_id: str, adapter: Adapter[Any], request: StepInput) -> str:
    async def take() -> str:
        redis = await connect_redis(settings)
        try:
            return (await Worker(redis, settings, conversation_id, adapter).take(request)).s
        finally:
            await redis.aclose()

    return asyncio.run(take())
