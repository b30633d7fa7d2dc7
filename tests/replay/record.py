"""Records histories of the lane workflow's present shape: `python -m tests.replay.record <name of the shape> [scenes]`.

Run it for each shape that is released, and commit what it writes; histories of earlier shapes stay as they are.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from laneway import Delegation, Laneway, LanewayClient, LocalStack, approve
from laneway.activities.wire import ANSWER_REQUEST, AnswerNotice

from tests.delegation.agents import Team
from tests.lanes.agents import Paced
from tests.steering.agents import Held
from tests.waiting.agents import Office
from tests.waiting.test_answers import waiting

HISTORIES = Path(__file__).parent / "histories"


async def _turns(client: LanewayClient, paced: Paced) -> None:
    """Turns of one step and of several, a failed one, and duplicates."""
    conversation = client.conversation("turns")
    paced.thread_gate.set()
    paced.release("slow")
    for prompt in ("one", "tools", "fail", "two"):
        await (await conversation.submit("agent", prompt, turn_id=prompt)).record()
        await (await conversation.submit("agent", prompt, turn_id=prompt)).record()


async def _endings(client: LanewayClient, paced: Paced) -> None:
    """Turns that end otherwise: cancelled while they run and while they wait, timed out in both, interrupted."""
    conversation = client.conversation("endings")
    running = await conversation.submit("agent", "wait")
    waiting = await conversation.submit("agent", "waiting")
    hurried = await conversation.submit("agent", "hurried", timeout=0.3)
    await paced.begun["wait"].wait()
    await hurried.record()
    await waiting.cancel()
    await running.cancel()
    await (await conversation.submit("agent", "wait 2", timeout=0.3)).record()
    await conversation.submit("agent", "wait 3")
    await conversation.submit("agent", "left")
    await (await conversation.submit("agent", "urgent", when_busy="interrupt", cancel_waiting=True)).record()
    await conversation.ask("agent", "in time", timeout=30)


async def _endless(client: LanewayClient, paced: Paced) -> None:
    """Turns over several runs, submitted at once, and the idle end."""
    conversation = client.conversation("endless")
    turns = await asyncio.gather(*(conversation.submit("agent", f"turn {n}") for n in range(12)))
    await asyncio.gather(*(turn.record() for turn in turns))
    await client.temporal.get_workflow_handle(client.workflow_id(conversation.lane("agent"))).result()


async def _waiting(client: LanewayClient, paced: Paced) -> None:
    """Turns that wait: answered, by default, cancelled; a notice of no request comes first."""
    conversation = client.conversation("waiting")
    turn = await conversation.submit("office", "plain(a) send(b) measure(c)", turn_id="answered")
    asked = await waiting(turn, 2)
    handle = client.temporal.get_workflow_handle(client.workflow_id(turn.lane))
    await handle.signal(ANSWER_REQUEST, AnswerNotice(turn.turn_id, "none"))
    await client.status(turn.lane)  # the notice has been taken
    await turn.answer(asked["measure"].request.id, result=1)
    await turn.answer(asked["send"].request.id, approve())
    await turn.record()
    await (await conversation.submit("office", "hurried(d)", turn_id="default")).record()
    cancelled = await conversation.submit("office", "send(e)", turn_id="cancelled")
    await waiting(cancelled)
    await cancelled.cancel()


async def _team(client: LanewayClient, paced: Paced) -> None:
    """Work handed out, two at a time, and a tree that is cancelled."""
    conversation = client.conversation("team")
    await conversation.ask("lead", "reader: a | reader: b | reader: c", turn_id="done")
    turn = await conversation.submit("lead", "reader: d | reader: wait e | reader: wait f", turn_id="cancelled")
    async with asyncio.timeout(30):
        while len((await client.status(turn.lane)).waiting) > 2:
            await asyncio.sleep(0.1)
    await turn.cancel()


async def _steering(client: LanewayClient, paced: Paced) -> None:
    """A turn that takes messages in, one that is cancelled before, and one that comes to nothing with what it took."""
    conversation = client.conversation("steering")
    for prompt, held in (("work", True), ("fail", False)):
        turn = await conversation.submit("held", prompt, turn_id=prompt)
        if held:
            await HELD.begun.wait()
        steering = [
            await conversation.submit("held", f"{prompt} {n}", turn_id=f"{prompt} {n}", when_busy="steer")
            for n in range(3)
        ]
        if held:
            await steering[1].cancel()
            HELD.gate.set()
        for one in (turn, *steering):
            await one.record()


HELD = Held()


async def record(shape: str, only: list[str]) -> None:
    """Write the histories of the scenes that are named, or of all."""
    paced = Paced()
    team = Team({"reader": Delegation("reader", "reads", max_concurrency=2)}).agents()
    del team["middle"]
    app = Laneway(agents={**paced.agents(), **team, "office": Office(timeout=1).adapter(), "held": HELD.pydantic()})
    async with LocalStack(None) as stack:
        scenes = {
            "turns": (_turns, "agent"),
            "endings": (_endings, "agent"),
            "endless": (_endless, "agent"),
            "waiting": (_waiting, "office"),
            "team": (_team, "lead"),
            "steering": (_steering, "held"),
        }
        scenes = {name: scene for name, scene in scenes.items() if name in only or not only}
        settings = stack.settings.model_copy(
            update={"max_turns_per_run": 5, "min_run_time": timedelta(0), "idle_timeout": timedelta(seconds=2)}
        )
        async with app.worker(settings), app.client(settings) as client:
            for name, (scene, agent) in scenes.items():
                await scene(client, paced)
                lane = client.conversation(name).lane(agent)
                runs = [
                    run async for run in client.temporal.list_workflows(f"WorkflowId = '{client.workflow_id(lane)}'")
                ]
                for number, run in enumerate(sorted(runs, key=lambda run: run.start_time)):
                    handle = client.temporal.get_workflow_handle(client.workflow_id(lane), run_id=run.run_id)
                    history = json.loads((await handle.fetch_history()).to_json())
                    path = HISTORIES / f"{shape}-{name}-{number}.json"
                    text = json.dumps(_scrubbed(history), indent=1)
                    path.write_text(text.replace(f"{socket.gethostname()}-", "host-") + "\n")
                    print(path.name, len(history["events"]), "events")


def _scrubbed(value: Any) -> Any:
    """Without what names the machine that recorded it."""
    if isinstance(value, dict):
        return {k: "recorded" if k == "identity" else _scrubbed(v) for k, v in value.items() if k != "stackTrace"}
    return [_scrubbed(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1], sys.argv[2:]))
