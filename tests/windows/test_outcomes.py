"""What a provider is sent after turns that were denied, refused, never begun, handed on, or ended in a structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from pydantic import BaseModel
from pydantic_ai import Agent

from laneway import (
    Delegation,
    Deny,
    Edit,
    Hooks,
    LanewayClient,
    LangChainAdapter,
    PydanticAdapter,
    RequestBudget,
    TextWindow,
    TurnDenied,
    deny,
)
from laneway.client import Conversation
from laneway.errors import TurnFailed

from tests.support.bench import Bench
from tests.support.provider import ProviderRequest, answer, call, reply
from tests.waiting.test_answers import waiting
from tests.windows.test_wire import FRAMEWORKS, said
from tests.wire.providers import Framework, Wire, add, wire


def script(request: ProviderRequest) -> Any:
    """Answers the last line; calls tools that a prompt names first, and holds a prompt that says `wait` at a gate."""
    last = request.prompt.splitlines()[-1].removeprefix("user: ")
    if request.step == 0 and "add" in last:
        return answer(call("add", {"a": 1, "b": 2}))
    if request.step == 0 and "hand out" in last:
        return answer(call("delegate_to_reader", {"brief": "Look it up."}))
    if request.step == 0 and request.tools and request.tools[-1] in ("final_result", "Place"):
        return answer(call(request.tools[-1], {"town": "Ostia"}))
    return answer(f"re {last}", gate="go") if "wait" in last else reply(f"re {last}")


@dataclass
class Shown:
    """A conversation with an agent that begins its turns with six messages, and what is sent of it."""

    running: Wire
    client: LanewayClient
    conversation: Conversation

    async def sent(self, prompt: str, **options: Any) -> list[str]:
        """What of the first request of a turn is not the system's; the turn is answered."""
        first = len(self.running.server.requests)
        await self.conversation.ask("agent", prompt, **options)
        return said(self.running.server.requests[first].body, "chat")

    async def thread(self) -> list[str]:
        """All that the thread holds."""
        return [str(one) for one in await self.client.store.list_messages(self.conversation.lane("agent"), 99)]


def agent_of(running: Wire, framework: Framework, *, asks: bool = False, **options: Any) -> Any:
    """An agent that adds, with a window; one that asks before it does, where it is to."""
    options = {"history": TextWindow(6), "stream": False, **options}
    if framework == "langchain":
        middleware = [HumanInTheLoopMiddleware(interrupt_on={"add": True})] if asks else []
        graph: Any = create_agent(running.langchain_model("chat"), [add], middleware=middleware)
        return LangChainAdapter(graph, **options)
    agent = Agent(running.model("chat"))
    agent.tool_plain(requires_approval=asks)(add)
    return PydanticAdapter(agent, **options)


@FRAMEWORKS
async def test_after_denials(bench: Bench, conversation_id: str, framework: Framework):
    """A denied prompt opened nothing; one whose request or tool was denied did, and is answered or is not."""
    refusing: list[str] = []

    def judged(event: Any) -> Deny | Edit | None:
        return Deny("it has a secret") if "secret" in event.prompt else Edit(event.prompt.replace("rude", "kind"))

    hooks = Hooks(
        user_prompt_submit=judged,
        before_model_request=lambda event: Deny(refusing[0]) if refusing else None,
    )
    async with wire(script) as running:
        client = await bench.serve({"agent": agent_of(running, framework, asks=True, hooks=hooks)})
        shown = Shown(running, client, client.conversation(conversation_id))
        assert await shown.sent("one") == ["user: one"]
        with pytest.raises(TurnDenied, match="it has a secret"):
            await shown.conversation.ask("agent", "a secret")
        refusing.append("enough")
        with pytest.raises(TurnDenied, match="enough"):
            await shown.conversation.ask("agent", "two")
        refusing.clear()
        assert len(running.server.requests) == 1, "what is denied is not sent"
        assert await shown.sent("rude three") == ["user: one\nassistant: re one\nuser: two\nuser: kind three"]
        turn = await shown.conversation.submit("agent", "add four")
        (asked,) = (await waiting(turn)).values()
        assert (await shown.thread())[-1] == "user: add four", "it has opened, and is not over"
        await turn.answer(asked.request.id, deny("not today"))
        assert (await turn.result()).output == "re add four"
        assert await shown.sent("five") == [
            "user: two\nuser: kind three\nassistant: re kind three\nuser: add four\nassistant: re add four\nuser: five"
        ]


