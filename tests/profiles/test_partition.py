"""Which lane a changed agent's turns go to, as the provider sees it: a history of its own, and back the old one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

from laneway import AgentProfile, GraphProfile, Laneway, LangChainAdapter, PydanticAdapter
from laneway.activities.adapter import Adapter

from tests.support.bench import Bench
from tests.support.provider import RequestRecord, always
from tests.wire.providers import FRAMEWORKS, Framework, Wire, add, wire

ROOT = Path(__file__).resolve().parents[2]
EITHER = pytest.mark.parametrize("framework", FRAMEWORKS)

# What is another contract, and what of a request shows that it went out under it.
CHANGES: dict[str, tuple[Callable[[], AgentProfile], Callable[[RequestRecord], bool]]] = {
    "model": (lambda: AgentProfile(model="claude"), lambda sent: sent.api == "messages"),
    "setting": (
        lambda: AgentProfile(model_settings={"max_tokens": 777}),
        lambda sent: sent.body.get("max_output_tokens") == 777,
    ),
    "tool": (lambda: AgentProfile(tools=["multiply"]), lambda sent: "multiply" in str(sent.body["tools"])),
    "servers": (lambda: AgentProfile(mcp=["tools"]), lambda sent: "double" in str(sent.body["tools"])),
}
# What is not.
SAME: dict[str, tuple[Callable[[], AgentProfile], Callable[[RequestRecord], bool]]] = {
    "instructions": (lambda: AgentProfile(instructions="Be terse."), lambda sent: "Be terse." in str(sent.body)),
    "timeout": (lambda: AgentProfile(model_settings={"timeout": 77}), lambda sent: timeout_of(sent) == 77.0),
}


def timeout_of(sent: RequestRecord) -> float | None:
    """What the SDK says of its timeout, in seconds."""
    said = [value for name, value in sent.headers.items() if name.lower() == "x-stainless-read-timeout"]
    return float(said[0]) if said else None


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def double(value: int) -> int:
    """Twice as much."""
    return 2 * value


def application(provider: Wire, framework: Framework, ledger: Path) -> Laneway:
    """An agent that adds, and what profiles put in place of its parts."""
    adapter: Adapter[Any]
    if framework == "langchain":
        model = provider.langchain_model("responses")

        def make(profile: GraphProfile) -> Any:
            tools = [*profile.tools([add]), *profile.mcp()]
            return create_agent(profile.model(model), tools, system_prompt=profile.instructions("Be kind."))

        adapter = LangChainAdapter(make)
    else:
        agent: Agent[None, str] = Agent(provider.model("responses"), instructions="Be kind.")
        agent.tool_plain(add)
        adapter = PydanticAdapter(agent)
    app = Laneway(agents={"agent": adapter})
    app.tool(multiply)
    if framework == "langchain":
        app.register("claude", provider.langchain_model("messages"))
        app.register("tools", [StructuredTool.from_function(double)])
    else:
        app.register("claude", provider.model("messages"))
        command = StdioTransport(sys.executable, ["-m", "tests.support.mcp_server", str(ledger)], cwd=str(ROOT))
        app.register("tools", MCPToolset(command, id="tools", init_timeout=60))
    return app


def prompts_in(sent: RequestRecord) -> list[str]:
    """Which of a test's prompts a request has."""
    return [word for word in ("first", "second", "third", "fourth") if f"{word} prompt" in str(sent.body)]


@EITHER
@pytest.mark.parametrize("change", CHANGES)
async def test_another_contract_has_another_history_and_back_finds_the_old_one_as_it_was(
    bench: Bench, conversation_id: str, framework: Framework, change: str, tmp_path: Path
):
    """A fresh continuation: nothing of the other lane is sent, nor are the provider's ids of it."""
    profile, is_under = CHANGES[change][0](), CHANGES[change][1]
    async with wire(always("here you are")) as provider:
        app = application(provider, framework, tmp_path / "ledger")
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id)
            await conversation.ask("agent", "first prompt")
            before = await conversation.status("agent")
            async with client.scope(profile=profile):
                await conversation.ask("agent", "second prompt")
                away = await conversation.status("agent")
                assert away.lane != before.lane
                assert len(await conversation.messages("agent")) == 2
            # Whether the lane has heard of its turn's end is its own time.
            after = await conversation.status("agent")
            assert (after.lane, after.head, after.version) == (before.lane, before.head, before.version)
            await conversation.ask("agent", "third prompt")
            await conversation.ask("agent", "fourth prompt", profile=profile)
            assert {lane.contract for lane in await client.lanes(conversation_id)} == {
                before.lane.contract,
                away.lane.contract,
            }
        sent = provider.server.requests
        assert [record.refusal for record in sent] == [None] * 4
        assert [prompts_in(record) for record in sent] == [
            ["first"],
            ["second"],
            ["first", "third"],
            ["second", "fourth"],
        ]
        own, profiled = sent[::2], sent[1::2]
        assert all(map(is_under, profiled))
        assert {key: value for key, value in own[0].body.items() if key != "input"} == {
            key: value for key, value in own[1].body.items() if key != "input"
        }, "but for the history the same as before"
        keys = [{record.body.get("prompt_cache_key") for record in pair} for pair in (own, profiled)]
        assert keys[0] != keys[1] or framework == "langchain", "each lane has a cache of its own"


@EITHER
@pytest.mark.parametrize("change", SAME)
async def test_what_is_not_of_the_contract_stays_on_the_lane(
    bench: Bench, conversation_id: str, framework: Framework, change: str, tmp_path: Path
):
    profile, is_under = SAME[change][0](), SAME[change][1]
    async with wire(always("here you are")) as provider:
        app = application(provider, framework, tmp_path / "ledger")
        async with app.worker(bench.settings), app.client(bench.settings) as client:
            conversation = client.conversation(conversation_id)
            await conversation.ask("agent", "first prompt")
            await conversation.ask("agent", "second prompt", profile=profile)
            await conversation.ask("agent", "third prompt")
            assert len(await client.lanes(conversation_id)) == 1
        sent = provider.server.requests
        assert [prompts_in(record) for record in sent] == [
            ["first"],
            ["first", "second"],
            ["first", "second", "third"],
        ]
        assert [is_under(record) for record in sent] == [False, True, False], [record.headers for record in sent]


@EITHER
async def test_a_deploy_of_another_contract_and_back(bench: Bench, conversation_id: str, framework: Framework):
    """The agent itself is changed, as a deploy does it, and changed back."""
    async with wire(always("here you are")) as provider:
        versions: dict[str, dict[str, Adapter[Any]]] = {
            "a": {"agent": provider.adapter("responses", framework=framework)},
            "b": {"agent": provider.adapter("messages", framework=framework)},
        }
        lanes = []
        for prompt, version in (("first", "a"), ("second", "b"), ("third", "a")):
            worker = await bench.worker(versions[version])
            conversation = (await bench.client(versions[version])).conversation(conversation_id)
            await conversation.ask("agent", f"{prompt} prompt")
            lanes.append(conversation.lane("agent"))
            await worker.aclose()
        assert lanes[0] == lanes[2] != lanes[1]
        assert [prompts_in(record) for record in provider.server.requests] == [
            ["first"],
            ["second"],
            ["first", "third"],
        ]
