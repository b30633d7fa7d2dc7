"""One step of a Pydantic AI run, so that the stepped run and the uninterrupted one are the same to the agent.

The hard fact: a run's position is in its messages, but its counters are not. `ctx.retry` of each tool, output retries,
`run_step`, usage, the prompt and the queue of enqueued messages live in the run and end with it. So each step stores
them beside the messages, opens a run on the stored history, puts them back, and runs the one graph node that is next.
The node is built anew rather than found by resuming, since resuming rewrites what it resumes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from pydantic_ai import CallToolsNode, ModelRequestNode
from pydantic_ai._agent_graph import build_run_context  # pyright: ignore[reportPrivateUsage]
from pydantic_ai._enqueue import PendingMessage  # pyright: ignore[reportPrivateUsage]
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage
from pydantic_graph import End

__all__ = ["Position", "RunState", "capture", "common_prefix", "next_node", "restore", "runs_tools"]

Position = Literal["request", "response"]
"""What comes next: sending the pending request, or acting on the history's trailing response."""


@dataclass
class RunState:
    """What a run holds besides its messages, as it is stored between two steps."""

    position: Position
    pending: ModelRequest | None
    usage: RunUsage
    run_step: int = 0
    output_retries: int = 0
    tools_step: int = 0
    tool_retries: dict[str, int] = field(default_factory=dict[str, int])
    tools_failed: list[str] = field(default_factory=list[str])
    tools_succeeded: list[str] = field(default_factory=list[str])
    tools_refused: list[str] = field(default_factory=list[str])
    max_tokens: int | None = None
    output_modes: dict[str, Any] = field(default_factory=dict[str, Any])
    queue: list[PendingMessage] = field(default_factory=list[PendingMessage])

    def to_json(self) -> bytes:
        return _state.dump_json(self, exclude_defaults=False)

    @classmethod
    def from_json(cls, blob: bytes) -> RunState:
        return _state.validate_json(blob)


_state: TypeAdapter[RunState] = TypeAdapter(RunState)

_Run = AgentRun[Any, Any]
_Node = Any


def next_node(state: RunState, history: Sequence[ModelMessage]) -> _Node:
    """The graph node that a stored run is at."""
    if state.position == "request":
        assert state.pending is not None
        return ModelRequestNode[Any, Any](request=state.pending)
    return CallToolsNode[Any, Any](cast("ModelResponse", history[-1]))


def restore(run: _Run, state: RunState, history: list[ModelMessage], *, prompt: Any, turn_id: str, base: int) -> None:
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
    deps.new_message_index = base
    context = replace(build_run_context(run.ctx), run_step=state.tools_step, retries=dict(state.tool_retries))
    # The manager carries its counts into the next step's own, as it does within one run.
    deps.tool_manager = replace(
        deps.tool_manager,
        ctx=context,
        failed_tools=set(state.tools_failed),
        succeeded_tools=set(state.tools_succeeded),
        availability_refused=set(state.tools_refused),
    )


def capture(run: _Run, node: _Node) -> RunState:
    """What a run holds before `node`, to be stored."""
    graph, manager = run.ctx.state, run.ctx.deps.tool_manager
    context = manager.ctx
    return RunState(
        position="request" if isinstance(node, ModelRequestNode) else "response",
        pending=cast("ModelRequest", node.request) if isinstance(node, ModelRequestNode) else None,
        usage=graph.usage,
        run_step=graph.run_step,
        output_retries=graph.output_retries_used,
        tools_step=context.run_step if context is not None else graph.run_step,
        tool_retries=dict(context.retries) if context is not None else {},
        tools_failed=sorted(manager.failed_tools),
        tools_succeeded=sorted(manager.succeeded_tools),
        tools_refused=sorted(manager.availability_refused),
        max_tokens=graph.last_max_tokens,
        output_modes=dict(graph.default_output_modes),
        queue=list(graph.pending_messages),
    )


def runs_tools(run: _Run, node: _Node) -> bool:
    """Whether `node` would run tools of the agent's, rather than only come to an output."""
    if not isinstance(node, CallToolsNode):
        return False
    manager = run.ctx.deps.tool_manager
    calls = cast("ModelResponse", node.model_response).tool_calls
    kinds = [manager.get_tool_def(call.tool_name) for call in calls]
    return any(kind is None or kind.kind != "output" for kind in kinds)


def common_prefix(stored: Sequence[ModelMessage], current: Sequence[ModelMessage]) -> int:
    """How many messages at the start of `current` are the stored ones: the same objects, or equal ones."""
    length = min(len(stored), len(current))
    for index in range(length):
        if stored[index] is not current[index] and stored[index] != current[index]:
            return index
    return length


def is_end(node: _Node) -> bool:
    """Whether a run is over."""
    return isinstance(node, End)
