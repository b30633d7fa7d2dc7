"""Scopes over several processes: gone on with by a conversation's id, and what a turn captured over a deploy."""

from __future__ import annotations

import asyncio
from pathlib import Path

from laneway import LanewayClient, Settings, Turn

from tests.support.ledgered import application
from tests.support.stops import Stops, lines
from tests.support.workers import WorkerNursery, WorkerProcess


async def test_a_scope_goes_on_in_another_process_by_its_conversation_s_id(
    nursery: WorkerNursery, quick: Settings, tmp_path: Path
):
    """A scope that names no conversation makes one; a process that has only its id is in the same history."""
    folder = tmp_path / "worker"
    async with (
        application(folder / "ledger", Stops()).client(quick) as client,
        WorkerProcess(nursery, folder, quick) as worker,
    ):
        async with client.history() as conversation:
            assert (await client.ask("plain", "go")).output == "turn 1: one and two"
            assert "trim 1" not in lines(folder / "ledger")
        assert await worker.talk(conversation.conversation_id) == "turn 2: one and two"
        assert "trim 1" in lines(folder / "ledger"), "the other process's scope edits"
        async with client.history(conversation.conversation_id):
            assert (await client.ask("plain", "and on")).output == "turn 3: one and two"


async def refused(client: LanewayClient, turn: Turn) -> None:
    """Wait until a worker has refused an attempt, since it has not what the turn captured."""
    handle = client.temporal.get_workflow_handle(client.workflow_id(turn.lane))
    async with asyncio.timeout(30):
        while "is not the one here" not in str((await handle.describe()).raw_description.pending_activities):
            await asyncio.sleep(0.02)


async def test_no_deploy_replaces_what_a_running_turn_captured(
    nursery: WorkerNursery, quick: Settings, tmp_path: Path, conversation_id: str
):
    """A worker that has other code by the name leaves the turn to one that has the code as it was. New turns get what
    was deployed."""

    def trims(name: str) -> set[str]:
        return {line for line in lines(tmp_path / name / "ledger") if line.startswith("trim")}

    async with application(tmp_path / "caller", Stops(), version="1").client(quick) as client:
        async with (
            client.history(conversation_id, processor="trim"),
            WorkerProcess(nursery, tmp_path / "first", quick, stop="second@1") as first,
        ):
            turn = await client.current.submit("plain", "go")
            assert await first.killed() == "second"
        async with WorkerProcess(nursery, tmp_path / "deployed", quick, stop="@2"):
            await refused(client, turn)
            async with (
                application(tmp_path / "caller", Stops(), version="2").client(quick) as deployed,
                deployed.history(processor="trim"),
            ):
                assert (await deployed.ask("plain", "go")).output == "turn 1: one and two"
        async with WorkerProcess(nursery, tmp_path / "as-it-was", quick, stop="@1"):
            assert (await turn.result()).output == "turn 1: one and two"
    assert [trims(name) for name in ("first", "deployed", "as-it-was")] == [{"trim 1"}, {"trim 2"}, {"trim 1"}]
