"""One step of a Pydantic AI run, so that the stepped run and the uninterrupted one are the same to the agent.

The hard fact: a run's position is in its messages, but its counters are not. `ctx.retry` of each tool, output retries,
`run_step`, usage, the prompt and the queue of enqueued messages live in the run and end with it. So each step stores
them beside the messages, opens a run on the stored history, puts them back, and runs the one graph node that is next.
The node is built anew rather than found by resuming, since resuming rewrites what it resumes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter, is_, ne
from typing import Any, Literal, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai import CallToolsNode, ModelRequestNode
from pydantic_ai._agent_graph import build_run_context
from pydantic_ai._enqueue import PendingMessage, PendingMessageQueue
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, repair_messages
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage
from pydantic_graph import End

__all__ = [
    "JSON_FORM",
    "CallQueue",
    "Position",
    "RunState",
    "as_loaded",
    "calls_of",
    "capture",
    "common_prefix",
    "is_end",
    "keep_stored",
    "next_node",
    "restore",
    "runs_tools",
]

JSON_FORM = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""How the framework itself writes messages: bytes as base64."""

Position = Literal["request", "response"]
"""What comes next: sending the pending request, or acting on the history's trailing response."""


@dataclass
class RunState:
    """What a run holds besides its messages, as it is stored between two steps.

    Attributes:
        base: how many of the stored messages are those of earlier turns, to be read as the framework reads a history;
            0 where this turn has written the history anew.
        live: see `pydantic_editing.Continuity`.
        prefix, framing: see `pydantic_growth.Growth`.
        usage_before: with a trailing response, the usage before it was asked for.
    """

    position: Position
    pending: ModelRequest | None
    usage: RunUsage
    usage_before: RunUsage | None = None
    base: int = 0
    live: int = 0
    prefix: str | None = None
    framing: int = 0
    run_step: int = 0
    output_retries: int = 0
    tools_step: int = 0
    tool_retries: dict[str, int] = field(default_factory=dict[str, int])
    tools_failed: list[str] = field(default_factory=list[str])
    tools_succeeded: list[str] = field(default_factory=list[str])
    tools_refused: list[str] = field(default_factory=list[str])
    max_tokens: int | None = None
    output_modes: dict[str, Any] = field(default_factory=dict[str, Any])
    first_tools: list[str] | None = None
    queue: list[PendingMessage] = field(default_factory=list[PendingMessage])

    def to_json(self) -> bytes:
        return _state.dump_json([self])

    @classmethod
    def from_json(cls, blob: bytes) -> RunState:
        return _state.validate_json(blob)[0]


# A list, because the form of a dataclass by itself cannot be set from outside.
_state: TypeAdapter[list[RunState]] = TypeAdapter(list[RunState], config=JSON_FORM)

_kind_of = attrgetter("kind")
_Run = AgentRun[Any, Any]
_Node = Any


def next_node(state: RunState, history: Sequence[ModelMessage]) -> _Node:
    """The graph node that a stored run is at."""
    if state.position == "request":
        assert state.pending is not None
        return ModelRequestNode[Any, Any](request=state.pending)
    return CallToolsNode[Any, Any](cast("ModelResponse", history[-1]))


async def restore(run: _Run, state: RunState, history: list[ModelMessage], *, prompt: Any, turn_id: str) -> None:
    """Put a stored run's counters into a run that was just opened and has run no node."""
    graph, deps = run.ctx.state, run.ctx.deps
    graph.message_history = history
    graph.run_id = turn_id
    graph.run_step = state.run_step
    graph.output_retries_used = state.output_retries
    graph.last_max_tokens = state.max_tokens
    graph.default_output_modes.update(state.output_modes)
    graph.pending_messages.extend(state.queue)
    deps.prompt = prompt
    deps.established_tool_names = None if state.first_tools is None else set(state.first_tools)
    manager = deps.tool_manager
    context = replace(build_run_context(run.ctx), run_step=state.tools_step, retries=dict(state.tool_retries))
    if state.position == "response":
        # The step's tools were made ready before its request, by a worker that may be gone: dynamic toolsets and what
        # prepares a tool are asked again, and are told what they were told then.
        context = replace(
            context,
            usage=state.usage_before or graph.usage,
            messages=history[:-1],
            retry=state.output_retries,
            max_retries=manager.default_max_retries,
        )
        manager = await manager.for_run_step(context)
        manager.ctx = replace(context, usage=graph.usage, messages=graph.message_history, tool_manager=manager)
    else:
        # The manager carries its counts into the next step's own, as it does within one run.
        manager = replace(manager, ctx=context)
    manager.failed_tools = set(state.tools_failed)
    manager.succeeded_tools = set(state.tools_succeeded)
    manager.availability_refused = set(state.tools_refused)
    deps.tool_manager = manager


