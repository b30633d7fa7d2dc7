"""Tool servers: connected once for a worker, and in the lane contract by who they are, not by what they offer today."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import PydanticAdapter, RetryPolicy
from laneway.activities import pydantic_servers
from laneway.activities.pydantic_servers import told_apart
from laneway.activities.retries import TransientFailure
from laneway.errors import TurnFailed

from tests.support.bench import Bench
from tests.support.stops import lines

ROOT = Path(__file__).resolve().parents[2]


def ordered(offered: list[list[str]]) -> FunctionModel:
    """A model whose prompts name the tools to call: `please double {"number": 2}; …`."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(sorted(tool.name for tool in info.function_tools))
        results: list[str] = []
        for message in reversed(messages):
            results += [str(part.content) for part in message.parts if isinstance(part, ToolReturnPart)]
            results += [str(part.content) for part in message.parts if isinstance(part, RetryPromptPart)]
            # The framework tells the model of a new tool in a prompt of its own.
            prompts = [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
            if asked := [prompt for prompt in prompts if prompt.startswith("please ")]:
                orders = asked[-1].removeprefix("please ").split("; ")
                break
        else:
            raise AssertionError("there is no prompt")
        if len(results) == len(orders):
            return ModelResponse([TextPart(" and ".join(reversed(results)))])
        name, _, arguments = orders[len(results)].partition(" ")
        return ModelResponse([ToolCallPart(name, arguments or "{}", f"c{len(messages)}")])

    return FunctionModel(answer)


def adapter(ledger: Path, offered: list[list[str]], *, server: str | None = "growing") -> PydanticAdapter[None, str]:
    """An agent of a tool server that is a process of its own."""
    command = StdioTransport(sys.executable, ["-m", "tests.support.mcp_server", str(ledger)], cwd=str(ROOT))
    agent: Agent[None, str] = Agent(
        ordered(offered), toolsets=[MCPToolset(command, id=server, cache_tools=False, init_timeout=60)]
    )
    return PydanticAdapter(agent)


async def test_a_tool_server_is_connected_once_for_all_steps_and_turns(
    bench: Bench, conversation_id: str, tmp_path: Path
):
    """Its process is started by the first step, and lives until the worker ends; another worker starts its own."""
    ledger = tmp_path / "ledger"
    for started in (1, 2):
        agents = {"agent": adapter(ledger, [])}
        worker = await bench.worker(agents)
        client = await bench.client(agents)
        for turn in range(2):
            conversation = client.conversation(f"{conversation_id} {turn}")
            result = await conversation.ask("agent", 'please double {"number": 4}; double {"number": 8}')
            assert (result.output, result.steps) == ("8 and 16", 5)
        assert lines(ledger).count("connected") == started
        await worker.aclose()


async def test_tools_that_a_server_gains_are_used_on_the_same_lane(bench: Bench, conversation_id: str, tmp_path: Path):
    """The next step sees them; the contract, and with it the lane, stays."""
    ledger = tmp_path / "ledger"
    offered: list[list[str]] = []
    agents = {"agent": adapter(ledger, offered)}
    client = await bench.serve(agents)
    conversation = client.conversation(conversation_id)
    lane = conversation.lane("agent")
    await conversation.ask("agent", 'please double {"number": 1}')
    result = await conversation.ask("agent", 'please learn {"name": "juggle"}; juggle')
    assert result.output == "learned juggle and juggle done"
    assert offered[0] == ["block", "double", "end", "learn", "linger"]
    assert offered[-1] == ["block", "double", "end", "juggle", "learn", "linger"]
    assert conversation.lane("agent") == lane
    assert (await (await bench.client({"agent": adapter(ledger, [])})).lanes(conversation_id)) == [lane]
    assert (await conversation.status("agent")).version == 2
    assert lines(ledger) == ["connected", "double 1", "juggle"]


def test_another_tool_server_makes_another_contract(tmp_path: Path):
    one = adapter(tmp_path / "ledger", [])
    same = adapter(tmp_path / "other ledger", [])
    other = adapter(tmp_path / "ledger", [], server="another")
    assert one.contract() == same.contract() != other.contract()


def test_tool_servers_without_an_id_are_told_apart_by_their_command():
    """Not by where it is installed: workers on different machines have one contract."""

    def contract(command: str, *arguments: str) -> object:
        toolset = MCPToolset(StdioTransport(command, list(arguments)))
        return PydanticAdapter(Agent(FunctionModel(lambda m, i: ModelResponse([])), toolsets=[toolset])).contract()

    one = contract("/here/bin/python", "-m", "weather")
    assert one == contract("/there/python", "-m", "weather")
    assert one != contract("/here/bin/python", "-m", "stocks")


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(number: int, ledger: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A tool server on HTTP, which answers by now."""
    command = [sys.executable, "-m", "tests.support.mcp_server", str(ledger), str(number)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", number)).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def on_http(number: int, **options: Any) -> PydanticAdapter[None, str]:
    """An agent of the tool server at a port, whose steps are tried again quickly."""
    url = f"http://127.0.0.1:{number}/mcp"
    agent: Agent[None, str] = Agent(ordered([]), toolsets=[MCPToolset(url, id="growing")])
    return PydanticAdapter(agent, retry_policy=RetryPolicy(**{"first_delay": timedelta(seconds=0.2), **options}))


async def test_a_server_that_is_not_there_yet_is_waited_for(bench: Bench, conversation_id: str, tmp_path: Path):
    """As a provider that cannot be reached is: the step is tried again."""
    number = port()
    client = await bench.serve({"agent": on_http(number, max_attempts=50, max_delay=timedelta(seconds=1))})
    turn = await client.conversation(conversation_id).submit("agent", 'please double {"number": 4}')
    async for event in turn.events():
        if event.kind == "step.retried":
            break
    with served(number, tmp_path / "ledger"):
        assert (await turn.result()).output == "8"
    failed = (await turn.record()).attempts
    assert {one.error_message for one in failed} == {"Client failed to connect: All connection attempts failed"}


async def test_a_server_that_stays_away_fails_the_turn_once_the_policy_is_used_up(bench: Bench, conversation_id: str):
    client = await bench.serve({"agent": on_http(port(), max_attempts=2)})
    with pytest.raises(TurnFailed, match="Client failed to connect"):
        await client.conversation(conversation_id).ask("agent", "please double {}")


async def test_a_server_that_was_started_again_is_used_again(bench: Bench, conversation_id: str, tmp_path: Path):
    """By the same worker: whether it was away between two turns, while one asked for it, or in the middle of a call."""
    number, ledger = port(), tmp_path / "ledger"
    client = await bench.serve({"agent": on_http(number, max_attempts=50, max_delay=timedelta(seconds=1))})
    conversation = client.conversation(conversation_id)
    with served(number, ledger):
        assert (await conversation.ask("agent", 'please double {"number": 1}')).output == "2"
    # Nobody has asked it yet: what the worker holds of it is of no use.
    down = await conversation.submit("agent", 'please double {"number": 2}')
    async for event in down.events():
        if event.kind == "step.retried" or event.terminal:
            break
    with served(number, ledger) as server:
        assert (await down.result()).output in ("4", "Connection closed")
        assert (await conversation.ask("agent", 'please double {"number": 3}')).output == "6"
        cut = await conversation.submit("agent", "please linger {}")
        async for event in cut.events():
            if event.kind == "tool.called":
                break
        while "linger" not in lines(ledger):
            await asyncio.sleep(0.05)
        server.kill()
        server.wait()
    with served(number, ledger):
        # What the client says of it is a matter of which of its tasks sees it first: then the model is told.
        assert (await cut.result()).output in ("lingered", "Connection closed")
        assert (await conversation.ask("agent", 'please double {"number": 4}')).output == "8"


async def test_a_server_process_that_ended_is_started_again(bench: Bench, conversation_id: str, tmp_path: Path):
    """The model is told of the call that ended it, as in a plain run; what comes next has another process."""
    ledger = tmp_path / "ledger"
    client = await bench.serve({"agent": adapter(ledger, [])})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", 'please double {"number": 1}')).output == "2"
    assert (await conversation.ask("agent", "please end {}")).output == "Connection closed"
    assert (await conversation.ask("agent", 'please double {"number": 2}')).output == "4"
    assert lines(ledger).count("connected") == 2


async def test_a_server_that_is_busy_with_a_call_is_not_taken_for_one_that_ended(
    bench: Bench, conversation_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However long it says nothing to others: cutting the connection would cut off the call."""
    monkeypatch.setattr(pydantic_servers, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(pydantic_servers, "_PATIENCE_SECONDS", 0.2)
    ledger = tmp_path / "ledger"
    client = await bench.serve({"agent": adapter(ledger, [])})
    busy = await client.conversation(conversation_id).submit("agent", "please block {}")
    while "block" not in lines(ledger):
        await asyncio.sleep(0.05)
    other = await client.conversation(f"{conversation_id} other").ask("agent", 'please double {"number": 2}')
    assert (other.output, (await busy.result()).output) == ("4", "blocked")
    assert lines(ledger).count("connected") == lines(ledger).count("block") == 1


def test_what_is_no_server_is_told_apart_from_one_that_is_away():
    ways: dict[Exception, bool] = {
        ConnectionRefusedError("nobody there"): True,
        FileNotFoundError("no such command"): False,
        RuntimeError("Session task completed unexpectedly"): True,
        ExceptionGroup("several", [ValueError(), TimeoutError()]): True,
        ValueError("an answer"): False,
    }
    for error, is_passing in ways.items():
        assert isinstance(told_apart(error), TransientFailure) == is_passing
        outer = RuntimeError(f"Client failed to connect: {error}")
        outer.__cause__ = error
        assert isinstance(told_apart(outer), TransientFailure) == is_passing
