"""The README: each of its blocks is run, or it is said here who runs it."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import HistoryProcessorContext, Laneway, LanewayClient, Settings

from tests.cli.processes import CommandLine
from tests.docs.fragments import Names, played
from tests.docs.pages import fences
from tests.support.preloaded import Preloaded
from tests.support.provider import ProviderRequest, ProviderServer, call, reply

README = fences("README.md")
PYTHON = [fence.source for fence in README if fence.language == "python"]
CONSOLE = [fence.source for fence in README if fence.language == "console"]
TEAM, SUPPORT, MAIN, GRAPH, EDITING, BUDGETS, SCOPES = range(7)

# What is at the beginning of each line of the console blocks, and who runs it.
COMMANDS = {
    "make demo": "tests/demo runs it, kills and all",
    "make test": "runs this",
    "pip install": "tests/packaging builds what it installs, and looks at it from outside",
    "laneway dev": "tests/cli/test_dev.py runs it on an application of its own",
    "laneway chat": "run here",
    "laneway send": "run here",
    "laneway lanes": "run here",
    "laneway show": "run here",
    "laneway doctor": "run here",
}


def test_every_block_is_one_that_a_test_here_knows():
    """A block that is added to the page has to be added here."""
    assert [fence.language for fence in README if fence.language not in ("python", "console")] == []
    assert len(PYTHON) == 7
    commands = [line.removeprefix("$ ") for block in CONSOLE for line in block.splitlines()]
    assert commands
    for line in commands:
        assert any(line.startswith(known) for known in COMMANDS), line
    for known in COMMANDS:
        assert any(line.startswith(known) for line in commands), known


def _answer(request: ProviderRequest) -> Any:
    """Looks an order up, and answers with what came of it."""
    if request.step == 0 and "order" in request.prompt:
        return call("order_status", {"order": 7 if "7" in request.prompt else 8})
    return reply(f"It is {request.results[-1].text}." if request.results else "Hello.")


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderServer]:
    """Stands in for the provider of the models that the page names."""
    async with ProviderServer(_answer) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_BASE", server.openai_url)
        yield server


def _support() -> Names:
    """What the page's first agent is made of."""
    names: Names = {}
    exec(compile(PYTHON[SUPPORT], "support.py", "exec"), names)
    return names


async def _ask(adapter: Any, settings: Settings, *prompts: str) -> list[str]:
    app = Laneway(agents={"support": adapter})
    async with app.worker(settings), app.client(settings) as client:
        # Not the page's own: all tests are in one namespace of Temporal, where a lane's workflow is named after it.
        conversation = client.conversation(uuid4().hex)
        return [(await conversation.ask("support", prompt)).output for prompt in prompts]


async def test_a_first_agent_runs_as_it_is_shown(provider: ProviderServer, tmp_path: Path):
    """Two files, and a process that starts its servers for itself."""
    (tmp_path / "support.py").write_text(PYTHON[SUPPORT])
    (tmp_path / "main.py").write_text(PYTHON[MAIN])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "main.py",
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert lines[0] == "It is in the warehouse."
    kinds = [line.split()[0] for line in lines[1:-1]]
    assert (kinds[0], kinds[-1]) == ("turn.started", "turn.committed")
    assert {"tool.called", "tool.finished", "text.delta"} <= set(kinds)
    assert lines[-1].startswith("TurnUsage(requests=2")
    assert (tmp_path / ".laneway").is_dir()


async def test_an_agent_of_langchain_runs_as_it_is_shown(provider: ProviderServer, settings: Settings):
    async with played(PYTHON[GRAPH], {"order_status": _support()["order_status"]}, settings) as names:
        assert (await names["conversation"].ask("support", "Where is order 7?")).output == "It is in the warehouse."


async def test_pieces_of_adapters_make_adapters_that_run(provider: ProviderServer, settings: Settings):
    for block in (EDITING, BUDGETS):
        async with played(PYTHON[block], {"agent": _support()["agent"]}, settings) as names:
            answers = await _ask(names["adapter"], settings, "Where is order 7?", "And order 8?")
            assert answers == ["It is in the warehouse.", "It is on its way."]


async def test_history_holds_where_the_page_says_so(provider: ProviderServer, settings: Settings):
    def recent(ctx: HistoryProcessorContext[Any]) -> Any:
        return ctx.keep_recent_groups(20)

    app = _support()["app"]
    async with played(PYTHON[SCOPES], {"app": app, "recent": app.processor(recent)}, settings) as names:
        client: LanewayClient = names["client"]
        scoped = await client.conversation(names["conversation"].conversation_id).messages("support")
    prompts = [text for message in scoped for text in str(message.parts).split("'") if text.endswith("order 8?")]
    assert prompts == ["And order 8?"]
    seen = [request.request.turn for request in provider.requests if request.request is not None]
    assert seen == [1, 1, 1, 1, 2, 2, 1], "turns of each request: by itself, the scope's two, and one apart"


async def test_a_team_waits_for_leave_as_it_is_shown(settings: Settings, capsys: pytest.CaptureFixture[str]):
    """The lead asks its reader, then for leave to write; the page answers it."""

    def leads(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if not results:
            return ModelResponse(
                [ToolCallPart("delegate_to_reader", {"brief": "a.txt"}, "a"), ToolCallPart("write_report", {}, "b")]
            )
        return ModelResponse([TextPart(" and ".join(str(part.content) for part in results))])

    lead: Agent[None, str] = Agent(FunctionModel(leads))
    lead.tool_plain(name="write_report", requires_approval=True)(lambda: "written")
    reader: Agent[None, str] = Agent(FunctionModel(lambda messages, info: ModelResponse([TextPart("read")])))
    async with played(PYTHON[TEAM], {"lead": lead, "reader": reader}, settings):
        assert capsys.readouterr().out == "read and written\n"


async def test_commands_run_as_they_are_shown(
    provider: ProviderServer, settings: Settings, tmp_path: Path, preloaded: Preloaded
):
    """Those that talk to servers, on the page's own application; the others are run elsewhere, see COMMANDS."""
    (tmp_path / "support.py").write_text(PYTHON[SUPPORT])
    line = CommandLine.to(settings, tmp_path, preloaded)
    shown = [text.partition("  #")[0] for block in CONSOLE for text in block.splitlines() if "$ laneway" in text]
    commands = {words[2]: words[2:] for words in map(shlex.split, shown)}
    del commands["dev"]
    async with _support()["app"].worker(settings):
        sent = await line(*commands.pop("send"))
        assert (sent.code, sent.out) == (0, "It is in the warehouse.\n"), sent.err
        done = dict(
            zip(
                commands,
                await asyncio.gather(*(line(*words, stdin="Where is order 8?\n") for words in commands.values())),
                strict=True,
            )
        )
    assert {name: one.code for name, one in done.items()} == dict.fromkeys(("chat", "lanes", "show", "doctor"), 0), done
    assert done["chat"].out == "It is on its way.\n"
    assert "customer-42" in done["lanes"].out
    assert "committed" in done["show"].out