def capture(run: _Run, node: _Node, *, base: int, usage_before: RunUsage | None = None) -> RunState:
    """What a run holds before `node`, to be stored."""
    graph, manager, first_tools = run.ctx.state, run.ctx.deps.tool_manager, run.ctx.deps.established_tool_names
    context = manager.ctx
    return RunState(
        position="request" if isinstance(node, ModelRequestNode) else "response",
        pending=node.request if isinstance(node, ModelRequestNode) else None,
        usage=graph.usage,
        usage_before=usage_before,
        base=base,
        run_step=graph.run_step,
        output_retries=graph.output_retries_used,
        tools_step=context.run_step if context is not None else graph.run_step,
        tool_retries=dict(context.retries) if context is not None else {},
        tools_failed=sorted(manager.failed_tools),
        tools_succeeded=sorted(manager.succeeded_tools),
        tools_refused=sorted(manager.availability_refused),
        max_tokens=graph.last_max_tokens,
        output_modes=dict(graph.default_output_modes),
        first_tools=None if first_tools is None else sorted(first_tools),
        queue=list(graph.pending_messages),
    )


def calls_of(run: _Run, node: _Node) -> list[str]:
    """The ids of the calls of tools, those that make the output not among them, that `node` is about to make."""
    if not isinstance(node, CallToolsNode):
        return []
    manager = run.ctx.deps.tool_manager
    calls = ((call.tool_call_id, manager.get_tool_def(call.tool_name)) for call in node.model_response.tool_calls)
    return [call_id for call_id, tool in calls if tool is not None and tool.kind != "output"]


def runs_tools(run: _Run, node: _Node) -> bool:
    """Whether `node` would run tools of the agent's, rather than only come to an output."""
    if not isinstance(node, CallToolsNode):
        return False
    manager = run.ctx.deps.tool_manager
    calls = node.model_response.tool_calls
    kinds = [manager.get_tool_def(call.tool_name) for call in calls]
    return any(kind is None or kind.kind != "output" for kind in kinds)


def as_loaded(history: Sequence[ModelMessage], base: int) -> list[ModelMessage]:
    """A stored history as the framework has it in a run.

    It reads the messages of earlier turns in its normal form, in which a turn's last tool results and the prompt after
    them are one request, and appends the turn's own as they are. Stored are both as they were made: so entries never
    change, and what was read is not taken for an edit.
    """
    earlier = history[:base]
    kinds = list(map(_kind_of, earlier))
    if all(map(ne, kinds, islice(kinds, 1, None))):
        # Nothing to merge, and nothing else to do in what the framework itself wrote: its own pass is slow.
        return list(history)
    return [*repair_messages(earlier, repair_last_response=False), *history[base:]]


def keep_stored(stored: Sequence[ModelMessage], current: list[ModelMessage]) -> None:
    """Put stored messages back in place of ones that differ by nothing but when a system prompt was asked for."""
    for index, (old, new) in enumerate(zip(stored, current, strict=False)):
        if old is not new and isinstance(old, ModelRequest) and isinstance(new, ModelRequest):
            parts = [
                replace(part, timestamp=before.timestamp)
                if isinstance(part, SystemPromptPart) and isinstance(before, SystemPromptPart)
                else part
                for before, part in zip(old.parts, new.parts, strict=False)
            ]
            if len(old.parts) == len(new.parts) and old == replace(new, parts=parts):
                current[index] = old


def common_prefix(stored: Sequence[ModelMessage], current: Sequence[ModelMessage]) -> int:
    """How many messages at the start of `current` are the stored ones: the same objects, or equal ones."""
    length = min(len(stored), len(current))
    if all(map(is_, stored, current)):
        return length
    for index in range(length):
        if stored[index] is not current[index] and stored[index] != current[index]:
            return index
    return length


def is_end(node: _Node) -> bool:
    """Whether a run is over."""
    return isinstance(node, End)


class CallQueue(PendingMessageQueue):
    """A run's queue of enqueued messages, which knows the tool call that enqueued each.

    A call that is answered from the journal does not run, so what it had enqueued has to be known.
    """

    calling: ContextVar[list[PendingMessage] | None] = ContextVar("laneway_calling", default=None)

    def append(self, pending: PendingMessage) -> None:
        super().append(pending)
        mine = self.calling.get()
        if mine is not None:
            mine.append(pending)

    def again(self, messages: Iterable[PendingMessage]) -> None:
        """Enqueue what a finished call had enqueued."""
        for pending in messages:
            super().append(pending)
