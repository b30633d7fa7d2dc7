"""The tree of a turn is shown: who did what, how it ended, what it took, and what each child's history holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from laneway import Settings

from tests.cli.processes import CommandLine
from tests.delegation.agents import Team
from tests.support.bench import Bench
from tests.support.preloaded import Preloaded


async def test_a_tree_is_shown(
    bench: Bench, settings: Settings, preloaded: Preloaded, tmp_path: Path, conversation_id: str
):
    laneway = CommandLine.to(settings, tmp_path, preloaded)
    team = Team()
    client = await bench.serve(team.agents())
    conversation = client.conversation(conversation_id)
    await conversation.ask("lead", "middle: reader: a | reader: fail b", turn_id="t1")
    running = await conversation.submit("lead", "reader: wait c", turn_id="t2")
    await asyncio.wait_for(team.begun["wait c"].wait(), 30)
    shown = (await laneway("show", conversation_id, "lead", "--tree", "--json")).json()["turns"]
    assert [(one["turn_id"], one["status"]) for one in shown] == [("t1", "committed"), ("t2", "waiting")]
    middle, failed = shown[0]["children"]
    assert [(one["agent"], one["status"]) for one in (middle, *middle["children"], failed)] == [
        ("middle", "committed"),
        ("reader", "committed"),
        ("reader", "failed"),
    ]
    assert failed["error"] == {"type": "ValueError", "message": "cannot read fail b"}
    assert middle["usage"]["requests"] == 2
    assert middle["children"][0]["messages"][1]["parts"][0]["content"] == "read a"
    assert [one["status"] for one in shown[1]["children"]] == ["running"]
    lines = (await laneway("show", conversation_id, "lead", "--tree")).out.splitlines()
    assert lines[1].startswith("t1  committed  ")
    assert any(line.startswith("├─ middle (middle)  committed") for line in lines)
    assert any(line.startswith("│  └─ reader (reader)  committed") for line in lines)
    assert any("assistant: read a" in line for line in lines)
    assert any(line.startswith("└─ reader (reader)  failed") and "cannot read fail b" in line for line in lines)
    await running.cancel()
