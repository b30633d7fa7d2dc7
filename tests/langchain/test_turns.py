"""Agents of LangChain's on lanes, from end to end."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send
from pydantic import BaseModel
from redis.asyncio import Redis
from typing_extensions import TypedDict

from laneway import EventKind, LangChainAdapter
from laneway.errors import ConfigurationError, InvalidInput, TurnFailed, UnknownAgent
from laneway.history.store import HistoryStore

from tests.langchain.graphs import ScriptedModel, called, prompts_of, said
from tests.support.bench import Bench


def clock(zone: str) -> str:
    """The time in a zone."""
    return f"noon in {zone}"


def asking(messages: list[BaseMessage]) -> AIMessage:
    """Asks for the time in two zones at once, then says how many messages there are."""
    if isinstance(messages[-1], HumanMessage):
        return called(("clock", {"zone": "Oslo"}, "c1"), ("clock", {"zone": "Rome"}, "c2"))
    return said(f"{len(messages)} messages")


async def test_turns_of_an_agent_are_committed_one_after_another(bench: Bench, conversation_id: str):
    """Native messages in, native messages kept; each superstep is a step; usage and events are told."""
    adapter = LangChainAdapter(create_agent(ScriptedModel(answer=asking), [clock], system_prompt="Be brief."))
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    for number in (1, 2, 3):
        turn = await conversation.submit("agent", f"question {number}")
        events = [event async for event in turn.events()]
        result = await turn.result()
        assert result.output == f"{5 * number} messages"  # the system prompt is sent, and not stored
        assert (result.steps, result.checkpoint.length, result.checkpoint.epoch) == (3, 5 * number, 0)
        assert (result.usage.requests, result.usage.tool_calls) == (2, 2)
        assert (result.usage.input_tokens, result.usage.output_tokens) == (6, 4)
        assert "".join(str(e.data["text"]) for e in events if e.kind is EventKind.TEXT_DELTA) == result.output
        finished = [e.data for e in events if e.kind is EventKind.TOOL_FINISHED]
        assert sorted(str(data["call_id"]) for data in finished) == ["c1", "c2"]
        assert {data["outcome"] for data in finished} == {"returned"}
    messages = await conversation.messages("agent")
    assert [message.type for message in messages] == ["human", "ai", "tool", "tool", "ai"] * 3
    assert len({message.id for message in messages}) == 15
    assert (await conversation.state("agent"))["messages"] == messages


class Place(BaseModel):
    """Where something is."""

    name: str
    floor: int


async def test_a_structured_response_is_the_output(bench: Bench, conversation_id: str):
    """Of its own type; and a turn without one has its text."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        return called(("Place", {"name": prompts_of(messages)[-1], "floor": 2}, f"p{len(messages)}"))

    agent = create_agent(ScriptedModel(answer=answer), [], response_format=Place)
    client = await bench.serve({"agent": LangChainAdapter(agent)})
    conversation = client.conversation(conversation_id)
    for name in ("kitchen", "attic"):
        assert (await conversation.ask("agent", name)).output == Place(name=name, floor=2)
    assert (await conversation.state("agent"))["structured_response"] == Place(name="attic", floor=2)


class Report(TypedDict):
    messages: Annotated[list[Any], operator.add]
    topics: list[str]
    findings: Annotated[list[str], operator.add]
    report: str


def reporting() -> StateGraph[Any, Any, Any, Any]:
    """Fans out over topics, then writes a report. Its messages have no ids of their own."""

    def plan(state: Report) -> dict[str, Any]:
        return {"messages": [AIMessage("planned")], "findings": []}

    async def look(state: dict[str, Any], runtime: Runtime[dict[str, str]]) -> dict[str, Any]:
        get_stream_writer()({"looking": state["topic"]})
        return {"findings": [f"{state['topic']} for {runtime.context['who']}"]}

    def write(state: Report) -> dict[str, Any]:
        return {"report": ", ".join(sorted(state["findings"])), "messages": [AIMessage("written")]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Report, context_schema=dict)  # type: ignore[arg-type]
    graph.add_node("plan", plan)
    graph.add_node("look", look)
    graph.add_node("write", write)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("look", {"topic": one}) for one in state["topics"]], ["look"]
    )
    graph.add_edge("look", "write")
    graph.add_edge("write", END)
    return graph


