"""`laneway lanes`, `laneway show` and `laneway doctor`, which need no application."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from redis.asyncio import Redis

from laneway import Laneway, LanewayClient, PydanticAdapter, RequestBudget, Settings
from laneway.connect import connect_redis
from laneway.embedded import ValkeyServer
from laneway.errors import TurnFailed
from laneway.history.store import HistoryStore

from tests.cli.processes import CommandLine
from tests.cli.shop import talk


async def test_lanes_are_listed(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """Each conversation with each agent, with where its history stands."""
    assert (await laneway("lanes", "--json")).json() == {"lanes": []}
    await client.conversation(f"{conversation_id}-1").ask("talker", "one", turn_id="t1")
    await client.conversation(f"{conversation_id}-1").ask("pricer", "tea", turn_id="t2")
    await client.conversation(f"{conversation_id}-2").ask("talker", "two", turn_id="t3")
    found = (await laneway("lanes", "--json")).json()["lanes"]
    assert [(lane["conversation"], lane["agent"], lane["last_turn"]) for lane in found] == [
        (f"{conversation_id}-1", "pricer", "t2"),
        (f"{conversation_id}-1", "talker", "t1"),
        (f"{conversation_id}-2", "talker", "t3"),
    ]
    assert set(found[0]) == {
        *("conversation", "agent", "contract", "workflow_id", "version", "epoch", "length", "last_turn")
    }
    assert (found[1]["version"], found[1]["epoch"], found[1]["length"]) == (1, 0, 2)
    table = (await laneway("lanes", "--conversation", f"{conversation_id}-2")).out.splitlines()
    assert table[0].split()[:3] == ["conversation", "agent", "contract"]
    assert [line.split()[:2] for line in table[2:]] == [[f"{conversation_id}-2", "talker"]]


async def test_a_lane_is_shown_with_its_turns_messages_and_checkpoint(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """Failed turns with their error; messages by who said what."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("talker", "time", turn_id="t1")
    with pytest.raises(TurnFailed):
        await conversation.ask("talker", "fail", turn_id="t2")
    out = (await laneway("show", conversation_id, "talker")).out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    head = (await client.store.head(conversation.lane("talker"))).checkpoint
    assert lines[2] == f"checkpoint epoch 0, 4 messages, {head.digest}"
    assert lines[4] == "state idle"
    assert any(line.startswith("1 t1 committed 3 2 1") for line in lines)
    assert any(line.startswith("2 t2 failed") and line.endswith("ValueError: the shop is closed") for line in lines)
    assert lines[-5:] == [
        "0 user time",
        "1 assistant let me look",
        "1 call clock: {}",
        "2 result clock: noon",
        "3 assistant the clock says noon",
    ]