@FRAMEWORKS
async def test_after_turns_that_a_budget_stopped_or_that_never_began(
    bench: Bench, conversation_id: str, framework: Framework
):
    """What is stored before a request is put together is there when the request is refused."""
    async with wire(script) as running:
        client = await bench.serve({"agent": agent_of(running, framework)})
        shown = Shown(running, client, client.conversation(conversation_id))
        with pytest.raises(TurnFailed, match="request_limit"):
            await shown.conversation.ask("agent", "one", budget=RequestBudget(request_limit=0))
        assert await shown.sent("two") == ["user: one\nuser: two"]
        begun = await shown.conversation.submit("agent", "wait three")
        await running.server.wait_for_request(2)
        queued = await shown.conversation.submit("agent", "never begun")
        assert await queued.cancel() == "cancelled"
        steering = await shown.conversation.submit("agent", "four", when_busy="steer")
        running.server.gate("go").set()
        await begun.result()
        await steering.result()
        assert said(running.server.requests[2].body, "chat") == [
            "user: one\nuser: two\nassistant: re two\nuser: wait three\nassistant: re wait three\nuser: four"
        ], "each request opens a turn of its own"
        assert len(running.server.requests) == 3


@FRAMEWORKS
async def test_after_delegation(bench: Bench, conversation_id: str, framework: Framework):
    """Who hands work out has a thread that grows by what was asked and answered; who is handed it has none."""
    delegates = {"reader": Delegation("reader", "reads", keep=True)}
    async with wire(script) as running:
        if framework == "langchain":
            graph: Any = create_agent(running.langchain_model("chat"), LangChainAdapter.delegate_tools(delegates))
            lead: Any = LangChainAdapter(graph, delegates=delegates, history=TextWindow(6), stream=False)
        else:
            lead = PydanticAdapter(
                Agent(running.model("chat")), delegates=delegates, history=TextWindow(6), stream=False
            )
        client = await bench.serve({"agent": lead, "reader": agent_of(running, framework)})
        shown = Shown(running, client, client.conversation(conversation_id))
        turn = await shown.conversation.submit("agent", "hand out")
        assert (await turn.result()).output == "re hand out"
        _, handed, _ = running.server.requests
        assert said(handed.body, "chat") == ["Look it up."]
        (child,) = (await turn.committed()).children
        assert await client.store.list_messages(child.lane, 99) == []
        assert await shown.sent("two") == ["user: hand out\nassistant: re hand out\nuser: two"]


class Place(BaseModel):
    """Where it is."""

    town: str


@FRAMEWORKS
async def test_after_an_answer_that_is_a_structure(bench: Bench, conversation_id: str, framework: Framework):
    async with wire(script) as running:
        if framework == "langchain":
            graph: Any = create_agent(running.langchain_model("chat"), [], response_format=ToolStrategy(Place))
            adapter: Any = LangChainAdapter(graph, history=TextWindow(6), stream=False)
        else:
            agent = Agent(running.model("chat"), output_type=Place)
            adapter = PydanticAdapter(agent, history=TextWindow(6), stream=False)
        client = await bench.serve({"agent": adapter})
        shown = Shown(running, client, client.conversation(conversation_id))
        assert await shown.sent("where?") == ["user: where?"]
        assert await shown.sent("and now?") == ['user: where?\nassistant: {"town":"Ostia"}\nuser: and now?']
