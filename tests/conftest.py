"""What tests share: the two servers, and applications that run on them.

The servers are started once in each test process, when the first test asks for them. Each test has a task queue, a key
prefix and a conversation of its own on them, so tests do not meet, and what one leaves behind no other sees.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.bench import Bench

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from laneway import LocalStack, Settings
    from laneway.history.store import HistoryStore

    from tests.support.preloaded import Preloaded
    from tests.support.workers import WorkerNursery

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # Started in a shell's background, this process ignores Ctrl-C, and so would every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Everything is imported where it is used: tests that need no server do not wait for these.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: the processes that share the tests then end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Reports on their way to the process that writes them: text that has no form in UTF-8 would end the whole run."""
    return _printable((yield))


def _printable(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {name: _printable(one) for name, one in cast("dict[str, object]", value).items()}
        case list() | tuple():
            return type(value)(map(_printable, cast("Iterable[object]", value)))
        case _:
            return value


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(stack_dir: Path) -> AsyncIterator[LocalStack]:
    """Temporal and Valkey, shared by all tests of this process."""
    from laneway import LocalStack

    async with LocalStack(stack_dir) as running:
        yield running


@pytest.fixture
def settings(stack: LocalStack) -> Settings:
    """The way to the servers, on a task queue and with a key prefix of the test's own.

    A running step hears of its cancellation with its next heartbeat: these come often, or tests would wait for them.
    """
    name = uuid4().hex[:12]
    own = {"task_queue": f"test-{name}", "redis_prefix": f"test-{name}"}
    return stack.settings.model_copy(update={**own, "heartbeat_interval": timedelta(seconds=0.1)})


@pytest.fixture
def conversation_id() -> str:
    """A conversation's id that no other test has."""
    return f"conversation-{uuid4().hex[:12]}"


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    """A connection to Valkey that answers bytes."""
    from laneway.connect import connect_redis

    connection = await connect_redis(settings)
    yield connection
    await connection.aclose()


@pytest.fixture
def store(settings: Settings, redis: Redis) -> HistoryStore:
    """The store as the test's workers and clients see it."""
    from laneway.history.store import HistoryStore

    return HistoryStore(redis, prefix=settings.redis_prefix)


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    """Starts workers and clients: `client = await bench.serve({"agent": PydanticAdapter(agent)})`."""
    running = Bench(settings)
    yield running
    await running.close()


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    """Runs modules in processes of their own that have the frameworks imported."""
    from tests.support.preloaded import Preloaded

    running = Preloaded()
    yield running
    running.close()


@pytest.fixture(scope="session")
def nursery() -> Iterator[WorkerNursery]:
    """Makes workers that are processes of their own, to be killed."""
    from tests.support.workers import WorkerNursery

    running = WorkerNursery()
    yield running
    running.close()


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """The settings of a test that kills workers: the silence of one counts as its death after a second."""
    return settings.model_copy(update={"heartbeat_timeout": timedelta(seconds=1)})


@pytest.fixture
def own_stack(tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[LocalStack]]:
    """Makes a stack of the test's own, for tests that stop servers or empty them."""

    @asynccontextmanager
    async def run() -> AsyncIterator[LocalStack]:
        from laneway import LocalStack

        async with LocalStack(tmp_path / "stack") as running:
            yield running

    return run
