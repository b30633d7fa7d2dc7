"""What a LangGraph conversation takes in storage, and how long its turns take, with each checkpoint saver.

    python -m bench.saver            50, 150 and 500 turns
    python -m bench.saver --smoke    5 and 10

Each turn is a prompt of 40 bytes and a reply of 2 KB through a graph of one node. Two kinds of text: `words`, which
deflates about as prose does, and `noise`, which hardly does. "Own" is every message once, as LangGraph's serializer
writes it.
Savers that are not installed are left out: `pip install langgraph-checkpoint-sqlite langgraph-checkpoint-plainredis`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

from laneway.embedded import ValkeyServer
from laneway.langgraph import RedisSaver

REPLY_BYTES = 2048
_VOCABULARY_SIZE = 4000


@dataclass(frozen=True)
class Measured:
    """A saver on test.

    Attributes:
        saver: the saver.
        bytes_stored: what all that it has stored takes: keys, values, and the server's own overhead where it tells.
    """

    saver: BaseCheckpointSaver[Any]
    bytes_stored: Callable[[], int]


def words(chance: random.Random) -> Callable[[], str]:
    """Text of made-up words, the frequent ones short, as in a language."""
    letters = "etaoinshrdlucmfw"
    vocabulary = ["".join(chance.choices(letters, k=2 + at // 500)) for at in range(_VOCABULARY_SIZE)]
    weights = [1 / (at + 10) for at in range(_VOCABULARY_SIZE)]

    def reply() -> str:
        return " ".join(chance.choices(vocabulary, weights, k=REPLY_BYTES // 3))[:REPLY_BYTES]

    return reply


def noise(chance: random.Random) -> Callable[[], str]:
    """Random text."""
    return lambda: base64.b64encode(chance.randbytes(REPLY_BYTES)).decode()[:REPLY_BYTES]


@contextmanager
def redis_saver(url: str) -> Iterator[Measured]:
    prefix = f"bench-{uuid4().hex[:8]}"
    with RedisSaver.from_url(url, prefix=prefix) as saver, redis.Redis.from_url(url) as client:
        yield Measured(saver, lambda: used_memory(client, f"{prefix}:*"))


@contextmanager
def memory_saver(_: str) -> Iterator[Measured]:
    saver = InMemorySaver()

    def bytes_stored() -> int:
        blobs = sum(len(data) for _, data in saver.blobs.values())
        writes = sum(len(value[1]) for of in saver.writes.values() for *_, value, _ in of.values())
        rows = (row for namespaces in saver.storage.values() for rows in namespaces.values() for row in rows.values())
        return blobs + writes + sum(len(checkpoint[1]) + len(metadata[1]) for checkpoint, metadata, _ in rows)

    yield Measured(saver, bytes_stored)


@contextmanager
def sqlite_saver(_: str) -> Iterator[Measured]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoints.db"
        with SqliteSaver.from_conn_string(str(path)) as saver:

            def bytes_stored() -> int:
                saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return path.stat().st_size

            yield Measured(saver, bytes_stored)


@contextmanager
def plainredis_saver(url: str) -> Iterator[Measured]:
    from langgraph_checkpoint_plainredis import RedisSaver as PlainRedisSaver  # pyright: ignore[reportMissingImports]

    with redis.Redis.from_url(f"{url}/1") as client:
        yield Measured(PlainRedisSaver(client), lambda: used_memory(client, "*"))
        client.flushdb()


SAVERS = {
    "RedisSaver": redis_saver,
    "InMemorySaver": memory_saver,
    "SqliteSaver": sqlite_saver,
    "PlainRedisSaver": plainredis_saver,
}


def used_memory(client: redis.Redis, pattern: str) -> int:
    """What the server's memory holds for keys, its own overhead included."""
    return sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(pattern, count=1000))


def measure(name: str, url: str, turns: list[int], text: Callable[[random.Random], Callable[[], str]]) -> None:
    reply = text(random.Random(7))
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)

    def model(state: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [AIMessage(reply(), id=f"lc_run--{uuid4()}")]}

    with ExitStack() as stack:
        try:
            measured = stack.enter_context(SAVERS[name](url))
        except ImportError:
            print(f"{name:16} is not installed")
            return
        builder: Any = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_edge(START, "model")
        graph = builder.compile(checkpointer=measured.saver)
        config: Any = {"configurable": {"thread_id": "conversation"}}
        state: dict[str, Any] = {}
        for turn in range(1, turns[-1] + 1):
            begun = time.perf_counter()
            state = graph.invoke({"messages": [HumanMessage(f"prompt {turn}".ljust(40, "."))]}, config)
            took = time.perf_counter() - begun
            if turn in turns:
                own = sum(len(serializer.dumps_typed(message)[1]) for message in state["messages"])
                stored = measured.bytes_stored()
                begun = time.perf_counter()
                measured.saver.get_tuple(config)
                read = time.perf_counter() - begun
                print(
                    f"{name:16} {text.__name__:6} {turn:5} turns  own {own:>9,}  stored {stored:>12,}  "
                    f"×{stored / own:<7.2f} turn {took * 1000:7.1f} ms  read {read * 1000:7.1f} ms",
                    flush=True,
                )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few turns, only to see that it runs")
    parser.add_argument("--savers", nargs="*", choices=list(SAVERS), default=list(SAVERS))
    parser.add_argument("--turns", nargs="*", type=int, default=[50, 150, 500], help="after how many to measure")
    options = parser.parse_args()
    turns = [5, 10] if options.smoke else sorted(options.turns)
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        await server.start()
        try:
            for text in (words, noise):
                for name in options.savers:
                    await asyncio.to_thread(measure, name, f"redis://{server.address}", turns, text)
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
