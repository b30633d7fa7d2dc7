"""How `RedisSaver` asks Redis: one description of each question, asked by a synchronous or an asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.connection
import redis.retry
from redis import exceptions as redis_errors
from redis.backoff import ExponentialWithJitterBackoff
from redis.maint_notifications import MaintNotificationsConfig

from laneway.errors import ConfigurationError, ServiceUnavailable, StoreError, StoreFull
from laneway.history.given import check_text, refused
from laneway.langgraph_lua import Script

__all__ = ["Ask", "Link", "Page", "Steps"]

T = TypeVar("T")


class Ask(NamedTuple):
    """A question to Redis: a script with its keys and arguments, or the words of a command.

    Attributes:
        script: the script; None for a command.
        keys: what it declares.
        args: its arguments, or the command's words.
    """

    script: Script | None
    keys: tuple[str, ...]
    args: tuple[Any, ...]


class Page(NamedTuple):
    """Results that a generator of questions has ready for whoever runs it."""

    items: Sequence[Any]


Steps = Generator[Ask, Any, T]
"""A piece of work without I/O: it yields questions, is sent the answers, and returns its result."""


class Link:
    """A synchronous and an asynchronous client of one Redis, either of them made when it is first used.

    Asynchronous connections belong to their event loop, so each loop has a client of its own.

    Args:
        url: where Redis is; None where clients are given.
        client: a synchronous client, which its owner closes.
        async_client: an asynchronous one, likewise.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: redis.Redis | None = None,
        async_client: redis.asyncio.Redis | None = None,
    ) -> None:
        for name, given in (("client", client), ("async_client", async_client)):
            if given is not None and not hasattr(given, "execute_command"):
                raise refused(f"RedisSaver: {name}", given, "a client of redis-py")
            pool = getattr(given, "connection_pool", None)
            if pool is not None and pool.connection_kwargs.get("decode_responses"):
                raise ConfigurationError(
                    "RedisSaver stores bytes: make the client with decode_responses=False, or use RedisSaver.from_url"
                )
        if url is not None:
            check_text("RedisSaver: url", url, give="a URL, such as redis://localhost:6379/0")
            try:
                cast("Any", redis.connection).parse_url(url)  # which has no types
            except ValueError as error:
                raise ConfigurationError(f"RedisSaver: the url cannot be used: {error}") from None
        self._url = url
        self._client = client
        self._async_client = async_client
        self._owned: redis.Redis | None = None
        self._owned_async: WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = WeakKeyDictionary()
        self._lock = Lock()

    def run(self, steps: Steps[T]) -> T:
        """Do a piece of work with the synchronous client."""
        answer: Any = None
        try:
            while True:
                answer = self._ask(steps.send(answer))
        except StopIteration as done:
            return cast("T", done.value)

    async def arun(self, steps: Steps[T]) -> T:
        """Do a piece of work with the asynchronous client."""
        answer: Any = None
        try:
            while True:
                answer = await self._aask(steps.send(answer))
        except StopIteration as done:
            return cast("T", done.value)

    def pages(self, steps: Generator[Ask | Page, Any, None]) -> Iterator[Any]:
        """Do work that has results page by page, no faster than they are taken."""
        answer: Any = None
        while (step := _next(steps, answer)) is not None:
            if isinstance(step, Page):
                answer = None
                yield from step.items
            else:
                answer = self._ask(step)

    async def apages(self, steps: Generator[Ask | Page, Any, None]) -> AsyncIterator[Any]:
        """Do work that has results page by page, no faster than they are taken."""
        answer: Any = None
        while (step := _next(steps, answer)) is not None:
            if isinstance(step, Page):
                answer = None
                for item in step.items:
                    yield item
            else:
                answer = await self._aask(step)

    def _ask(self, ask: Ask) -> Any:
        client: Any = self._sync()
        with _explained():
            if ask.script is None:
                return client.execute_command(*ask.args)
            try:
                return client.evalsha(ask.script.sha, len(ask.keys), *ask.keys, *ask.args)
            except redis_errors.NoScriptError:
                return client.eval(ask.script.text, len(ask.keys), *ask.keys, *ask.args)

    async def _aask(self, ask: Ask) -> Any:
        client: Any = self._async()
        with _explained():
            if ask.script is None:
                return await client.execute_command(*ask.args)
            try:
                return await client.evalsha(ask.script.sha, len(ask.keys), *ask.keys, *ask.args)
            except redis_errors.NoScriptError:
                return await client.eval(ask.script.text, len(ask.keys), *ask.keys, *ask.args)

    def _sync(self) -> redis.Redis:
        if self._client is not None:
            return self._client
        if self._url is None:
            raise ConfigurationError(
                "this RedisSaver was given an asynchronous client only: use the graph's asynchronous methods, pass "
                "client= as well, or make the saver with RedisSaver.from_url"
            )
        with self._lock:
            if self._owned is None:
                self._owned = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
                    self._url, retry=redis.retry.Retry(_BACKOFF, _RETRIES), **_OPTIONS
                )
            return self._owned

    def _async(self) -> redis.asyncio.Redis:
        if self._async_client is not None:
            return self._async_client
        if self._url is None:
            raise ConfigurationError(
                "this RedisSaver was given a synchronous client only: use the graph's synchronous methods, pass "
                "async_client= as well, or make the saver with RedisSaver.from_url"
            )
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._owned_async.get(loop)
            if client is None:
                client = redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
                    self._url, retry=redis.asyncio.retry.Retry(_BACKOFF, _RETRIES), **_OPTIONS
                )
                self._owned_async[loop] = client
            return client

    def close(self) -> None:
        """Close the synchronous client that this link made."""
        with self._lock:
            client, self._owned = self._owned, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close what this link made for the running event loop, and the synchronous client."""
        with self._lock:
            client = self._owned_async.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
        self.close()


_BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=1.0)
_RETRIES = 5
"""A question that meets a lost connection is asked again: every script bears that."""
_OPTIONS: dict[str, Any] = {
    "decode_responses": False,
    "socket_timeout": 30.0,
    "socket_connect_timeout": 5.0,
    "health_check_interval": 15,
    "maint_notifications_config": MaintNotificationsConfig(enabled=False),
}


def _next(steps: Generator[Ask | Page, Any, None], answer: Any) -> Ask | Page | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


@contextmanager
def _explained() -> Generator[None]:
    """Errors of Redis, told apart by what can be done about them."""
    try:
        yield
    except redis_errors.OutOfMemoryError as error:
        raise StoreFull(f"Redis refused a write: {error}. Nothing was written; raise maxmemory or free some") from error
    except (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.NoPermissionError) as error:
        raise StoreError(f"Redis refused: {error}. Check the saver's URL and the user's permissions") from error
    except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError) as error:
        raise ServiceUnavailable(f"Redis does not answer: {error}. Check the saver's URL and the server") from error
    except redis_errors.ResponseError as error:
        if "OOM" in str(error):
            raise StoreFull(f"Redis refused a write: {error}. Nothing was written; free some memory") from error
        raise StoreError(f"Redis answered with an error: {error}") from error
    except redis_errors.RedisError as error:
        raise ServiceUnavailable(f"Redis failed: {error}. Check the saver's URL and the server") from error
