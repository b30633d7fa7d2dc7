"""Tool servers of an agent that a worker holds connections to: which of them may have gone, and how they come back.

A plain run connects anew, and so never meets the end of an earlier connection. A worker connects once for all of its
steps, so what became of a connection since its last use is looked after here: before a step, where it failed its last
request or was quiet for long, it is tried, and made anew where the server does not answer. What fails for want of a
server is told apart from what a server answers: the step is tried again, as a model request is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from laneway.activities.retries import TransientFailure

__all__ = ["ServerWatch", "ToolServers", "connected", "told_apart"]

_log = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 10.0
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_LASTING: Final = (FileNotFoundError, NotADirectoryError, PermissionError)
"""How a command that is no server fails."""
_BROKEN: Final = frozenset({"TransportError", "ClosedResourceError", "BrokenResourceError", "EndOfStream"})
"""How errors of connections are called by the libraries beneath a client, which are not all installed everywhere."""
_CLOSED_CODES: Final = frozenset({-32000, -32001})
"""MCP's codes for a connection that has closed, and for a request that took too long."""
_CLOSED: Final = ("Session task completed", "Client is not connected", "Server session was closed")
"""How FastMCP's client says the same, in errors of no type of their own."""


@dataclass(eq=False)
class _Server:
    """What is known of the connection to a server, a `MCPToolset` of the agent's.

    Attributes:
        toolset: it.
        heard: when it answered last, on the monotonic clock.
        is_suspect: whether its last request failed otherwise than by an answer of its own.
        calls: how many of its tools are being called.
        is_ours: whether the connection was made here, in place of the one that the agent had made.
    """

    toolset: Any
    heard: float
    is_suspect: bool = False
    calls: int = 0
    is_ours: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def answered(self) -> None:
        self.heard, self.is_suspect = time.monotonic(), False

    def is_in_doubt(self) -> bool:
        # One that works on a call may have nothing to say for long.
        return self.is_suspect or (not self.calls and time.monotonic() - self.heard > _QUIET_SECONDS)

    async def mend(self) -> None:
        async with self.lock:
            if not self.is_in_doubt() or not self.toolset.is_running:
                return
            client = self.toolset.client
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await client.list_tools()
            except TimeoutError:
                if self.calls:
                    return  # it is busy with them, and they would be cut off
            except Exception:
                _log.info("the connection to %s has ended", self.toolset.label, exc_info=True)
            else:
                self.answered()
                return
            with suppress(Exception):
                await client.close()
            self.is_suspect, self.is_ours = True, True
            await client.__aenter__()
            # A server that was started again may have other tools.
            self.toolset._invalidate_tools_cache()
            self.answered()


class ToolServers:
    """The tool servers that an agent's runs have asked."""

    def __init__(self) -> None:
        self._servers: dict[int, _Server] = {}

    def of(self, toolset: Any) -> _Server:
        """What is known of a server."""
        found = self._servers.get(id(toolset))
        if found is None:
            found = self._servers[id(toolset)] = _Server(toolset, time.monotonic())
        return found

    async def mend(self) -> None:
        """Connect anew to servers whose connection has ended.

        Raises:
            TransientFailure: one does not answer.
        """
        for server in list(self._servers.values()):
            if not server.toolset.is_running:
                # A run's own, which ended with it.
                del self._servers[id(server.toolset)]
                continue
            try:
                await server.mend()
            except Exception as error:
                raise told_apart(error) from error

    async def close(self) -> None:
        """End the connections that were made here."""
        for server in self._servers.values():
            if server.is_ours:
                with suppress(Exception):
                    await server.toolset.client.close()
        self._servers.clear()


@asynccontextmanager
async def connected(agent: AbstractAgent[Any, Any], servers: ToolServers) -> AsyncGenerator[None]:
    """Have an agent's servers connected.

    Raises:
        TransientFailure: one cannot be reached, and may be there at another attempt.
    """
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        # Entered and left by one task, since tool servers' cancel scopes ask for it.
        try:
            async with agent:
                ready.set_result(None)
                await done.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    holder = asyncio.create_task(hold(), name="laneway-agent")
    try:
        try:
            await ready
        except Exception as error:
            told = told_apart(error)
            if told is error:
                raise
            raise told from error
        yield
    finally:
        done.set()
        try:
            await holder
        except Exception:
            # Nobody asks it any more; what a connection ended with was told to those who did.
            _log.warning("agent %r: disconnecting failed", agent.name, exc_info=True)
        await servers.close()


def told_apart(error: Exception) -> Exception:
    """A `TransientFailure` where a server may be there again at another attempt, else the error itself."""
    return TransientFailure(error) if _is_passing(error) else error


def _is_passing(error: BaseException) -> bool:
    """Whether a failure to reach a server is one that another attempt may not meet."""
    for one in _within(error):
        if isinstance(one, _LASTING):
            return False
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            return status in _TRANSIENT_STATUS or status >= 500
        if isinstance(one, ConnectionError | TimeoutError) or any(
            kind.__name__ in _BROKEN for kind in type(one).__mro__
        ):
            return True
        if getattr(getattr(one, "error", None), "code", None) in _CLOSED_CODES:
            return True
        if isinstance(one, RuntimeError) and str(one).startswith(_CLOSED):
            return True
    return False


def _within(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised for, and what it groups."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += cast("tuple[BaseException, ...]", getattr(one, "exceptions", ()))
        waiting += [cause for cause in (one.__cause__,) if cause is not None]


class ServerWatch(AbstractCapability[Any]):
    """Tells a run's failures for want of a server from others, and notes which server answers.

    Attributes:
        failure: what failed last for want of a server.
    """

    def __init__(self, servers: ToolServers) -> None:
        super().__init__()
        self._servers = servers
        self.failure: BaseException | None = None

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        module: Any = sys.modules.get("pydantic_ai.mcp")
        if module is None:
            return None  # nobody has imported what a server is made with

        def watched(leaf: AbstractToolset[Any]) -> AbstractToolset[Any]:
            return _Watched(leaf, self, self._servers.of(leaf)) if isinstance(leaf, module.MCPToolset) else leaf

        return toolset.visit_and_replace(watched)

    def told_apart(self, error: Exception) -> Exception:
        """What a step failed with: a `TransientFailure`, where it failed for want of a server."""
        return told_apart(error) if any(one is self.failure for one in _within(error)) else error


@dataclass
class _Watched(WrapperToolset[Any]):
    watch: ServerWatch
    server: _Server

    @property
    def id(self) -> str | None:
        return self.wrapped.id

    @property
    def label(self) -> str:
        return self.wrapped.label

    @property
    def tool_name_conflict_hint(self) -> str:
        return self.wrapped.tool_name_conflict_hint

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        try:
            return await super().get_tools(ctx)
        except Exception as error:
            self._failed(error)
            raise

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.server.calls += 1
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except (ModelRetry, ToolFailed) as error:
            # The framework tells the model of an end of the connection in the middle of a call, as of any answer.
            if error.__cause__ is not None and _is_passing(error.__cause__):
                self.server.is_suspect = True
            raise
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self.server.calls -= 1
        self.server.answered()
        return result

    def _failed(self, error: Exception) -> None:
        self.server.is_suspect = True
        self.watch.failure = error
