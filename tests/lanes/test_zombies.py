"""A worker that was frozen past its heartbeat, and whose step another one has redone, writes nothing when it wakes.

The worker is a process of its own that stands still at a chosen point, once: its event loop too, and then the whole
process by SIGSTOP. Another process does the step again and commits. What Redis holds of the lane is then compared,
key by key, before and after the first one has gone on and tried to write.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from laneway import Laneway, LanewayClient, Settings
from laneway.processes import ChildProcess

from tests.chaos.agents import Scripted, seen
from tests.chaos.collect import dump_keys
from tests.chaos.crew import spawn
from tests.chaos.ledger import read_ledger
from tests.chaos.script import Plan, digest, play

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

# Temporal goes on handing attempts to the frozen worker, which had asked for tasks before: each is lost, one heartbeat
# timeout after another.
_PATIENCE_S = 180.0


@dataclass
class Workers:
    """Worker processes of one test, and what they have written down."""

    folder: Path
    settings_path: Path
    children: list[ChildProcess] = field(default_factory=list[ChildProcess])

    def start(self, name: str, *held: str) -> ChildProcess:
        child = spawn(self.settings_path, self._ledger(name), self.folder / f"{name}.log", *held)
        self.children.append(child)
        return child

    def lines(self, name: str, kind: str) -> list[dict[str, Any]]:
        path = self._ledger(name)
        return [line for line in read_ledger(path) if line["k"] == kind] if path.exists() else []

    async def wait(self, name: str, kind: str) -> dict[str, Any]:
        await _until(lambda: bool(self.lines(name, kind)), f"{name} to write {kind!r}")
        return self.lines(name, kind)[0]

    def _ledger(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


async def _until(condition: Callable[[], bool], what: str, seconds: float = _PATIENCE_S) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"waited {seconds:g} s for {what}")


@pytest.fixture
def lane_settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"heartbeat_timeout": timedelta(seconds=1)})


@pytest.fixture
async def workers(lane_settings: Settings, tmp_path: Path) -> AsyncIterator[Workers]:
    path = tmp_path / "settings.json"
    path.write_text(lane_settings.model_dump_json())
    started = Workers(tmp_path, path)
    yield started
    for child in started.children:
        child.kill()


@pytest.fixture
async def client(lane_settings: Settings) -> AsyncIterator[LanewayClient]:
    async with Laneway(agents=Scripted().agents()).client(lane_settings) as connected:
        yield connected


# The answer of `careful` is staged by itself, before its output validator; that of `plain` by the commit.
@pytest.mark.parametrize(
    ("where", "agent"), [("model", "plain"), ("stage", "plain"), ("stage", "careful"), ("tool", "plain")]
)
async def test_a_frozen_worker_that_wakes_after_its_step_was_redone_writes_nothing(
    where: str,
    agent: str,
    workers: Workers,
    client: LanewayClient,
    lane_settings: Settings,
    redis: Redis,
    conversation_id: str,
    tmp_path: Path,
):
    """Frozen in a model request, between the answer and its stage or commit, and in a tool."""
    gate = tmp_path / "gate"
    frozen = workers.start("frozen", where, str(gate))
    await workers.wait("frozen", "ready")
    plan = Plan("turn", [["fetch"]] if where == "tool" else [])
    turn = await client.conversation(conversation_id).submit(agent, plan.to_prompt(), turn_id="turn")
    await workers.wait("frozen", "held")
    os.kill(frozen.pid, signal.SIGSTOP)

    workers.start("other")
    async with asyncio.timeout(_PATIENCE_S):
        result = await turn.result()
    played = play(plan.to_prompt(), after="", validates=agent == "careful")
    assert result.output == played.messages[-1][1][0][1]
    before = await dump_keys(redis, lane_settings.redis_prefix)
    assert before

    gate.touch()
    os.kill(frozen.pid, signal.SIGCONT)
    await workers.wait("frozen", "released")
    refused = await workers.wait("frozen", "refused")
    assert refused["turn"] == "turn"
    # Its attempt has some time more, for whatever it would do next.
    await asyncio.sleep(1.0)
    assert await dump_keys(redis, lane_settings.redis_prefix) == before
    written = [line for kind in ("staged", "committed", "aborted") for line in workers.lines("frozen", kind)]
    assert all(line["t"] < workers.lines("frozen", "held")[0]["t"] for line in written)

    messages = await client.messages(turn.lane)
    assert seen(messages) == played.messages
    events = [event async for event in turn.events(after="0-0")]
    assert sum(event.terminal for event in events) == 1
    assert events[-1].terminal

    # The one that woke is a good worker still, and what it holds of the lane is right.
    workers.children[1].kill()
    following = Plan("following")
    async with asyncio.timeout(_PATIENCE_S):
        answer = await client.conversation(conversation_id).ask(agent, following.to_prompt(), turn_id="following")
    asked = play(following.to_prompt(), after=digest(played.messages), validates=agent == "careful")
    assert answer.output == asked.messages[-1][1][0][1]


async def test_a_frozen_worker_whose_tool_fails_when_it_wakes_does_not_end_the_turn(
    workers: Workers, client: LanewayClient, conversation_id: str, tmp_path: Path
):
    """The turn is still going on elsewhere: only the attempt that counts may fail it."""
    gate = tmp_path / "gate"
    frozen = workers.start("frozen", "tool_fails", str(gate))
    await workers.wait("frozen", "ready")
    plan = Plan("turn", [["fetch"]], tool_pace=0.5)
    turn = await client.conversation(conversation_id).submit("plain", plan.to_prompt(), turn_id="turn")
    await workers.wait("frozen", "held")
    os.kill(frozen.pid, signal.SIGSTOP)
    workers.start("other", "tool", str(tmp_path / "other gate"))
    # The other worker is in the middle of the same step.
    await workers.wait("other", "held")
    gate.touch()
    os.kill(frozen.pid, signal.SIGCONT)
    await _until(
        lambda: (
            any(line["what"] == "aborted" for line in workers.lines("frozen", "refused"))
            or bool(workers.lines("frozen", "aborted"))
        ),
        "the first attempt to end",
    )
    assert not workers.lines("frozen", "aborted")
    (tmp_path / "other gate").touch()
    async with asyncio.timeout(_PATIENCE_S):
        result = await turn.result()
    assert result.outcome == "committed"
