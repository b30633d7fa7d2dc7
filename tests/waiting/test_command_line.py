"""Requests are listed and answered from the command line, by anyone who has the way to the servers."""

from __future__ import annotations

from pathlib import Path

from laneway import Settings

from tests.cli.processes import CommandLine
from tests.support.bench import Bench
from tests.support.preloaded import Preloaded
from tests.waiting.agents import Office
from tests.waiting.test_answers import waiting


async def test_requests_are_listed_and_answered(
    bench: Bench, settings: Settings, preloaded: Preloaded, tmp_path: Path, conversation_id: str
):
    laneway = CommandLine.to(settings, tmp_path, preloaded)
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
