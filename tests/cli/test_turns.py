"""`laneway send` and `laneway cancel`, on real servers with a worker."""

from __future__ import annotations

from redis.asyncio import Redis

from laneway import Laneway, LanewayClient, Settings
from laneway.history.records import EventKind

from tests.cli.processes import CommandLine, Finished


async def test_send_writes_the_output(laneway: CommandLine, worker: None, conversation_id: str):
    """Text as it is, and nothing else: it can be piped."""
    done = await laneway("send", "shop.py", conversation_id, "talker", "hello")
    assert (done.code, done.out, done.err) == (0, "you said hello\n", "")


async def test_send_reads_a_long_prompt_from_standard_input(laneway: CommandLine, worker: None, conversation_id: str):
    done = await laneway("send", "shop.py", conversation_id, "talker", "-", stdin="two\nlines\n")
    assert done.out == "you said two\nlines\n"


async def test_send_gives_all_of_a_result_as_json(laneway: CommandLine, worker: None, conversation_id: str):
    """The output in the form that the agent's output type has in JSON."""
    done = await laneway("send", "shop.py", conversation_id, "pricer", "tea", "--turn-id", "t1", "--json")
    found = done.json()
    assert set(found) == {"turn_id", "outcome", "output", "usage", "checkpoint", "steps", "steered_into"}
    assert (found["turn_id"], found["outcome"]) == ("t1", "committed")
    assert found["output"] == {"product": "tea", "cents": 1250}
    assert found["checkpoint"]["epoch"] == 0
    assert found["usage"]["requests"] == 1


async def test_a_failed_turn_is_exit_code_1_and_its_cause(laneway: CommandLine, worker: None, conversation_id: str):
    done = await laneway("send", "shop.py", conversation_id, "talker", "fail", "--turn-id", "t1")
    assert (done.code, done.out) == (1, "")
    assert done.err == "laneway: turn 't1' failed: ValueError: the shop is closed\n"
    done = await laneway("send", "shop.py", conversation_id, "talker", "fail", "--turn-id", "t1", "--json")
    assert (done.code, done.json()) == (
        1,
        {
            "error": "TurnFailed",
            "message": "turn 't1' failed: ValueError: the shop is closed",
            "turn_id": "t1",
            "error_type": "ValueError",
            "error_message": "the shop is closed",
        },
    )