async def test_a_lane_is_shown_as_json_with_stable_keys(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """The messages are the native ones, in their framework's form."""
    conversation = client.conversation(conversation_id, budget=RequestBudget(request_limit=5, tool_call_limit=0))
    await conversation.ask("pricer", "tea", turn_id="t1")
    shown = await laneway("show", conversation_id, "pricer")
    assert "budget        conversation: 4 left of request_limit 5" in shown.out
    found = (await laneway("show", conversation_id, "pricer", "--json", "--app", "shop.py")).json()
    assert found["spent"]["requests"] == 1
    assert found["headroom"][0] == {
        "scope": "conversation",
        "dimension": "request_limit",
        "limit": 5,
        "consumed": 1,
        "remaining": 4,
    }
    assert set(found) == {
        *("conversation", "agent", "contract", "other_contracts", "workflow_id", "version", "epoch", "checkpoint"),
        *("status", "spent", "headroom", "turns", "messages"),
    }
    assert found["status"] == {
        "state": "open",
        "turn": None,
        "step": 0,
        "queue": [],
        "cancelling": False,
        "waiting": [],
        "steering": [],
    }
    (turn,) = found["turns"]
    assert set(turn) == {
        *("number", "turn_id", "outcome", "started_at", "ended_at", "steps", "usage", "checkpoint", "output"),
        *(
            "output_in_history",
            "error",
            "attempts",
            "edits",
            "noops",
            "skips",
            "repairs",
            "uncertain",
            "children",
            "steered_into",
        ),
    }
    assert turn["output"] == {"product": "tea", "cents": 1250}
    assert turn["checkpoint"] == found["checkpoint"]
    assert found["messages"][0]["message"]["parts"][0]["content"] == "tea"
    assert len(found["messages"]) == found["checkpoint"]["length"]


async def test_of_several_contracts_the_newest_is_shown(
    laneway: CommandLine, client: LanewayClient, settings: Settings, conversation_id: str
):
    """Or the one that is asked for, or that of the application."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("talker", "one", turn_id="t1")
    old = conversation.lane("talker").contract
    changed = Laneway(
        agents={"talker": PydanticAdapter(Agent(FunctionModel(stream_function=talk, model_name="other")))}
    )
    laneway.environment["LANEWAY_TASK_QUEUE"] = "another"
    other = settings.model_copy(update={"task_queue": "another"})
    async with changed.worker(other), changed.client(other) as newer:
        await newer.conversation(conversation_id).ask("talker", "two", turn_id="t2")
        new = newer.conversation(conversation_id).lane("talker").contract
        found = (await laneway("show", conversation_id, "talker", "--json")).json()
        assert (found["contract"], found["other_contracts"]) == (new, [old])
        assert (await laneway("show", conversation_id, "talker", "--json", "--contract", old[:6])).json()[
            "contract"
        ] == old
        assert (await laneway("show", conversation_id, "talker", "--json", "--app", "shop.py")).json()[
            "contract"
        ] == old
        done = await laneway("show", conversation_id, "talker", "--contract", "zz")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("laneway: the lane has no contract that begins with 'zz'; it has ")


async def test_a_lane_that_is_not_there_is_told(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """With the agents that the conversation has talked with."""
    await client.conversation(conversation_id).ask("talker", "one")
    done = await laneway("show", conversation_id, "pricer")
    assert done.code == 1
    assert done.err.endswith(f"conversation {conversation_id!r} with agent 'pricer'; it has talked with 'talker'\n")


async def test_damaged_history_is_shown_as_such_with_all_that_is_whole(
    laneway: CommandLine, client: LanewayClient, redis: Redis, store: HistoryStore, conversation_id: str
):
    """Never a shorter history in silence."""
    conversation = client.conversation(conversation_id)
    await conversation.ask("talker", "one", turn_id="t1")
    name = store.names(conversation.lane("talker")).epoch(0)
    entry = await redis.lindex(name, 1)
    assert isinstance(entry, bytes)
    await redis.execute_command("LSET", name, 1, entry.replace(b"you said", b"you SAID"))
    done = await laneway("show", conversation_id, "talker")
    assert done.code == 1
    assert "t1" in done.out
    assert done.err.startswith("laneway: entry 1 of epoch 0 is not what was committed")
    done = await laneway("show", conversation_id, "talker", "--json")
    found = done.json()
    assert (done.code, found["error"], found["messages"]) == (1, "CheckpointCorrupt", None)
    await redis.rpop(name)
    found = (await laneway("show", conversation_id, "talker", "--json")).json()
    assert (found["error"], len(found["turns"])) == ("CheckpointLost", 1)


async def test_without_a_worker_all_but_the_state_is_shown(
    laneway: CommandLine, shop: Laneway, settings: Settings, conversation_id: str
):
    """Only a worker can tell what a lane is doing."""
    async with shop.worker(settings), shop.client(settings) as client:
        await client.conversation(conversation_id).ask("talker", "one")
    laneway.environment["LANEWAY_TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    done = await laneway("show", conversation_id, "talker", "--json")
    assert (done.code, done.json()["status"]["state"]) == (0, "unknown")
    assert len(done.json()["messages"]) == 2


async def test_doctor_finds_all_well(laneway: CommandLine, worker: None):
    """And says what it looked at."""
    done = await laneway("doctor")
    assert (done.code, done.err) == (0, "looking where the settings say\n")
    assert done.out.endswith("all is well\n")
    assert "redis.durability" in done.out


async def test_doctor_warns_of_a_server_without_an_append_only_file(laneway: CommandLine, tmp_path: Path):
    """It works, so the exit code is 0; what to do is said."""
    server = ValkeyServer(tmp_path)
    await server.start()
    try:
        address = f"redis://{server.address}/0"
        connection = await connect_redis(Settings(redis_url=address))
        await connection.config_set("appendonly", "no")
        await connection.aclose()
        laneway.environment["LANEWAY_REDIS_URL"] = address
        done = await laneway("doctor", "--json")
    finally:
        server.kill()
    found = done.json()
    assert (done.code, done.err) == (0, "")
    assert (found["status"], found["dev"]) == ("warn", False)
    (check,) = [check for check in found["checks"] if check["name"] == "redis.durability"]
    assert (check["status"], check["advice"]) == ("warn", "set `appendonly yes`")


async def test_doctor_fails_where_the_servers_are_down(nowhere: CommandLine):
    """Each with what to do."""
    done = await nowhere("doctor")
    assert done.code == 1
    assert done.out.count("→ start it, for example with `laneway dev`") == 2
    assert done.out.endswith("it cannot work like this\n")


async def test_a_lane_is_compacted_and_it_is_said_what_happened(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """The agent's own model sums up; a lane with nothing to sum up says so."""
    nothing = await laneway("compact", "shop.py", conversation_id, "pricer")
    assert (nothing.code, nothing.out) == (0, "nothing was compacted: the lane has no history yet\n")
    conversation = client.conversation(conversation_id)
    await conversation.ask("pricer", "one")
    await conversation.ask("pricer", "two")
    done = await laneway("compact", "shop.py", conversation_id, "pricer", "--focus", "numbers", "--turn-id", "c1")
    assert done.code == 0
    assert done.out.startswith("history edited by SummarizationProcessor: 6 → 3 messages")
    found = (
        await laneway(
            "compact", "shop.py", conversation_id, "pricer", "--turn-id", "c1", "--focus", "numbers", "--json"
        )
    ).json()
    assert (found["turn_id"], found["compacted"], found["reason"]) == ("c1", True, None)
    refused = await laneway("compact", "shop.py", conversation_id, "pricer", "--keep", "0")
    assert refused.code == 2
