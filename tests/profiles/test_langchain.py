"""Profiles of graphs: made anew by the function that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from laneway import AgentProfile, GraphProfile, HistoryProcessingSettings, Hooks, Laneway, LangChainAdapter
from laneway.activities.adapter import digest_of
from laneway.activities.profiles import RunProfile
from laneway.errors import ConfigurationError, UnsupportedCapability

from tests.langchain.graphs import ScriptedModel, called, said
from tests.profiles import parts
from tests.support.bench import Bench


class Tuned(ScriptedModel):
    """With a setting that is of the contract, and one that is not."""

    temperature: float | None = None
    timeout: float | None = None

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature, "timeout": self.timeout}


def look() -> str:
    """Look."""
    return "seen"


def other_tool(value: int) -> int:
    """Another."""
    return value


FILES = [StructuredTool.from_function(other_tool, name="read_file", description="Reads a file.")]


class Seen:
    """A model that says what it was sent, calling `look` first where the prompt says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[list[str]] = []

    def model(self, **settings: Any) -> Tuned:
        return Tuned(answer=self._answer, model_name=self.name, **settings)

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        self.sent.append([str(one.text) for one in messages if not isinstance(one, SystemMessage)])
        last = messages[-1]
        if "look" in str(last.text) and not isinstance(last, ToolMessage):
            return called(("look", {}, f"call-{len(messages)}"))
        system = " ".join(str(one.text) for one in messages if isinstance(one, SystemMessage))
        return said(f"{self.name} ({system}): {last.text}")


def factory(model: Any) -> Callable[[GraphProfile], Any]:
    def make(profile: GraphProfile) -> Any:
        tools = [*profile.tools([look]), *profile.mcp()]
        return create_agent(profile.model(model), tools, system_prompt=profile.instructions("be plain"))

    return make


async def test_what_changes_the_contract_has_a_lane_of_its_own_and_back_finds_the_old_one(
    bench: Bench, conversation_id: str
):
    """Model, settings, tools, servers; but not instructions, timeouts, hooks or history processing."""
    first, second = Seen("first"), Seen("second")
    app = Laneway(agents={"agent": LangChainAdapter(factory(first.model(temperature=0.5)))})
    model = app.register("second", second.model())
    files = app.register("files", FILES)
    app.register("look", look)
    app.register("other_tool", other_tool)
    async with app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        own = conversation.lane("agent")
        apart = [
            AgentProfile(model=model),
            AgentProfile(model_settings={"temperature": 0.1}),
            AgentProfile(tools=["look", "other_tool"]),
            AgentProfile(tools=[]),
            AgentProfile(mcp=[files]),
        ]
        lanes = [conversation.lane("agent", profile=profile) for profile in apart]
        assert len({own, *lanes}) == len(apart) + 1
        assert conversation.lane("agent") == own
        for same in (
            AgentProfile(),
            AgentProfile(model_settings={"temperature": 0.5}),
            AgentProfile(model_settings={"timeout": 5}),
            AgentProfile(instructions="something else"),
            AgentProfile(tools=["look"]),
            AgentProfile(mcp=[]),
            AgentProfile(history_processing=HistoryProcessingSettings(parts.keep_none)),
            AgentProfile(hooks=Hooks(user_prompt_submit=parts.exclaim)),
        ):
            assert conversation.lane("agent", profile=same) == own, same
        async with client.scope(profile=AgentProfile(model="second")):
            assert conversation.lane("agent") == lanes[0]