async def test_a_turn_that_is_sent_again_gives_its_first_outcome(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """With another prompt it is refused."""
    done = await laneway("send", "shop.py", conversation_id, "talker", "one", "--turn-id", "t1", "--no-wait")
    assert done.out == "t1\n"
    again = await laneway("send", "shop.py", conversation_id, "talker", "one", "--turn-id", "t1")
    assert again.out == "you said one\n"
    other = await laneway("send", "shop.py", conversation_id, "talker", "two", "--turn-id", "t1")
    assert (other.code, other.err) == (
        1,
        "laneway: turn id 't1' was used with another prompt: give this prompt an id of its own\n",
    )
    assert len(await client.turns(client.conversation(conversation_id).lane("talker"))) == 1


async def test_a_turn_that_takes_too_long_has_timed_out(laneway: CommandLine, worker: None, conversation_id: str):
    done = await laneway("send", "shop.py", conversation_id, "talker", "hang", "--timeout", "1", "--json")
    assert (done.code, done.json()["error"], done.json()["error_type"]) == (1, "TurnTimedOut", "TurnTimedOut")


async def test_send_says_what_to_do_while_a_turn_runs(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """Be refused, steer it, wait behind it, or take its place: then what steered it is next."""

    async def send(prompt: str, how: str) -> Finished:
        return await laneway(
            *("send", "shop.py", conversation_id, "talker", prompt, "--turn-id", prompt, "--when-busy", how),
            *(["--no-wait"] if how != "interrupt" else []),
        )

    conversation = client.conversation(conversation_id)
    running = await conversation.submit("talker", "hang", turn_id="running")
    async for event in running.events():
        if event.kind is EventKind.TEXT_DELTA:
            break
    refused = await send("refused", "reject")
    assert (refused.code, refused.out) == (1, "")
    assert "busy" in refused.err
    assert (await send("behind", "enqueue")).out == "behind\n"
    assert (await send("steer", "steer")).out == "steer\n"
    status = await conversation.status("talker")
    assert (status.turn, status.queue, status.steering) == ("running", ("behind",), ("steer",))
    assert (await send("urgent", "interrupt")).out == "you said urgent\n"
    assert (await running.record()).outcome == "cancelled"
    for one in ("steer", "behind"):
        assert (await conversation.turn("talker", one).result()).output == f"you said {one}"
    turns = [one.turn_id for one in await client.turns(running.lane)]
    assert turns == ["running", "urgent", "steer", "behind"]
    unknown = await send("never", "push")
    assert (unknown.code, "push" in unknown.err) == (2, True)


async def test_a_prompt_over_the_limit_is_refused_and_nothing_is_written(
    laneway: CommandLine, redis: Redis, worker: None, conversation_id: str
):
    laneway.environment["LANEWAY_MAX_PROMPT_BYTES"] = "100"
    done = await laneway("send", "shop.py", conversation_id, "talker", "x" * 200)
    assert done.code == 2
    assert done.err.startswith("laneway: the prompt has 202 bytes, and at most 100 are allowed: shorten it, or raise")
    prefix = laneway.environment["LANEWAY_REDIS_PREFIX"]
    assert [key async for key in redis.scan_iter(f"{prefix}:*")] == []


async def test_a_running_turn_is_cancelled(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """Without the application; once it has ended there is nothing to cancel again."""
    turn = await client.conversation(conversation_id).submit("talker", "hang", turn_id="t1")
    async for event in turn.events():
        if event.kind is EventKind.TEXT_DELTA:
            break
    done = await laneway("cancel", conversation_id, "talker", "t1")
    assert (done.code, done.out) == (0, "turn t1 was cancelled; its lane is as it was before it\n")
    assert (await turn.record()).outcome == "cancelled"
    again = await laneway("cancel", conversation_id, "talker", "t1", "--json")
    assert (again.code, again.json()["outcome"]) == (0, "cancelled")


async def test_a_turn_that_has_ended_is_not_cancelled(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """The exit code says so."""
    await client.conversation(conversation_id).ask("talker", "one", turn_id="t1")
    done = await laneway("cancel", conversation_id, "talker", "t1")
    assert (done.code, done.out) == (1, "turn t1 had been committed already: nothing was cancelled\n")


async def test_what_is_not_there_cannot_be_cancelled(laneway: CommandLine, client: LanewayClient, conversation_id: str):
    """Neither the turn nor the lane; each is told, with where to look."""
    done = await laneway("cancel", conversation_id, "talker", "t1")
    assert done.code == 1
    assert done.err.endswith(f"conversation {conversation_id!r} with agent 'talker'; `laneway lanes` lists all\n")
    await client.conversation(conversation_id).ask("talker", "one", turn_id="t1")
    done = await laneway("cancel", conversation_id, "talker", "t2")
    assert done.code == 1
    assert done.err.endswith(f"has no turn 't2'; `laneway show {conversation_id} talker` lists its turns\n")


async def test_where_no_worker_runs_a_cancellation_says_so(
    laneway: CommandLine, shop: Laneway, settings: Settings, conversation_id: str
):
    """It stays asked for, and takes effect when a worker comes."""
    async with shop.client(settings) as client:
        async with shop.worker(settings):
            turn = await client.conversation(conversation_id).submit("talker", "hang", turn_id="t1")
            async for event in turn.events():
                if event.kind is EventKind.TEXT_DELTA:
                    break
        done = await laneway("cancel", conversation_id, "talker", "t1", "--timeout", "1", "--json")
        assert (done.code, done.json()["error"]) == (1, "ServiceUnavailable")
        assert "start a worker (`laneway worker APP`)" in done.json()["message"]
        async with shop.worker(settings):
            assert (await turn.record()).outcome == "cancelled"