async def test_a_graph_with_channels_of_its_own(bench: Bench, conversation_id: str):
    """A prompt that updates the state, a fan-out, custom events, a runtime context, and an output of its own."""
    adapter = LangChainAdapter(reporting(), output_key="report", context_factory=lambda _: {"who": "Ada"})
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    turn = await conversation.submit("agent", {"messages": "go", "topics": ["bees", "ants"]})
    events = [event async for event in turn.events()]
    result = await turn.result()
    assert (result.output, result.steps) == ("ants for Ada, bees for Ada", 3)
    assert sorted(str(e.data["data"]) for e in events if e.kind is EventKind.CUSTOM) == [
        "{'looking': 'ants'}",
        "{'looking': 'bees'}",
    ]
    state = await conversation.state("agent")
    assert state["topics"] == ["bees", "ants"]
    assert sorted(state["findings"]) == ["ants for Ada", "bees for Ada"]
    result = await conversation.ask("agent", {"messages": [("user", "more")], "topics": ["wasps"]})
    assert result.output == "ants for Ada, bees for Ada, wasps for Ada"
    messages = await conversation.messages("agent")
    assert [message.text for message in messages] == ["go", "planned", "written", "more", "planned", "written"]
    assert all(message.id for message in messages)


async def test_what_lives_for_one_run_lives_for_one_turn(bench: Bench, conversation_id: str):
    """Limits of LangChain's middleware count a run's calls: over all steps of a turn, and anew in the next."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        return called(("clock", {"zone": "Oslo"}, f"c{len(messages)}"))

    limits = [ModelCallLimitMiddleware(run_limit=3), ToolCallLimitMiddleware(run_limit=2)]
    agent = create_agent(ScriptedModel(answer=answer), [clock], middleware=limits)
    client = await bench.serve({"agent": LangChainAdapter(agent)})
    conversation = client.conversation(conversation_id)
    for _ in range(2):
        result = await conversation.ask("agent", "go")
        assert "limit" in result.output
        assert result.usage.requests == 3


@pytest.mark.parametrize("prompt", ["", "  ", [], {}, {"nothing": 1}, 5, None, [5], {"messages": []}, object()])
async def test_a_prompt_that_no_graph_takes_is_refused(bench: Bench, conversation_id: str, prompt: Any):
    adapter = LangChainAdapter(create_agent(ScriptedModel(answer=asking), [clock]))
    with pytest.raises(InvalidInput, match="prompt|no channel 'nothing'"):
        adapter.encode_prompt(prompt)


PROMPTS: list[tuple[Any, list[tuple[str, Any]]]] = [
    ("hi", [("human", "hi")]),
    ([{"type": "text", "text": "see"}, {"type": "image", "url": "http://x/y.png"}], [("human", None)]),
    (HumanMessage("hi", id="own"), [("human", "hi")]),
    ([("system", "be brief"), ("user", "hi")], [("system", "be brief"), ("human", "hi")]),
    ([{"role": "user", "content": "hi"}], [("human", "hi")]),
    ({"messages": "hi"}, [("human", "hi")]),
]


@pytest.mark.parametrize(("prompt", "messages"), PROMPTS)
def test_prompts_become_messages(prompt: Any, messages: list[tuple[str, Any]]):
    """The stored form is the same each time, and so are the ids."""
    adapter = LangChainAdapter(create_agent(ScriptedModel(answer=asking), [clock]))
    blob = adapter.encode_prompt(prompt)
    assert adapter.encode_prompt(prompt) == blob
    given = adapter._prompt.decode(blob, turn_id="t")
    assert [(one.type, one.content) for one in given.messages] == [
        (kind, content or prompt) for kind, content in messages
    ]
    assert [one.id for one in given.messages] == [one.id for one in adapter._prompt.decode(blob, turn_id="t").messages]
    assert all(one.id for one in given.messages)


async def test_what_cannot_be_stored_fails_the_turn_and_is_named(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str
):
    """The channel, and what to do; nothing of the turn is kept."""

    class State(MessagesState):
        connection: Any

    def connect(state: State) -> dict[str, Any]:
        return {"connection": object() if "object" in str(state["messages"][-1].text) else Unknown()}

    graph = StateGraph(State)
    graph.add_node("connect", connect)
    graph.add_edge(START, "connect")
    client = await bench.serve({"agent": LangChainAdapter(graph)})
    conversation = client.conversation(conversation_id)
    for prompt, message in (("object", "Keep plain data"), ("own", r"Unknown is not on the allow-list.*allowed_types")):
        with pytest.raises(
            TurnFailed, match=f"channel 'connection' of the graph cannot be stored: .*{message}"
        ) as failed:
            await conversation.ask("agent", prompt)
        assert failed.value.error_type == "SerializationFailed"
    assert await conversation.messages("agent") == []
    assert (await store.head(conversation.lane("agent"))).version == 0


class Unknown(BaseModel):
    """Named by no schema of the graph."""

    name: str = "x"


async def test_a_type_that_stored_data_may_not_name_is_refused_and_named(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str
):
    """State that was written when a type was allowed is not read when it is not; the history still is."""

    def own(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("x", tool_call_id="1", artifact=Unknown())]}

    graph = StateGraph(MessagesState)
    graph.add_node("own", own)
    graph.add_edge(START, "own")
    trusting = {"agent": LangChainAdapter(graph, allowed_types=[Unknown])}
    worker = await bench.worker(trusting)
    conversation = (await bench.client(trusting)).conversation(conversation_id)
    await conversation.ask("agent", "one")
    assert (await conversation.messages("agent"))[-1].artifact == Unknown()
    await worker.aclose()
    careful = {"agent": LangChainAdapter(graph)}
    conversation = (await bench.serve(careful)).conversation(conversation_id)
    with pytest.raises(TurnFailed, match=r"Unknown is not on the allow-list.*LangChainAdapter\(allowed_types"):
        await conversation.ask("agent", "two")
    assert (await store.head(conversation.lane("agent"))).version == 1


async def test_a_graph_that_changed_gets_a_lane_of_its_own(bench: Bench, conversation_id: str):
    """The old lane's history can still be read; prompts can change without one."""
    model = ScriptedModel(answer=asking)
    before = LangChainAdapter(create_agent(model, [clock], system_prompt="one"))
    worker = await bench.worker({"agent": before})
    old = (await bench.client({"agent": before})).conversation(conversation_id)
    await old.ask("agent", "hello")
    same = LangChainAdapter(create_agent(ScriptedModel(answer=asking), [clock], system_prompt="two"))
    changed = LangChainAdapter(create_agent(model.model_copy(update={"model_name": "other"}), [clock]))
    assert (await bench.client({"agent": same})).conversation(conversation_id).lane("agent") == old.lane("agent")
    await worker.aclose()
    new = (await bench.serve({"agent": changed})).conversation(conversation_id)
    assert new.lane("agent") != old.lane("agent")
    assert (await new.ask("agent", "hello")).output == "4 messages"
    client = await bench.client({"agent": changed})
    assert len(await client.messages(old.lane("agent"))) == 5
    with pytest.raises(UnknownAgent):
        client.agents.for_lane(old.lane("agent"))


