"""The command line treats lanes of LangGraph graphs as it does those of Pydantic AI agents."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from laneway import LanewayClient, RequestBudget, Settings
from laneway.history.processor_summary import SUMMARY_OPENING

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


async def test_a_graphs_lane_is_compacted_and_it_is_said_what_happened(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """The graph's own model sums up; where there is nothing to sum up, and what cannot be asked for, is said."""
    compact = ("compact", "graph_shop.py", conversation_id, "talker")
    nothing = await laneway(*compact)
    assert (nothing.code, nothing.out) == (0, "nothing was compacted: the lane has no history yet\n")
    conversation = client.conversation(conversation_id)
    for prompt in ("one", "two", "time"):
        await conversation.ask("talker", prompt)
    done = await laneway(*compact, "--focus", "numbers", "--turn-id", "c1")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("history edited by SummarizationProcessor: 8 → 5 messages")
    found = (await laneway(*compact, "--turn-id", "c1", "--focus", "numbers", "--json")).json()
    assert (found["turn_id"], found["compacted"], found["reason"]) == ("c1", True, None)
    texts = [message.text for message in await conversation.messages("talker")]
    assert texts[0].startswith(SUMMARY_OPENING)
    assert texts[1:] == ["time", "let me look", "noon", "the clock says noon"]
    assert (await conversation.ask("talker", "more")).output == "you said more"
    for wrong in (("--keep", "0"), ("--focus", " ")):
        refused = await laneway(*compact, *wrong)
        assert refused.code == 2
        assert wrong[0].removeprefix("--") in refused.err
    unknown = await laneway("compact", "graph_shop.py", conversation_id, "nobody")
    assert unknown.code != 0
    assert "talker" in unknown.err, "the agents that there are"


async def test_what_a_budget_has_left_is_shown_of_a_graphs_lane(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    budget = RequestBudget(request_limit=5, tool_call_limit=1)
    await client.conversation(conversation_id, budget=budget).ask("talker", "time")
    out = (await laneway("show", conversation_id, "talker")).out
    assert [" ".join(line.split()) for line in out.splitlines() if " left of " in line] == [
        "budget conversation: 3 left of request_limit 5",
        "conversation: 0 left of tool_call_limit 1",
    ]
