"""Profiles: which lane a call goes to, and what its agent runs with there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings

from laneway import AgentProfile, HistoryProcessingSettings, Hooks, Laneway, PydanticAdapter, RequestBudget
from laneway.activities.profiles import RunProfile, merged_run
from laneway.errors import ConfigurationError, TurnFailed, UnsupportedCapability

from examples.plain_adapter import PlainAdapter
from tests.profiles import parts
from tests.support.bench import Bench
from tests.support.stops import lines

ROOT = Path(__file__).resolve().parents[2]


class Seen:
    """A model that says what it was sent, calling `look` first where it has that and the prompt says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[dict[str, Any]] = []

    def model(self) -> FunctionModel:
        return FunctionModel(self._answer, model_name=self.name)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(
            {
                "messages": len(messages),
                "settings": dict(info.model_settings or {}),
                "instructions": info.instructions,
                "tools": sorted(tool.name for tool in info.function_tools),
            }
        )
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        prompts = [part for part in last.parts if isinstance(part, UserPromptPart)]
        if prompts and "look" in str(prompts[-1].content):
            return ModelResponse([ToolCallPart("look", {})])
        text = str(prompts[-1].content) if prompts else str(last.parts[-1].content)  # type: ignore[union-attr]
        return ModelResponse([TextPart(f"{self.name}: {text}")])


def an_agent(model: FunctionModel, settings: ModelSettings | None = None) -> Agent[None, str]:
    agent: Agent[None, str] = Agent(model, instructions="be plain", model_settings=settings)
    agent.tool_plain(name="look")(lambda: "seen")
    return agent


def test_profiles_merge_by_the_rules():
    """Settings by key; everything else as a whole, the innermost that says it."""
    merged = merged_run(
        [
            RunProfile("a", {"temperature": 1, "top_p": 0.5}, "one", [parts.look], None),
            RunProfile(None, {"temperature": 0}, None, [], None),
            RunProfile("b", {}, "two", None, ["server"]),
        ]
    )
    assert merged == RunProfile("b", {"temperature": 0, "top_p": 0.5}, "two", [], ["server"])
    assert RunProfile().is_empty
    assert not merged.is_empty


async def test_what_changes_the_contract_has_a_lane_of_its_own_and_back_finds_the_old_one(
    bench: Bench, conversation_id: str
):
    """Model, settings, tools, servers; but not instructions, hooks, budgets or history processing."""
    first, second = Seen("first"), Seen("second")
    app = Laneway(agents={"agent": PydanticAdapter(an_agent(first.model(), ModelSettings(temperature=0.5)))})
    model = app.register("second", second.model())
    server: Any = app.register("files", MCPToolset("http://localhost:1/mcp", id="files"))
    async with app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        own = conversation.lane("agent")
        apart = [
            AgentProfile(model=model),
            AgentProfile(model="openai:gpt-5"),
            AgentProfile(model_settings={"temperature": 0.1}),
            AgentProfile(model_settings={"top_p": 0.1}),
            AgentProfile(tools=[parts.look, parts.other]),
            AgentProfile(tools=[]),
            AgentProfile(mcp=[server]),
        ]
        lanes = [conversation.lane("agent", profile=profile) for profile in apart]
        assert len({own, *lanes}) == len(apart) + 1
        assert conversation.lane("agent") == own
        for same in (
            AgentProfile(),
            AgentProfile(model_settings={"temperature": 0.5}),
            AgentProfile(model_settings={"timeout": 5}),
            AgentProfile(instructions="something else"),
            AgentProfile(instructions=parts.instructions),
            AgentProfile(tools=[parts.look]),
            AgentProfile(mcp=[]),
            AgentProfile(history_processing=HistoryProcessingSettings(parts.keep_none)),
            AgentProfile(hooks=Hooks(user_prompt_submit=parts.exclaim), budget=RequestBudget(request_limit=3)),
        ):
            assert conversation.lane("agent", profile=same) == own, same
        async with client.scope(profile=AgentProfile(model=model)):
            assert conversation.lane("agent") == lanes[0]