async def test_a_failed_or_cancelled_turn_leaves_nothing(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str
):
    """Not the user's message, and no dangling call: the graph's state is what it was."""
    begun = asyncio.Event()
    cancelled = asyncio.Event()

    async def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], HumanMessage):
            return called(("clock", {"zone": "Oslo"}, "c1"))
        match prompts_of(messages)[-1]:
            case "fail":
                raise RuntimeError("the model broke")
            case "wait":
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.set()
                    raise
        return said("done")

    client = await bench.serve({"agent": LangChainAdapter(create_agent(ScriptedModel(answer=answer), [clock]))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "go")
    head, messages = await store.head(conversation.lane("agent")), await conversation.messages("agent")
    with pytest.raises(TurnFailed, match="the model broke"):
        await conversation.ask("agent", "fail")
    turn = await conversation.submit("agent", "wait")
    await begun.wait()
    assert await turn.cancel() == "cancelled"
    assert cancelled.is_set()
    assert await store.head(conversation.lane("agent")) == head
    assert await conversation.messages("agent") == messages
    assert (await conversation.ask("agent", "go")).output == "done"


async def test_what_a_lane_takes_grows_with_its_messages(
    bench: Bench, redis: Redis, store: HistoryStore, conversation_id: str
):
    """Messages are stored once, and what is kept beside them does not grow with them."""
    adapter = LangChainAdapter(create_agent(ScriptedModel(answer=asking), [clock]))
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    names = store.names(conversation.lane("agent"))
    sizes: list[tuple[int, int, int]] = []
    for _ in range(3):
        for _ in range(4):
            await conversation.ask("agent", "question " + "x" * 2000)
        messages = sum(len(adapter.encode(message)) for message in await conversation.messages("agent"))
        head = await redis.memory_usage(names.head, samples=0)
        epoch = await redis.memory_usage(names.epoch(0), samples=0)
        sizes.append((messages, epoch, head))
    assert all(epoch + head < 1.5 * messages for messages, epoch, head in sizes[1:])
    assert abs(sizes[-1][2] - sizes[0][2]) < 100


def test_a_graph_without_messages_is_refused():
    """There is nothing then that a lane's history could hold; the functional API has no channels at all."""

    class Asked(TypedDict):
        question: str

    builder: Any = StateGraph(Asked)
    builder.add_node("node", lambda state: state)
    builder.add_edge(START, "node")
    with pytest.raises(ConfigurationError, match=r"its channels are: question\..* has a channel of messages"):
        LangChainAdapter(builder)

    @entrypoint()
    async def workflow(question: str) -> str:
        return question

    with pytest.raises(ConfigurationError, match="'workflow' is a workflow of LangGraph's functional API"):
        LangChainAdapter(workflow)
