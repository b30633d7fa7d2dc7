"""What the saver promises beside LangGraph's contract: ids, lifetimes, atomicity, refusals, growth, many writers."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
import redis
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from laneway.errors import CheckpointLost, ConfigurationError, InvalidInput, ServiceUnavailable, StoreError
from laneway.langgraph import RedisSaver

ODD_IDS = [
    "a:b",
    "*",
    "?[a-z]*",
    "{tag}",
    "}{",
    "a b\n",
    "",
    "ünï😀",
    "\\",
    "..",
    "x" * 3000,
    "laneway:graph:threads",
    "\x01",
    "\x7f",
    "ÿ",
]


def config(thread: str = "t", namespace: str = "", checkpoint_id: str | None = None) -> Any:
    found: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": found | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def checkpoint(values: dict[str, Any], *, id: str | None = None) -> Checkpoint:
    made = empty_checkpoint()
    made["id"] = id or str(uuid6())
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, 1)
    return made


def put(saver: RedisSaver, values: dict[str, Any], at: Any, **metadata: Any) -> Any:
    made = checkpoint(values)
    return saver.put(at, made, CheckpointMetadata(**metadata), made["channel_versions"])


def get_config(found: CheckpointTuple) -> dict[str, Any]:
    return found.config.get("configurable", {})


def values(saver: RedisSaver, at: Any) -> Any:
    found = saver.get_tuple(at)
    return found and found.checkpoint["channel_values"]


# Ids ------------------------------------------------------------------------------------------------------------------


def test_odd_ids_are_taken_as_they_are(saver: RedisSaver) -> None:
    for thread in ODD_IDS:
        for namespace in ODD_IDS:
            put(saver, {"is": [thread, namespace]}, config(thread, namespace))
    for thread in ODD_IDS:
        for namespace in ODD_IDS:
            at = config(thread, namespace)
            assert values(saver, at) == {"is": [thread, namespace]}
            assert [get_config(one)["checkpoint_ns"] for one in saver.list(at)] == [namespace]
    assert len(list(saver.list({"configurable": {"thread_id": "*"}}))) == len(ODD_IDS)
    saver.delete_thread("*")
    assert values(saver, config("*")) is None
    assert len(list(saver.list(None))) == len(ODD_IDS) * (len(ODD_IDS) - 1)


@pytest.mark.parametrize("task_id", [*ODD_IDS, str(UUID(int=7)), str(UUID(int=2**127 + 10)).upper(), "u" * 17])
def test_odd_task_ids_and_paths_are_taken_as_they_are(saver: RedisSaver, task_id: str) -> None:
    at = put(saver, {}, config())
    saver.put_writes(at, [("a*:{}", 1), ("b", [2])], task_id, f"~path\0{task_id}")
    saver.put_writes(at, [("c", 3)], task_id + "2")
    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [(task_id + "2", "c", 3), (task_id, "a*:{}", 1), (task_id, "b", [2])]


@pytest.mark.parametrize(
    "at",
    [config("a\0b"), config("t", "a\0b"), config("t", "", "a\0b"), {"configurable": {}}, config("\ud800")],
    ids=range(5),
)
def test_ids_that_cannot_be_kept_are_refused(saver: RedisSaver, at: Any) -> None:
    with pytest.raises(InvalidInput, match="NUL character|names no thread|not valid Unicode"):
        saver.get_tuple(at)


def test_checkpoints_whose_ids_begin_alike_are_told_apart(saver: RedisSaver) -> None:
    for name in ("a", "ab", "abc", "b", "B"):
        made = checkpoint({"is": name}, id=name)
        saver.put(config(), made, {}, made["channel_versions"])
    assert [one.checkpoint["id"] for one in saver.list(config())] == ["b", "abc", "ab", "a", "B"]
    assert [one.checkpoint["id"] for one in saver.list(config(), before=config("t", "", "ab"))] == ["a", "B"]
    assert values(saver, config("t", "", "ab")) == {"is": "ab"}
    assert values(saver, config()) == {"is": "b"}


# Lists ----------------------------------------------------------------------------------------------------------------


def test_long_lists_come_in_order_whole_filtered_and_limited(saver: RedisSaver) -> None:
    at = config()
    for step in range(150):
        at = put(saver, {"n": step}, at, step=step, source="loop" if step % 3 else "input")
        if step % 5 == 0:
            put(saver, {"n": step}, config("t", "inner|1"), step=step)

    def steps(**options: Any) -> list[int]:
        return [one.metadata.get("step", -9) for one in saver.list(config(), **options)]

    assert steps() == list(range(149, -1, -1))
    assert steps(limit=70) == list(range(149, 79, -1))
    assert steps(limit=0) == []
    assert steps(filter={"source": "input"}, limit=40) == list(range(147, 27, -3))
    assert steps(filter={"source": "input", "step": 99}) == [99]
    everything = list(saver.list({"configurable": {"thread_id": "t"}}))
    assert len(everything) == 180
    assert [one.checkpoint["id"] for one in everything] == sorted(
        (one.checkpoint["id"] for one in everything), reverse=True
    )
    middle = everything[90].config
    assert [one.config for one in saver.list(middle)] == [middle]


async def test_lists_can_be_left_early(saver: RedisSaver) -> None:
    for thread in range(3):
        for _ in range(40):
            put(saver, {"n": thread}, config(f"t{thread}"))
    async for _ in saver.alist(None):
        break
    assert len([one async for one in saver.alist(None, limit=100)]) == 100


# Lifetimes ------------------------------------------------------------------------------------------------------------


def expiries(client: Any, prefix: str) -> dict[str, int]:
    keys = client.keys(f"{prefix}:graph:{{*")
    return {key.decode().rsplit(":", 1)[1]: client.pttl(key) for key in keys}


def test_a_thread_expires_whole_after_its_last_write(make_saver: Any, client: Any, prefix: str) -> None:
    saver = make_saver(ttl=timedelta(minutes=10))
    at = put(saver, {"text": "x" * 500}, config())
    for key in client.keys(f"{prefix}:graph:{{*"):
        client.pexpire(key, 5_000)
    saver.put_writes(at, [("a", "y" * 500)], "task")
    found = expiries(client, prefix)
    assert found.keys() == {"rows", "parts", "writes"}
    assert all(590_000 < left <= 600_000 for left in found.values())
    saver.get_tuple(at)
    for key in client.keys(f"{prefix}:graph:{{*"):
        client.pexpire(key, 5_000)
    saver.get_tuple(at)
    assert max(expiries(client, prefix).values()) <= 5_000
    make_saver(ttl=timedelta(minutes=10), refresh_on_read=True).get_tuple(at)
    assert min(expiries(client, prefix).values()) > 590_000


async def test_an_expired_thread_is_gone_and_can_begin_again(make_saver: Any) -> None:
    saver = make_saver(ttl=timedelta(milliseconds=300))
    at = put(saver, {"text": "x" * 500}, config())
    await asyncio.sleep(0.5)
    assert saver.get_tuple(at) is None
    assert list(saver.list(None)) == []
    put(saver, {"text": "x" * 500}, config())  # though this saver saw its parts stored
    assert values(saver, config()) == {"text": "x" * 500}
    assert len(list(saver.list(None))) == 1


def test_threads_live_for_ever_without_a_ttl(saver: RedisSaver, client: Any, prefix: str) -> None:
    put(saver, {"text": "x" * 500}, config())
    assert set(expiries(client, prefix).values()) == {-1}


# Writes ---------------------------------------------------------------------------------------------------------------


def test_the_first_write_of_an_index_stays_and_special_ones_are_replaced(saver: RedisSaver) -> None:
    at = put(saver, {}, config())
    saver.put_writes(at, [("a", 1), ("__interrupt__", "first?")], "task")
    saver.put_writes(at, [("a", 2), ("__interrupt__", "second?"), ("b", 3)], "task")
    saver.put_writes(at, [("__error__", "e"), ("__resume__", ["r"])], "task")
    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [
        ("task", "__resume__", ["r"]), ("task", "__interrupt__", "second?"), ("task", "__error__", "e"),
        ("task", "a", 1), ("task", "b", 3),
    ]  # fmt: skip


def test_pending_writes_come_in_the_order_of_their_tasks_paths(saver: RedisSaver) -> None:
    at = put(saver, {}, config())
    for task, path in (("z", "~a, 2"), ("a", "~a, 3"), ("m", "")):
        saver.put_writes(at, [("c", path)], task, path)
    found = saver.get_tuple(at)
    assert found is not None
    assert [write[0] for write in found.pending_writes or []] == ["m", "z", "a"]


def test_a_write_that_came_before_its_checkpoint_is_found_with_it(saver: RedisSaver) -> None:
    made = checkpoint({"a": 1})
    saver.put_writes(config("t", "", made["id"]), [("a", 1)], "task")
    assert values(saver, config()) is None
    saver.put(config(), made, {}, made["channel_versions"])
    found = saver.get_tuple(config())
    assert found is not None
    assert found.pending_writes == [("task", "a", 1)]


def test_a_checkpoint_written_twice_is_the_last_one(saver: RedisSaver) -> None:
    first, second = checkpoint({"a": 1}, id="same"), checkpoint({"a": "x" * 300}, id="same")
    for made in (first, second):
        saver.put(config(), made, {}, made["channel_versions"])
    assert [one.checkpoint["channel_values"] for one in saver.list(config())] == [{"a": "x" * 300}]


def test_unchanged_channels_are_taken_from_the_parent_by_another_process_too(make_saver: Any) -> None:
    first = checkpoint({"a": "x" * 300, "b": "kept " * 100})
    at = make_saver().put(config(), first, {}, first["channel_versions"])
    second = checkpoint({"a": "y" * 300})
    second["channel_versions"] = {"a": 2, "b": 1}
    at = make_saver().put(at, second, {}, {"a": 2})
    assert values(make_saver(), at) == {"a": "y" * 300, "b": "kept " * 100}


def test_what_was_deleted_behind_a_savers_back_is_written_again(make_saver: Any) -> None:
    ours = make_saver()
    messages = [AIMessage("x" * 300 + str(at), id=str(at)) for at in range(50)]
    at = put(ours, {"messages": messages, "other": "y" * 300}, config())
    make_saver().delete_thread("t")
    made = checkpoint({"messages": [*messages, AIMessage("new", id="n")], "other": "y" * 300})
    made["channel_versions"]["messages"] = 2
    at = ours.put(at, made, {}, {"messages": 2})
    assert values(make_saver(), at) == made["channel_values"]
    assert len(list(ours.list(None))) == 1


def test_what_cannot_be_written_again_is_lost_not_shortened(make_saver: Any) -> None:
    ours = make_saver()
    at = put(ours, {"a": "x" * 300, "b": "y" * 300}, config())
    make_saver().delete_thread("t")
    made = checkpoint({"a": "z" * 300})
    made["channel_versions"] = {"a": 2, "b": 1}
    at = ours.put(at, made, {}, {"a": 2})  # LangGraph always passes b; who does not, has lost it with the thread
    assert values(make_saver(), at) == {"a": "z" * 300}


def test_writers_on_one_thread_lose_nothing(make_saver: Any) -> None:
    """Two processes, four writers each, on one thread: every checkpoint and every write is there, whole."""
    savers = [make_saver(), make_saver()]
    shared = ["shared " * 50, "history " * 50]

    def write(writer: int) -> None:
        saver, at = savers[writer % 2], config("t", f"ns{writer % 4}")
        for step in range(15):
            at = put(saver, {"m": [*shared, f"{writer} {step} " * 40]}, at, step=step, writer=writer)
            saver.put_writes(at, [("m", [f"{writer} {step} " * 40])], f"task {writer}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    found = list(make_saver().list({"configurable": {"thread_id": "t"}}))
    assert len(found) == 8 * 15
    for one in found:
        text = f"{one.metadata['writer']} {one.metadata['step']} " * 40  # type: ignore[typeddict-item]
        assert one.checkpoint["channel_values"]["m"] == [*shared, text]
        assert one.pending_writes == [(f"task {one.metadata['writer']}", "m", [text])]  # type: ignore[typeddict-item]


def test_racing_writers_of_one_task_agree_on_the_first(make_saver: Any) -> None:
    savers = [make_saver() for _ in range(6)]
    at = put(savers[0], {}, config())
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: savers[n].put_writes(at, [("c", f"{n} " * 100)] * 3, "task"), range(6)))
    found = savers[0].get_tuple(at)
    assert found is not None
    assert len({value for _, _, value in found.pending_writes or []}) == 1
    assert len(found.pending_writes or []) == 3


# Refusals -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize("value", [Point(1), object(), 2**70, lambda: 1], ids=range(4))
def test_what_cannot_be_stored_is_refused_with_its_channel_and_nothing_is_written(
    saver: RedisSaver, value: Any
) -> None:
    at = put(saver, {}, config())
    with pytest.raises(InvalidInput, match="channel 'bad' cannot be stored"):
        put(saver, {"good": 1, "bad": {"deep": [value, "x" * 500]}}, at)
    with pytest.raises(InvalidInput, match="channel 'bad' cannot be stored"):
        saver.put_writes(at, [("good", 1), ("bad", value)], "task")
    found = list(saver.list(config()))
    assert [one.pending_writes for one in found] == [[]]


def test_a_stored_type_that_is_no_longer_allowed_is_refused_with_its_channel(make_saver: Any) -> None:
    put(make_saver(allowed_types=[Point]), {"point": Point(1)}, config())
    assert values(make_saver(allowed_types=[(Point.__module__, "Point")]), config()) == {"point": Point(1)}
    with pytest.raises(StoreError, match=r"channel 'point': .*test_saver.Point is not on the allow-list"):
        make_saver().get_tuple(config())
    widened = make_saver().with_allowlist({(Point.__module__, "Point")})
    assert values(widened, config()) == {"point": Point(1)}


def test_damaged_data_is_refused_with_its_channel(saver: RedisSaver, client: Any, prefix: str) -> None:
    put(saver, {"text": "x" * 500}, config())
    (key,) = client.keys(f"{prefix}:graph:*:parts")
    (digest,) = client.hkeys(key)
    client.hset(key, digest, b"\0\0\0\0garbage")
    with pytest.raises(StoreError, match="channel 'text': .*was altered"):
        saver.get_tuple(config())
    client.delete(key)
    with pytest.raises(CheckpointLost, match="channel 'text': .*is missing"):
        saver.get_tuple(config())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": timedelta(0)}, "must be a positive timedelta"),
        ({"prefix": ""}, "without a brace"),
        ({"prefix": "{a}"}, "without a brace"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RedisSaver.from_url("redis://localhost:1", **options)


def test_clients_of_ones_own_serve_their_side(valkey_url: str, prefix: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        saver = RedisSaver(client, prefix=prefix)
        put(saver, {"a": 1}, config())
        assert values(saver, config()) == {"a": 1}
        with pytest.raises(ConfigurationError, match="synchronous client only"):
            asyncio.run(saver.aget_tuple(config()))
    with redis.Redis.from_url(valkey_url, decode_responses=True) as decoding, pytest.raises(ConfigurationError):
        RedisSaver(decoding)
    with pytest.raises(ConfigurationError, match="needs a client"):
        RedisSaver()


def test_a_server_that_is_not_there_is_named() -> None:
    with (
        redis.Redis(port=1, socket_connect_timeout=0.2) as client,
        pytest.raises(ServiceUnavailable, match="not answer"),
    ):
        RedisSaver(client).get_tuple(config())


def test_one_saver_serves_several_event_loops(saver: RedisSaver) -> None:
    put(saver, {"a": 1}, config())

    async def read() -> Any:
        found = await saver.aget_tuple(config())
        await saver.aclose()
        return found

    for _ in range(3):
        assert asyncio.run(read()).checkpoint["channel_values"] == {"a": 1}


# Upkeep ---------------------------------------------------------------------------------------------------------------


def test_pruning_frees_what_nothing_refers_to(saver: RedisSaver, client: Any, prefix: str) -> None:
    at = config()
    for step in range(30):
        at = put(saver, {"m": [f"{step} " * 100, "always " * 50], "n": f"note {step} " * 30}, at, step=step)
        saver.put_writes(at, [("m", f"write {step} " * 50)], "task")
    before = values(saver, config())
    saver.prune(["t", "absent"])
    assert values(saver, config()) == before
    (key,) = client.keys(f"{prefix}:graph:*:parts")
    assert client.hlen(key) <= 6
    put(saver, {"m": ["0 " * 100]}, at)  # was stored, and is not any more
    assert values(saver, config()) == {"m": ["0 " * 100]}
    saver.prune(["t"], strategy="delete")
    assert client.keys(f"{prefix}:graph:{{*") == []
    with pytest.raises(InvalidInput, match="strategy"):
        saver.prune(["t"], strategy="some")


def test_a_copy_is_whole_and_stands_alone(saver: RedisSaver) -> None:
    at = put(saver, {"m": "x" * 300}, config("from"), run_id="run")
    saver.put_writes(at, [("m", "y" * 300)], "task")
    saver.copy_thread("from", "to")
    with pytest.raises(InvalidInput, match="exists"):
        saver.copy_thread("from", "to")
    saver.delete_thread("from")
    found = saver.get_tuple(config("to"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"m": "x" * 300}
    assert found.pending_writes == [("task", "m", "y" * 300)]
    saver.delete_for_runs(["run"])
    assert list(saver.list(None)) == []


def test_deleting_leaves_no_key_behind(saver: RedisSaver, client: Any, prefix: str) -> None:
    at = put(saver, {"m": "x" * 300}, config(), run_id="run")
    saver.put_writes(at, [("m", "y" * 300)], "task")
    saver.delete_thread("t")
    assert client.keys(f"{prefix}*") == []


# Growth ---------------------------------------------------------------------------------------------------------------


def conversation(saver: RedisSaver, turns: int, reply_bytes: int = 2048) -> int:
    """Talk of what cannot be deflated, and say how long all messages are together."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node(
        "model", lambda _: {"messages": [AIMessage(secrets.token_urlsafe(reply_bytes * 3 // 4), id=str(uuid4()))]}
    )
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=saver)
    state: Any = {}
    for turn in range(turns):
        state = graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, config())
    return sum(len(saver.serde.dumps_typed(message)[1]) for message in state["messages"])


def stored_bytes(client: Any, prefix: str) -> int:
    """What is in the keys: names and records."""
    total = 0
    for key in client.keys(f"{prefix}:graph:{{*"):
        if key.endswith(b"parts"):
            total += sum(len(name) + len(record) for name, record in client.hgetall(key).items())
        else:
            total += sum(len(member) for member in client.zrange(key, 0, -1))
    return total


def test_a_conversation_takes_storage_in_proportion_to_its_messages(
    saver: RedisSaver, client: Any, prefix: str
) -> None:
    first = conversation(saver, 40)
    after_40 = stored_bytes(client, prefix)
    whole = conversation(saver, 80)
    after_120 = stored_bytes(client, prefix)
    assert after_120 <= 1.5 * whole
    assert (after_120 - after_40) / (whole - first) <= 1.1 * after_40 / first


def test_reading_the_latest_checkpoint_takes_one_round_trip(saver: RedisSaver, client: Any) -> None:
    conversation(saver, 30)
    calls = "total_commands_processed"
    saver.get_tuple(config())
    before = client.info("stats")[calls]
    saver.get_tuple(config())
    # Commands of the script are counted too: the row, its writes, and one HMGET for each level of the tree.
    assert client.info("stats")[calls] - before < 16


# Cluster --------------------------------------------------------------------------------------------------------------


def test_every_operation_stays_in_one_slot(cluster_url: str, prefix: str) -> None:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    with RedisSaver.from_url(cluster_url, prefix=prefix, ttl=timedelta(hours=1), refresh_on_read=True) as saver:
        conversation(saver, 5)
        put(saver, {"a": "x" * 300}, config("{other}"), run_id="run")
        assert len(list(saver.list(None))) == 16
        saver.prune(["t"])
        saver.copy_thread("t", "another slot")
        assert len(list(saver.list(config("another slot")))) == 1
        saver.delete_for_runs(["run"])
        saver.delete_thread("t")
        saver.delete_thread("another slot")
        assert list(saver.list(None)) == []