async def test_a_profile_is_what_the_agent_runs_with(bench: Bench, conversation_id: str):
    first, second = Seen("first"), Seen("second")
    app = Laneway(agents={"agent": PydanticAdapter(an_agent(first.model(), ModelSettings(temperature=0.5, seed=1)))})
    model = app.register("second", second.model())
    plan = AgentProfile(model="second", model_settings={"temperature": 0.0}, tools=[parts.look, parts.other])
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        assert (await conversation.ask("agent", "one")).output == "first: one"
        async with client.scope(profile=plan):
            assert (await conversation.ask("agent", "look")).output == "second: seen by a profile's tool"
            async with client.scope(profile=AgentProfile(model_settings={"top_p": 0.1})):
                await conversation.ask("agent", "deeper")
        again = AgentProfile(model=model, model_settings={"temperature": 0.0}, tools=[parts.look, parts.other])
        assert (await conversation.ask("agent", "three", profile=again)).output == "second: three"
        assert (await conversation.ask("agent", "look")).output == "first: seen"
        await conversation.ask("agent", "five", profile=AgentProfile(instructions=parts.instructions))
        await conversation.ask("agent", "six", profile=AgentProfile(instructions="in a word"))
        assert len(await conversation.messages("agent")) == 2 + 4 + 2 + 2
        async with client.scope(profile=plan):
            assert len(await conversation.messages("agent")) == 4 + 2
    cache_key = {"openai_prompt_cache_key"}
    keep = [{k: v for k, v in one["settings"].items() if k not in cache_key} for one in second.sent]
    assert keep == [
        {"temperature": 0.0, "seed": 1},
        {"temperature": 0.0, "seed": 1},
        {"temperature": 0.0, "seed": 1, "top_p": 0.1},
        {"temperature": 0.0, "seed": 1},
    ]
    assert [one["messages"] for one in second.sent] == [1, 3, 1, 5]
    assert [one["messages"] for one in first.sent] == [1, 3, 5, 7, 9]
    assert {tuple(one["tools"]) for one in second.sent} == {("look", "other")}
    assert {tuple(one["tools"]) for one in first.sent} == {("look",)}
    assert [one["instructions"] for one in first.sent] == [
        "be plain",
        "be plain",
        "be plain",
        "made by a function",
        "in a word",
    ]


async def test_history_settings_replace_as_a_unit_and_hooks_compose(bench: Bench, conversation_id: str):
    """A profile's processor without a condition is unconditional, whatever the scope around says."""
    first = Seen("first")
    app = Laneway(agents={"agent": PydanticAdapter(an_agent(first.model()))})
    trims = AgentProfile(
        history_processing=HistoryProcessingSettings(parts.keep_none), hooks=Hooks(user_prompt_submit=parts.exclaim)
    )
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        async with client.history(conversation_id, hooks=Hooks(user_prompt_submit=parts.ask)):
            await client.ask("agent", "one")
            assert (await client.ask("agent", "two", profile=trims)).output == "first: two?!"
            await client.ask("agent", "three")
            alone = AgentProfile(history_processing=HistoryProcessingSettings(condition=parts.always))
            with pytest.raises(ConfigurationError, match="has no history_processor"):
                await client.ask("agent", "four", profile=alone)
        with pytest.raises(TurnFailed) as failed:
            await client.ask("agent", "look", profile=AgentProfile(budget=RequestBudget(request_limit=1)))
    assert failed.value.error_type == "BudgetExceeded"
    assert [one["messages"] for one in first.sent] == [1, 1, 3, 1]


async def test_a_profile_brings_its_own_servers(bench: Bench, conversation_id: str, tmp_path: Path):
    """They are connected once, when the first turn needs them, in place of the agent's."""
    first, ledger = Seen("first"), tmp_path / "ledger"
    app = Laneway(agents={"agent": PydanticAdapter(an_agent(first.model()))})
    command = StdioTransport(sys.executable, ["-m", "tests.support.mcp_server", str(ledger)], cwd=str(ROOT))
    app.register("tools", MCPToolset(command, id="tools", init_timeout=60))
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        for _ in range(2):
            await conversation.ask("agent", "one", profile=AgentProfile(mcp=["tools"]))
        await conversation.ask("agent", "two")
    assert [one["tools"] for one in first.sent] == [["block", "double", "end", "learn", "linger", "look"]] * 2 + [
        ["look"]
    ]
    assert lines(ledger) == ["connected"]


async def test_a_part_that_no_worker_could_find_is_refused(bench: Bench, conversation_id: str):
    async def answer(messages: Any) -> Any:
        raise AssertionError("nothing is sent")

    agents: dict[str, Any] = {
        "agent": PydanticAdapter(an_agent(Seen("first").model())),
        "plain": PlainAdapter(answer, name="plain"),
    }
    client = await bench.client(agents)
    conversation = client.conversation(conversation_id)
    for profile, says in (
        (AgentProfile(model=Seen("x").model()), "the profile's model .* has no name"),
        (AgentProfile(tools=[lambda: 1]), "the profile's tool .* is a lambda"),
        (AgentProfile(mcp=[MCPToolset("http://localhost:1/mcp")]), "the profile's server .* has no name"),
        (AgentProfile(instructions=lambda: "x"), "the profile's instructions .* is a lambda"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            await conversation.ask("agent", "one", profile=profile)
    with pytest.raises(UnsupportedCapability, match="'profiles'"):
        await conversation.ask("plain", "one", profile=AgentProfile(model="x"))
    assert await client.lanes() == []