async def test_a_profile_is_what_the_graph_runs_with(bench: Bench, conversation_id: str):
    first, second = Seen("first"), Seen("second")
    app = Laneway(agents={"agent": LangChainAdapter(factory(first.model()))})
    app.register("second", second.model())
    app.tool(look)
    plan = AgentProfile(model="second", model_settings={"temperature": 0.0}, tools=["look"])
    trims = AgentProfile(
        history_processing=HistoryProcessingSettings(parts.keep_none), hooks=Hooks(user_prompt_submit=parts.exclaim)
    )
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        conversation = client.conversation(conversation_id)
        assert (await conversation.ask("agent", "one")).output == "first (be plain): one"
        async with client.scope(profile=plan):
            assert (await conversation.ask("agent", "look")).output == "second (be plain): seen"
        assert (await conversation.ask("agent", "three", profile=plan)).output == "second (be plain): three"
        terse = AgentProfile(instructions="in a word")
        assert (await conversation.ask("agent", "two", profile=terse)).output == "first (in a word): two"
        assert (await conversation.ask("agent", "four", profile=trims)).output == "first (be plain): four!"
        assert len(await conversation.messages("agent")) == 2
        async with client.scope(profile=plan):
            assert len(await conversation.messages("agent")) == 4 + 2
    assert [len(one) for one in first.sent] == [1, 3, 1]
    assert [len(one) for one in second.sent] == [1, 3, 5]


async def test_what_cannot_be_applied_is_refused_by_name(bench: Bench, conversation_id: str):
    seen = Seen("first")
    model = seen.model()

    def only_tools(profile: GraphProfile) -> Any:
        return create_agent(model, profile.tools([look]), system_prompt="be plain")

    agents: dict[str, Any] = {
        "made": LangChainAdapter(create_agent(model, [look])),
        "partly": LangChainAdapter(only_tools),
        "whole": LangChainAdapter(factory(model)),
    }
    client = await bench.client(agents)
    conversation = client.conversation(conversation_id)
    with pytest.raises(UnsupportedCapability, match="'profiles'"):
        await conversation.ask("made", "one", profile=AgentProfile(instructions="x"))
    profile = AgentProfile(model_settings={"temperature": 1.0}, instructions="x")
    with pytest.raises(ConfigurationError, match=r"has model_settings, instructions, which .* does not ask for"):
        await conversation.ask("partly", "one", profile=profile)
    for settings, says in (({"temprature": 1}, "no setting temprature"), ({"temperature": "hot"}, "does not take")):
        with pytest.raises(ConfigurationError, match=says):
            await conversation.ask("whole", "one", profile=AgentProfile(model_settings=settings))
    assert await client.lanes() == []
    assert seen.sent == []


def test_settings_are_laid_over_real_models_key_by_key():
    """The model checks them, and what it was made with stays; its own name for a setting is as good."""
    openai = ChatOpenAI(model="gpt-4.1", api_key=SecretStr("k"), temperature=0.5, seed=1, base_url="http://localhost:1")
    changed = GraphProfile(RunProfile(model_settings={"temperature": 0.0, "timeout": 3})).model(openai)
    assert isinstance(changed, ChatOpenAI)
    assert (changed.temperature, changed.seed, changed.model_name) == (0.0, 1, "gpt-4.1")
    assert changed.openai_api_base == "http://localhost:1"
    assert changed.root_async_client.timeout == 3
    assert openai.temperature == 0.5
    assert GraphProfile(RunProfile()).model(openai) is openai
    name: Any = "claude-sonnet-5"
    claude = ChatAnthropic(model_name=name, api_key=SecretStr("k"), timeout=None, stop=None)
    changed = GraphProfile(RunProfile(model_settings={"max_tokens": 7})).model(claude)
    assert isinstance(changed, ChatAnthropic)
    assert (changed.max_tokens, changed.model) == (7, "claude-sonnet-5")
    own = LangChainAdapter(lambda profile: create_agent(profile.model(openai), [look]))
    under = own.with_profile(RunProfile(model_settings={"timeout": 9}))
    assert digest_of(under.contract()) == digest_of(own.contract())
    warm = own.with_profile(RunProfile(model_settings={"temperature": 0.9}))
    assert digest_of(warm.contract()) != digest_of(own.contract())
    given = LangChainAdapter(lambda profile: create_agent(profile.model(openai), [look]), contract={"v": 1})
    assert digest_of(given.with_profile(RunProfile(model_settings={"timeout": 9})).contract()) == digest_of(
        given.contract()
    )
    assert digest_of(given.with_profile(RunProfile(model_settings={"temperature": 0.9})).contract()) != digest_of(
        given.contract()
    )
