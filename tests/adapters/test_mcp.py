"""Tool servers: connected once for a worker, and in the lane contract by who they are, not by what they offer today."""

from __future__ import annotations

import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from laneway import PydanticAdapter

from tests.support.bench import Bench
from tests.support.stops import lines

ROOT = Path(__file__).resolve().parents[2]


def adapter(ledger: Path, offered: list[list[str]], *, server: str | None = "growing") -> PydanticAdapter[None, str]:
    """An agent of a tool server, whose prompts name the tools to call: `please double {"number": 2}; …`."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(sorted(tool.name for tool in info.function_tools))
        results: list[str] = []
        for message in reversed(messages):
            results += [str(part.content) for part in message.parts if isinstance(part, ToolReturnPart)]
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

    command = StdioTransport(sys.executable, ["-m", "tests.support.mcp_server", str(ledger)], cwd=str(ROOT))
    agent: Agent[None, str] = Agent(
        FunctionModel(answer), toolsets=[MCPToolset(command, id=server, cache_tools=False, init_timeout=60)]
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
    assert offered[0] == ["double", "learn"]
    assert offered[-1] == ["double", "juggle", "learn"]
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
