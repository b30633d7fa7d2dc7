"""The pieces of programs on pages that make no whole one: each is run, among what its page has said before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import Laneway, PydanticAdapter, Settings, Turn, deny

from tests.docs.fragments import Names, played
from tests.docs.pages import ROOT, blocks, fences
from tests.docs.test_pages_run import PAGES
from tests.langchain.graphs import ScriptedModel
from tests.support.provider import ProviderServer, always
from tests.waiting.test_answers import waiting

# How many pieces each page has, and who runs them where it is not the tests of its name below.
PIECES = {
    "README.md": (7, "tests/docs/test_readme.py"),
    "adapters.md": (3, "tests/docs/test_adapters_page.py"),
    "approvals.md": (3, ""),
    "archival.md": (2, ""),
    "budgets.md": (1, ""),
    "delegation.md": (2, ""),
    "history.md": (5, ""),
    "langgraph-saver.md": (1, ""),
    "processors.md": (3, ""),
    "steering.md": (1, ""),
    "windows.md": (1, ""),
}


def test_every_page_with_python_is_run_by_somebody():
    """A piece that is added to a page has to be added to its test."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy" / "README.md"]:
        page = path.relative_to(ROOT).as_posix().removeprefix("docs/")
        if (count := len(blocks(page))) and page not in PAGES:
            found[page] = count
    assert found == {page: count for page, (count, _) in PIECES.items()}
    here = {name.removeprefix("test_").replace("_", "-") + ".md" for name in globals() if name.startswith("test_")}
    assert {page for page, (_, elsewhere) in PIECES.items() if not elsewhere} <= here
    assert all((ROOT / elsewhere).exists() for _, elsewhere in PIECES.values() if elsewhere)
    # The one block that is not run as it stands: what it shows asks a provider for 100,000 tokens' worth.
    assert [(page, len(blocks(page, "py"))) for page in PAGES if blocks(page, "py")] == [("scopes.md", 1)]
    assert {fence.language for page in (*PAGES, *PIECES) for fence in fences(page)} <= {"python", "py", "console", ""}


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderServer]:
    """Stands in for the providers of the models that the pages name."""
    async with ProviderServer(always("in short")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


def echo(*calls: ToolCallPart) -> Agent[None, str]:
    """An agent that makes calls, if there are any, and then says what it was given last."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if calls and isinstance(last, UserPromptPart):
            return ModelResponse(list(calls))
        return ModelResponse([TextPart(f"{len(messages)}: {getattr(last, 'content', '')}")])

    return Agent(FunctionModel(answer, model_name="echo"))


async def asked(adapter: Any, settings: Settings, *prompts: str) -> list[str]:
    """What an adapter's agent answers, in a conversation of its own."""
    app = Laneway(agents={"support": adapter})
    async with app.worker(settings), app.client(settings) as client:
        conversation = client.conversation(uuid4().hex)
        return [(await conversation.ask("support", prompt)).output for prompt in prompts]


async def test_archival(settings: Settings):
    own, graph = blocks("archival.md")
    async with played(own, {"agent": echo()}, settings) as names:
        assert await asked(names["adapter"], settings, "a", "b") == ["1: a", "3: b"]
    async with played(graph, {}, settings) as names:  # its stand-in for a model cannot be given tools
        assert names["adapter"].shortname == "langchain"


async def test_windows(settings: Settings):
    async with played(blocks("windows.md")[0], {"agent": echo()}, settings) as names:
        first, second = await asked(names["adapter"], settings, "a", "b")
        assert first.startswith("1: ")
        assert second.startswith("1: "), "the turn begins without native history"
        assert "a" in second, "and with what was said, as text"


async def test_budgets(settings: Settings):
    names: Names = {"agent": echo(), "app": Laneway(agents={"support": PydanticAdapter(echo())})}
    async with played(blocks("budgets.md")[0], names, settings) as there:
        assert len(await there["conversation"].messages("support")) == 2


async def test_history(settings: Settings, provider: ProviderServer):
    """Each processor edits a history as its page says."""
    *processors, importing = blocks("history.md")
    app = Laneway(agents={"support": PydanticAdapter(echo())})
    names: Names = {"agent": echo(), "app": app, "conversation": None}
    async with played("\n".join(processors), names, settings) as there:
        client = there["client"]
        for name in ("keep_recent", "redact", "without_search_results", "summarize"):
            app.register(name, there[name])
        for name, last in (("redact", "1: b"), ("keep_recent", "3: b"), ("without_search_results", "3: b")):
            async with client.history(processor=name):
                await client.ask("support", "a secret")
                assert (await client.ask("support", "b")).output == last, name
        async with client.history(processor="summarize") as talk:
            for number in range(7):
                await client.ask("support", f"prompt {number}")
            assert "So far: in short" in str(await talk.messages("support"))
        await there["summarizer"].model.client.close()  # it is no agent of an application's, which closes what it opens
        messages = [ModelRequest([UserPromptPart("before")]), ModelResponse([TextPart("yes")])]
        imported: Names = {"conversation": client.conversation("imported"), "messages": messages}
        async with played(importing, imported, settings) as after:
            assert after["record"].outcome == "committed"


async def test_processors(settings: Settings, provider: ProviderServer):
    summarizing, compacting, several = blocks("processors.md")
    for source in (summarizing, several):
        async with played(source, {"agent": echo()}, settings) as names:
            assert await asked(names["adapter"], settings, "a") == ["1: a"]
    app = Laneway(agents={"support": PydanticAdapter(Agent("openai:gpt-5.2"))})
    async with app.worker(settings), app.client(settings) as client:
        conversation = client.conversation("c")
        for number in range(4):
            await conversation.ask("support", f"prompt {number}")
        async with played(compacting, {"conversation": conversation}, settings) as names:
            assert names["report"].compacted


async def test_delegation(settings: Settings):
    team, graph = blocks("delegation.md")
    critic: Any = create_agent(ScriptedModel(answer=lambda messages: AIMessage("it is wrong")), [])
    calls = [ToolCallPart(f"delegate_to_{name}", {"brief": "a.txt"}, name) for name in ("reader", "critic")]
    async with played(team, {"lead": echo(*calls), "reader": echo(), "critic": critic}, settings) as names:
        assert "it is wrong" in (await names["conversation"].ask("lead", "go")).output
    made: Names = {"create_agent": create_agent, "model": ScriptedModel(answer=lambda _: AIMessage("")), "tools": []}
    async with played(graph, made, settings):
        pass


async def test_approvals(settings: Settings, capsys: pytest.CaptureFixture[str]):
    answering, sending, paying = blocks("approvals.md")

    def with_tools(define: Callable[[Agent[None, str]], None], *calls: ToolCallPart) -> Laneway:
        agent = echo(*calls)
        define(agent)
        return Laneway(agents={"clerk": PydanticAdapter(agent)})

    def letters(agent: Agent[None, str]) -> None:
        agent.tool_plain(name="send", requires_approval=True)(lambda to: "sent")

        @agent.tool_plain
        def weigh() -> dict[str, float]:
            raise CallDeferred

    async def both(names: Names) -> None:
        turn: Turn = names["turn"]
        found = await waiting(turn, 2)
        names |= {"request_id": found["send"].request.id, "other_id": found["weigh"].request.id}

    app = with_tools(letters, ToolCallPart("send", {"to": "Ada"}, "a"), ToolCallPart("weigh", {}, "b"))
    async with played(answering, {"app": app}, settings, after={0: both}):
        shown = capsys.readouterr().out
        assert "approval send {'to': 'Ada'}" in shown
        assert "external weigh" in shown
    for source, call in (
        (sending, ToolCallPart("send", {"to": "Ada"}, "a")),
        (paying, ToolCallPart("pay", {"amount": 1}, "a")),
    ):
        agent = echo(call)
        names: Names = {"agent": agent, "timedelta": timedelta}
        async with played(source, names, settings):
            app = Laneway(agents={"clerk": PydanticAdapter(agent)})
        async with app.worker(settings), app.client(settings) as client:
            turn = await client.conversation(call.tool_name).submit("clerk", "go")
            if source is sending:
                (pending,) = (await waiting(turn)).values()
                assert pending.deadline == pytest.approx(pending.since + 3 * 24 * 3600, abs=60)
                await turn.answer(pending.request.id, deny("not today"))
            assert (await turn.result()).output.startswith("3: ")


async def test_steering(settings: Settings):
    held, goes_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        held.set()
        await goes_on.wait()
        return "written"

    async def until_held(names: Names) -> None:
        await held.wait()

    async def go_on(names: Names) -> None:
        goes_on.set()

    agent = echo(ToolCallPart("wait", {}, "a"))
    agent.tool_plain(wait)
    app = Laneway(agents={"clerk": PydanticAdapter(agent)})
    async with played(blocks("steering.md")[0], {"app": app}, settings, after={0: until_held, 1: go_on}) as names:
        assert names["result"].steered_into == names["turn"].turn_id


async def test_langgraph_saver(settings: Settings):
    source = blocks("langgraph-saver.md")[0].replace("redis://localhost:6379/0", settings.redis_url)
    builder: Any = StateGraph(MessagesState)
    builder.add_node("node", lambda state: {"messages": [AIMessage("hi")]})
    builder.add_edge(START, "node")

    names: Names = {"builder": builder}
    await asyncio.to_thread(exec, source, names)
    with names["RedisSaver"].from_url(settings.redis_url) as saver:
        state = builder.compile(checkpointer=saver).get_state({"configurable": {"thread_id": "a:b*c"}})
    assert [message.text for message in state.values["messages"]] == ["hello", "hi"]
