"""A stage is seen by its own saver only, obeys its fence, and becomes the thread's or vanishes, whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from laneway.errors import ConfigurationError, StaleTurn
from laneway.langgraph import Fence, RedisSaver, StageScope
from laneway.langgraph_layout import ThreadKeys
from laneway.langgraph_scripts import PROMOTE_FUNCTION

THREAD: Any = {"configurable": {"thread_id": "t"}}


def graph_on(saver: RedisSaver) -> Any:
    def model(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1].text
        if last == "ask":
            return {"messages": [AIMessage("told " + interrupt("what?"))]}
        return {"messages": [AIMessage(f"{last}, you say " * 30)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def texts(saver: RedisSaver) -> list[str]:
    found = saver.get_tuple(THREAD)
    return [message.text for message in found.checkpoint["channel_values"].get("messages", [])] if found else []


def say(saver: RedisSaver, text: str) -> Any:
    return graph_on(saver).invoke({"messages": [HumanMessage(text)]}, THREAD)


def dump(client: Any, prefix: str) -> dict[bytes, Any]:
    """Everything that is stored."""
    kinds = {b"zset": lambda key: client.zrange(key, 0, -1), b"hash": client.hgetall}
    return {key: kinds[client.type(key)](key) for key in client.keys(f"{prefix}*")}


def test_a_stage_is_seen_by_its_own_saver_until_it_is_committed(saver: RedisSaver, make_saver: Any) -> None:
    say(saver, "one")
    staged = saver.staged(StageScope("turn 2"))
    say(staged, "two")
    assert texts(saver) == ["one", "one, you say " * 30]
    assert texts(staged)[2:] == ["two", "two, you say " * 30]
    # Another attempt at the turn, in another process, goes on from what is staged.
    resumed = make_saver().staged(StageScope("turn 2"))
    assert texts(resumed) == texts(staged)
    assert [one.metadata.get("step") for one in resumed.list(THREAD)] == [4, 3, 2, 1, 0, -1]
    assert [one.metadata.get("step") for one in saver.list(THREAD)] == [1, 0, -1]
    wanted = texts(staged)
    staged.commit_stage("t")
    assert texts(saver) == wanted
    staged.commit_stage("t")  # once more: a retry of a commit that was not answered
    assert texts(make_saver()) == wanted
    assert len(list(saver.list(THREAD))) == len(list(saver.list(None))) == 6
    say(saver, "three")
    assert len(texts(saver)) == 6


def test_a_committed_stage_leaves_what_was_written_without_one(make_saver: Any, client: Any, prefix: str) -> None:
    say(make_saver(), "one")
    staged = make_saver().staged(StageScope("turn"))
    say(staged, "two")
    staged.commit_stage("t")
    keys = {key.decode().rsplit("}:", 1)[-1] for key in client.keys(f"{prefix}:graph:{{*")}
    assert keys == {"rows", "parts", "writes"}


def test_a_dropped_stage_leaves_nothing(saver: RedisSaver, client: Any, prefix: str) -> None:
    say(saver, "one")
    before = dump(client, prefix)
    staged = saver.staged(StageScope("turn 2"))
    say(staged, "two")
    assert dump(client, prefix) != before
    staged.drop_stage("t")
    assert dump(client, prefix) == before
    assert texts(staged) == texts(saver)


def test_the_first_turn_of_a_thread_can_be_staged(saver: RedisSaver, client: Any, prefix: str) -> None:
    staged = saver.staged(StageScope("turn"))
    say(staged, "one")
    assert saver.get_tuple(THREAD) is None
    staged.drop_stage("t")
    assert dump(client, prefix) == {}
    say(staged, "one")
    staged.commit_stage("t")
    assert len(texts(saver)) == 2
    assert len(list(saver.list(None))) == 3


def test_answers_to_an_interrupt_are_staged_beside_the_committed_checkpoint(saver: RedisSaver) -> None:
    assert say(saver, "ask")["__interrupt__"]
    waiting = saver.get_tuple(THREAD)
    staged = saver.staged(StageScope("answer"))
    graph_on(staged).invoke(Command(resume="all"), THREAD)
    assert saver.get_tuple(THREAD) == waiting
    assert texts(staged) == ["ask", "told all"]
    staged.drop_stage("t")
    assert saver.get_tuple(THREAD) == waiting
    graph_on(staged).invoke(Command(resume="else"), THREAD)
    staged.commit_stage("t")
    assert texts(saver) == ["ask", "told else"]


async def test_stages_work_asynchronously(saver: RedisSaver) -> None:
    staged = saver.staged(StageScope("turn"))
    await graph_on(staged).ainvoke({"messages": [HumanMessage("one")]}, THREAD)
    await staged.acommit_stage("t")
    await graph_on(staged).ainvoke({"messages": [HumanMessage("two")]}, THREAD)
    await staged.adrop_stage("t")
    found = await saver.aget_tuple(THREAD)
    assert found is not None
    assert len(found.checkpoint["channel_values"]["messages"]) == 2


# Fences ---------------------------------------------------------------------------------------------------------------


def fenced(saver: RedisSaver, key: str, version: str) -> RedisSaver:
    """A stage that takes writes while a key has a value."""
    source = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.call('GET', KEYS[1]) or 'gone' end"
    return saver.staged(StageScope("turn", fence=lambda: Fence(source, [key], [version])))


def test_a_fence_stops_every_write_in_the_writes_own_script(make_saver: Any, client: Any, prefix: str) -> None:
    saver = make_saver(key_base=lambda thread: f"{prefix}:{{lane}}:graph:{thread}:")
    say(saver, "one")
    client.set(f"{prefix}:{{lane}}:head", "1")
    staged = fenced(saver, f"{prefix}:{{lane}}:head", "1")
    say(staged, "two")
    at = graph_on(staged).get_state(THREAD).config
    client.set(f"{prefix}:{{lane}}:head", "2")
    before = dump_of_thread(client, prefix)
    for write in (
        lambda: say(staged, "three"),
        lambda: staged.put_writes(at, [("messages", "x" * 300)], "task"),
        lambda: staged.commit_stage("t"),
        lambda: staged.drop_stage("t"),
    ):
        with pytest.raises(StaleTurn, match="its fence answered b'2'"):
            write()
    assert dump_of_thread(client, prefix) == before
    assert len(texts(saver)) == 2
    client.set(f"{prefix}:{{lane}}:head", "1")
    staged.commit_stage("t")
    assert len(texts(saver)) == 4


def dump_of_thread(client: Any, prefix: str) -> dict[bytes, Any]:
    found = client.keys(f"{prefix}:{{lane}}:graph:*")
    return {key: client.dump(key) for key in found}


def test_a_stage_can_be_committed_by_the_script_that_moves_its_owners_head(
    make_saver: Any, client: Any, prefix: str
) -> None:
    thread = ThreadKeys(f"{prefix}:{{lane}}:graph:")
    saver = make_saver(key_base=lambda _: thread.base)
    say(saver, "one")
    staged = saver.staged(StageScope("turn"))
    say(staged, "two")
    keys = [*thread.all, *thread.stage("turn").all, f"{prefix}:{{lane}}:head"]
    script = PROMOTE_FUNCTION + "promote_graph({unpack(KEYS, 1, 6)})\nreturn redis.call('INCR', KEYS[7])"
    assert client.eval(script, len(keys), *keys) == 1
    assert len(texts(saver)) == 4
    assert not client.exists(*thread.stage("turn").all)


def test_a_fence_may_raise_before_anything_is_sent(saver: RedisSaver) -> None:
    def fence() -> Fence:
        raise StaleTurn("the worker lost the turn")

    with pytest.raises(StaleTurn, match="lost the turn"):
        say(saver.staged(StageScope("turn", fence=fence)), "one")


def test_a_stage_expires_by_itself_and_a_committed_thread_does_not(saver: RedisSaver, client: Any, prefix: str) -> None:
    staged = saver.staged(StageScope("turn", ttl=timedelta(minutes=1)))
    say(staged, "one")
    assert all(50_000 < client.pttl(key) <= 60_000 for key in client.keys(f"{prefix}:graph:{{*"))
    staged.commit_stage("t")
    assert {client.pttl(key) for key in client.keys(f"{prefix}:graph:{{*")} == {-1}


def test_what_a_stage_cannot_do_is_refused(saver: RedisSaver) -> None:
    staged = saver.staged(StageScope("turn"))
    for refused in (
        lambda: staged.delete_thread("t"),
        lambda: staged.copy_thread("t", "u"),
        lambda: staged.prune(["t"]),
        lambda: staged.delete_for_runs(["r"]),
        lambda: list(staged.list(None)),
        lambda: saver.commit_stage("t"),
        lambda: saver.drop_stage("t"),
    ):
        with pytest.raises(ConfigurationError, match="stage"):
            refused()
