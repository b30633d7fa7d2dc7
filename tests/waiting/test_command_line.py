"""Requests are listed and answered from the command line, by anyone who has the way to the servers."""

from __future__ import annotations

import os
from pathlib import Path

from laneway import Settings

from tests.cli.processes import CommandLine
from tests.support.bench import Bench
from tests.waiting.agents import Office
from tests.waiting.test_answers import waiting


async def test_requests_are_listed_and_answered(bench: Bench, settings: Settings, tmp_path: Path, conversation_id: str):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
    laneway = CommandLine(
        tmp_path,
        environment
        | {
            "LANEWAY_TEMPORAL_ADDRESS": settings.temporal_address,
            "LANEWAY_REDIS_URL": settings.redis_url,
            "LANEWAY_REDIS_PREFIX": settings.redis_prefix,
            "LANEWAY_TASK_QUEUE": settings.task_queue,
        },
    )
    office = Office()
    client = await bench.serve({"agent": office.adapter()})
    turn = await client.conversation(conversation_id).submit("agent", "send(a) pay(50) measure(x)")
    asked = {name: one.request.id for name, one in (await waiting(turn, 3)).items()}
    listed = (await laneway("pending", "--json")).json()["pending"]
    assert {one["name"]: one["request"] for one in listed} == asked
    assert {one["kind"] for one in listed} == {"approval", "external"}
    assert listed[0]["turn_id"] == turn.turn_id
    refused = await laneway("approve", asked["measure"], "--json")
    assert (refused.code, refused.json()["error"]) == (2, "InvalidInput")
    assert (await laneway("answer", asked["measure"], "two")).code == 2
    assert (await laneway("answer", asked["measure"], "2")).code == 0
    assert (await laneway("deny", asked["send"][:8], "--reason", "not now")).code == 0
    shown = (await laneway("show", conversation_id, "agent", "--json")).json()["status"]
    assert shown["waiting"] == [asked["pay"]]
    assert (await laneway("approve", asked["pay"], "--arguments", '{"what": 12}', "--json")).json() == {
        "request": asked["pay"],
        "answer": "approved",
        "turn_id": turn.turn_id,
    }
    assert (await turn.result()).output == "done"
    assert office.ran == ["pay 12"]
    assert (await laneway("approve", asked["pay"], "--json")).json()["error"] == "NotFound"
