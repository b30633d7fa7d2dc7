"""The command line treats lanes of LangGraph graphs as it does those of Pydantic AI agents."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from laneway import LanewayClient, Settings

from tests.cli.processes import CommandLine

SHOP = Path(__file__).with_name("graph_shop.py")


@pytest.fixture
async def client(folder: Path, settings: Settings) -> AsyncIterator[LanewayClient]:
    """A client, beside a worker with the graph."""
    from tests.cli.graph_shop import app

    shutil.copy(SHOP, folder)
    async with app.worker(settings), app.client(settings) as connected:
        yield connected


async def test_a_graph_is_talked_with_and_its_lane_is_shown(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """As for the shop's own talker, to the word: what is printed, streamed, listed and shown."""
    prompts = "time\nfail\ntwo\n"
    done = await laneway("chat", "graph_shop.py", "talker", "-c", conversation_id, stdin=prompts)
    assert (done.code, done.out) == (1, "let me look\nthe clock says noon\nyou said two\n")
    assert done.err.splitlines()[1:3] == ["tool clock {}", "tool clock: returned"]
    assert "failed: ValueError: the shop is closed" in done.err
    out = (await laneway("show", conversation_id, "talker")).out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.endswith("ValueError: the shop is closed") for line in lines)
    assert lines[-7:] == [
        "0 user time",
        "1 assistant let me look",
        "1 call clock: {}",
        "2 result clock: noon",
        "3 assistant the clock says noon",
        "4 user two",
        "5 assistant you said two",
    ]
    (lane,) = (await laneway("lanes", "--json")).json()["lanes"]
    assert (lane["conversation"], lane["agent"], lane["length"]) == (conversation_id, "talker", 6)


async def test_an_exported_history_of_a_graph_imports_as_it_was(
    laneway: CommandLine, client: LanewayClient, folder: Path, conversation_id: str
):
    """Its list is LangChain's own form."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("talker", "time")
    messages = await conversation.messages("talker")
    done = await laneway("export", conversation_id, "talker", "-o", "kept.json")
    assert (done.code, done.out) == (0, "4 messages written to kept.json\n")
    other = f"{conversation_id}-2"
    done = await laneway("import", "graph_shop.py", other, "talker", "kept.json", "--turn-id", "t1")
    assert (done.code, done.out) == (0, "4 messages imported (turn t1)\n"), done.err
    assert await client.conversation(other).messages("talker") == messages
    assert isinstance(messages[0], HumanMessage)
    assert (await client.conversation(other).ask("talker", "more")).output == "you said more"
