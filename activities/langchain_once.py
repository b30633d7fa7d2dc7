"""Tools of graphs that must not run twice: `retry: never` in their metadata, or in their extras.

A graph's tools are somewhere in its functions, where nobody can exchange them, and the superstep that a crash
interrupts runs its task again from the start. So what LangChain runs each tool with looks, inside of a lane's step,
whether the tool says so of itself; then it keeps in the step's journal that the call has begun, and what came of it.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# LangGraph's packages are typed, but have no marker that says so.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.errors import GraphBubbleUp

from laneway.activities.from_threads import wait_for
from laneway.activities.journal import UNKNOWN_OUTCOME, ToolJournal, shown_arguments
from laneway.errors import ConfigurationError
from laneway.history.records import UncertainCall
from laneway.history.stored_json import any_json, kind_of

__all__ = ["calls_once", "runs_once"]

T = TypeVar("T")

_STOPPED: Final = "~"
"""How the keys of calls end that an interrupt stopped: they are made again when it is answered."""
_guarded: list[bool] = []


def runs_once(tool: BaseTool) -> bool:
    """Whether a tool says of itself that it must not run twice.

    Raises:
        ConfigurationError: it says something else there.
    """
    for said in (tool.metadata, tool.extras):
        retry: object = (said or {}).get("retry")
        if retry not in (None, "never"):
            raise ConfigurationError(f"tool {tool.name!r} has {retry!r} as its metadata's retry: give 'never'")
        if retry == "never":
            return True
    return False


@dataclass(frozen=True)
class _Calls:
    """The calls of one step."""

    journal: ToolJournal
    serde: SerializerProtocol
    loop: asyncio.AbstractEventLoop

    def key(self, tool: BaseTool, given: object, call_id: str | None) -> tuple[str, bytes]:
        """Names a call; and what it is called with."""
        arguments = any_json(given, fallback=kind_of)
        key = self.journal.key(call_id or "", tool.name, arguments)
        stops = 0
        while self.journal.finished(f"{key}{_STOPPED}{stops}") is not None:
            stops += 1
        return f"{key}{_STOPPED}{stops}", arguments

    def earlier(self, key: str) -> tuple[bool, Any]:
        """Whether the call has finished, and with what."""
        kept = self.journal.finished(f"{key}=")
        if kept is None:
            return False, None
        kind, _, blob = kept.partition(b"|")
        return True, self.serde.loads_typed((kind.decode(), blob))

    async def may_begin(self, key: str, tool: BaseTool, call_id: str | None, arguments: bytes) -> bool:
        """Note that the call begins; False where it had begun before, and nobody knows what came of it."""
        call = UncertainCall(tool.name, call_id or "", shown_arguments(arguments))
        return await self.journal.begin_once(key, call.to_json())

    async def finish(self, key: str, result: Any) -> None:
        """Keep what the call came to."""
        kind, blob = self.serde.dumps_typed(result)
        await self.journal.finish(f"{key}=", kind.encode() + b"|" + blob)

    async def stop(self, key: str) -> None:
        """Note that the call stopped by itself, to go on later."""
        await self.journal.finish(key, b"")

    def wait(self, call: Coroutine[Any, Any, T], tool: BaseTool) -> T:
        """Have the step's loop do something for a thread."""
        return wait_for(
            call,
            self.loop,
            refusal=f"tool {tool.name!r} must not run twice, and is called synchronously in an asynchronous node: call "
            "it with ainvoke",
        )


_calls: ContextVar[_Calls | None] = ContextVar("laneway_calls_once", default=None)


@contextmanager
def calls_once(journal: ToolJournal, serde: SerializerProtocol) -> Generator[None]:
    """Inside, calls of tools that must not run twice go by the journal."""
    _guard()
    token = _calls.set(_Calls(journal, serde, asyncio.get_running_loop()))
    try:
        yield
    finally:
        _calls.reset(token)


def _guard() -> None:
    if _guarded:
        return
    _guarded.append(True)
    tools = cast("Any", BaseTool)
    tools.run, tools.arun = _sync(tools.run), _async(tools.arun)


def _sync(given: Any) -> Any:
    @wraps(given)
    def run(self: BaseTool, tool_input: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        calls = _calls.get()
        if calls is None or not runs_once(self):
            return given(self, tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        key, arguments = calls.key(self, tool_input, tool_call_id)
        known, result = calls.earlier(key)
        if known:
            return result
        if not calls.wait(calls.may_begin(key, self, tool_call_id, arguments), self):
            return _unknown(self, tool_call_id)
        try:
            result = given(self, tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        except GraphBubbleUp:
            calls.wait(calls.stop(key), self)
            raise
        calls.wait(calls.finish(key, result), self)
        return result

    return run


def _async(given: Any) -> Any:
    @wraps(given)
    async def arun(self: BaseTool, tool_input: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        calls = _calls.get()
        if calls is None or not runs_once(self):
            return await given(self, tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        key, arguments = calls.key(self, tool_input, tool_call_id)
        known, result = calls.earlier(key)
        if known:
            return result
        if not await calls.may_begin(key, self, tool_call_id, arguments):
            return _unknown(self, tool_call_id)
        try:
            result = await given(self, tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        except GraphBubbleUp:
            await calls.stop(key)
            raise
        await calls.finish(key, result)
        return result

    return arun


def _unknown(tool: BaseTool, call_id: str | None) -> object:
    text = UNKNOWN_OUTCOME.format(name=tool.name)
    return text if call_id is None else ToolMessage(text, tool_call_id=call_id, name=tool.name, status="error")
