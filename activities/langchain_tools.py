"""Hooks around the tools of a graph, called in its tool nodes.

The hard fact: LangChain's callbacks are told of a tool call and cannot answer it. LangGraph's tool nodes can be given
a wrapper that does; a node has one already, if middleware wraps tools. So a step lends the graph copies of its tool
nodes, in which the hooks are asked inside of that wrapper, where what the tool will get is known. A tool that is run
anywhere else while there are hooks is stopped before it begins, rather than run unasked.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from copy import copy
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel

from laneway.activities.adapter import StepWork
from laneway.activities.hooks import AfterTool, BeforeTool
from laneway.activities.journal import shown_arguments
from laneway.activities.langchain_graphs import Graph
from laneway.errors import HookError, LanewayError
from laneway.history.records import EventKind
from laneway.history.stored_json import any_json, kind_of

__all__ = ["HookStopped", "ToolGate"]

_ADMITTED: Final[ContextVar[bool]] = ContextVar("laneway_tool_admitted", default=False)
"""Whether what runs is a tool whose hooks were asked, or something that it does."""

_Execute: TypeAlias = Callable[[ToolCallRequest], Awaitable[Any]]


class HookStopped(BaseException):
    """A hook failed, and the turn with it.

    Not an `Exception`, of which tool nodes make a message for the model.

    Args:
        error: what the turn fails as.
    """

    def __init__(self, error: LanewayError) -> None:
        super().__init__(str(error))
        self.error = error


class ToolGate:
    """Asks hooks before the tool calls of a superstep, and tells them after it what came of the calls.

    Args:
        work: the step.
    """

    def __init__(self, work: StepWork[Any]) -> None:
        self._work = work
        self._named: Counter[str] = Counter()
        self._notes: dict[str, AfterTool] = {}
        # What earlier attempts ran is not run again, and is told of all the same.
        while (note := work.journal.finished(f"h{len(self._notes) + 1}")) is not None:
            key, fields = json.loads(note)
            self._notes[key] = self._after(fields)
        self._recorded = len(self._notes)
        self.watch = _ToolWatch()

    def guarded(self, graph: Graph) -> Graph:
        """The graph with its tool nodes, and those of its subgraphs, guarded. The given one is not changed."""
        mine = copy(graph)
        mine.nodes = {
            name: node.copy({"bound": bound}) if (bound := self._bound(node.bound)) is not node.bound else node
            for name, node in graph.nodes.items()
        }
        return mine

    def _bound(self, bound: Any) -> Any:
        if isinstance(bound, ToolNode):
            return self._tool_node(bound)
        return self.guarded(bound) if isinstance(bound, Pregel) else bound

    def _tool_node(self, node: ToolNode) -> ToolNode:
        own, own_sync = node._awrap_tool_call, node._wrap_tool_call

        async def wrap(request: ToolCallRequest, execute: _Execute) -> Any:
            async def guarded(request: ToolCallRequest) -> Any:
                return await self._call(request, execute)

            if own is not None:
                return await own(request, guarded)
            if own_sync is None:
                return await guarded(request)
            loop, calls = asyncio.get_running_loop(), list[Future[Any]]()

            def from_thread(request: ToolCallRequest) -> Any:
                calls.append(asyncio.run_coroutine_threadsafe(guarded(request), loop))
                return calls[-1].result()

            try:
                return await asyncio.to_thread(own_sync, request, from_thread)
            finally:
                for call in calls:
                    call.cancel()  # where the step is, what the thread waits for must not run on

        mine = copy(node)
        mine._awrap_tool_call = wrap
        mine.func, mine.afunc = mine._func, mine._afunc  # those that were copied are the given node's
        return mine

    async def _call(self, request: ToolCallRequest, execute: _Execute) -> Any:
        call, work = request.tool_call, self._work
        name, call_id = call["name"], call["id"] or ""
        arguments = any_json(call["args"], fallback=kind_of)
        key = self._key(request, name, call_id, arguments)
        fields: dict[str, Any] = {"step": work.step, "tool": name, "call_id": call_id, "arguments": call["args"]}
        reason = await self._ask(fields, key)
        answer: Any
        if reason is None:
            token = _ADMITTED.set(True)
            try:
                answer = await execute(request)
            finally:
                _ADMITTED.reset(token)
        else:
            shown = {"tool": name, "call_id": call_id, "arguments": shown_arguments(arguments)}
            work.emit(EventKind.TOOL_CALLED, shown)
            answer = ToolMessage(reason, name=name, tool_call_id=call_id, status="error")
            work.emit(EventKind.TOOL_FINISHED, {"tool": name, "call_id": call_id, "outcome": "failed"})
        is_failure = isinstance(answer, ToolMessage) and answer.status == "error"
        outcome = "failed" if is_failure else "returned"
        await self._note(key, {**fields, "arguments": json.loads(arguments), "outcome": outcome})
        return answer

    def _key(self, request: ToolCallRequest, name: str, call_id: str, arguments: bytes) -> str:
        """Names a call, the same in each attempt: LangGraph's name of the task is in it."""
        task = str((request.runtime.config.get("configurable") or {}).get("checkpoint_ns", ""))
        digest = blake2b(f"{task}\0{name}\0".encode("utf-8", "surrogatepass") + arguments, digest_size=8)
        key = f"{call_id}:{digest.hexdigest()}"
        self._named[key] += 1
        return key if self._named[key] == 1 else f"{key}:{self._named[key]}"

    def _after(self, fields: Mapping[str, Any]) -> AfterTool:
        whole: dict[str, Any] = {**self._work.hooks.place, **fields}
        return AfterTool(**whole)

    async def _ask(self, fields: Mapping[str, Any], key: str) -> str | None:
        hooks = self._work.hooks
        if not hooks.has("before_tool"):
            return None
        whole: dict[str, Any] = {**hooks.place, **fields}
        event = BeforeTool(**whole)
        try:
            return await hooks.ask("before_tool", event, key=f"{hooks.episode}:{key}")
        except LanewayError as error:
            raise HookStopped(error) from error

    async def _note(self, key: str, fields: Mapping[str, Any]) -> None:
        """Keep what came of a call for those who are told of it."""
        hooks = self._work.hooks
        if not hooks.has("after_tool") or key in self._notes:
            return
        self._notes[key] = self._after(fields)
        self._recorded += 1
        await self._work.journal.finish(f"h{self._recorded}", json.dumps([key, fields]).encode())

    async def tell(self) -> None:
        """Tell of the calls of a superstep, all of which are kept by now.

        Raises:
            HookError: a hook failed.
        """
        hooks = self._work.hooks
        for key, event in self._notes.items():
            await hooks.ask("after_tool", event, key=f"{hooks.episode}:{key}")


class _ToolWatch(BaseCallbackHandler):
    """Stops a tool that is run where its hooks were not asked."""

    raise_error = True
    run_inline = False  # LangChain forgets to tell inline handlers that come after one that raises

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        if _ADMITTED.get():
            return
        tool = cast("Mapping[str, Any]", serialized or {}).get("name") or kwargs.get("name") or "tool"
        raise HookStopped(
            HookError(
                f"there are hooks around tools, and {tool!r} is run outside of the graph's tool nodes, where none can "
                "be called: run it in a ToolNode, or leave the hooks out. It was not run"
            )
        )
