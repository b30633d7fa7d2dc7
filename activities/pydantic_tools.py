"""What a run of a Pydantic AI agent is given beside its own: journaled tools, and an ear for what it says.

The journal sits around the innermost call of a tool, so that everything the framework does around it (validation, retry
counters, hooks, usage) happens again when a finished call is answered from the journal, and comes out the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from pydantic_ai._enqueue import PendingMessage
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    AgentStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolReturn,
    ToolReturnContent,
)
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import PydanticSerializationError, to_json

from laneway.activities.journal import ToolJournal
from laneway.activities.pydantic_run import JSON_FORM, CallQueue
from laneway.activities.retries import SerializationFailed
from laneway.history.records import EventKind

__all__ = ["Emit", "LaneCapability", "StreamingLaneCapability"]

Emit = Callable[[EventKind, Mapping[str, object]], None]


@dataclass(kw_only=True)
class _Effects:
    """What a call did to its run besides answering it."""

    queued: list[PendingMessage] = field(default_factory=list[PendingMessage])


@dataclass
class _Returned(_Effects):
    content: ToolReturnContent
    kind: Literal["returned"] = "returned"


@dataclass
class _ReturnedRich(_Effects):
    result: ToolReturn[Any]
    kind: Literal["returned_rich"] = "returned_rich"


@dataclass
class _Raised(_Effects):
    error: Literal["retry", "failed"]
    message: str
    kind: Literal["raised"] = "raised"


_Finished = _Returned | _ReturnedRich | _Raised
_finished: TypeAdapter[_Finished] = TypeAdapter(_Finished, config=JSON_FORM)


def _encode(tool: str, finished: _Finished) -> bytes:
    try:
        return _finished.dump_json(finished)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise SerializationFailed(
            f"tool {tool!r} returned what cannot be stored: {error}. Return JSON values, pydantic models or dataclasses"
        ) from error


@dataclass
class _JournaledToolset(WrapperToolset[Any]):
    journal: ToolJournal
    emit: Emit

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        arguments = to_json(tool_args, fallback=_kind_of, bytes_mode="base64", inf_nan_mode="constants")
        key = self.journal.key(ctx.tool_call_id or "", name, arguments)
        done = self.journal.finished(key)
        if done is not None:
            finished = _finished.validate_json(done)
            if isinstance(ctx.pending_messages, CallQueue):
                ctx.pending_messages.again(finished.queued)
            return _answer(finished)
        shown = {"tool": name, "call_id": ctx.tool_call_id, "arguments": arguments.decode()[:2000]}
        self.emit(EventKind.TOOL_CALLED, shown)
        finished = await self._call(name, tool_args, ctx, tool)
        done = await self.journal.finish(key, _encode(name, finished))
        outcome = getattr(finished, "error", "returned")
        self.emit(EventKind.TOOL_FINISHED, {"tool": name, "call_id": ctx.tool_call_id, "outcome": outcome})
        return _answer(_finished.validate_json(done))

    async def _call(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> _Finished:
        queued: list[PendingMessage] = []
        token = CallQueue.calling.set(queued)
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except (ApprovalRequired, CallDeferred):
            raise
        except ModelRetry as error:
            return _Raised("retry", error.message, queued=queued)
        except ToolFailed as error:
            return _Raised("failed", error.message, queued=queued)
        finally:
            CallQueue.calling.reset(token)
        if isinstance(result, ToolReturn):
            return _ReturnedRich(cast("ToolReturn[Any]", result), queued=queued)
        return _Returned(result, queued=queued)


def _kind_of(value: object) -> str:
    # Not `repr`: an object's address would make another key of the same call after a crash.
    return type(value).__qualname__


def _answer(finished: _Finished) -> Any:
    if isinstance(finished, _Raised):
        raise ModelRetry(finished.message) if finished.error == "retry" else ToolFailed(finished.message)
    return finished.result if isinstance(finished, _ReturnedRich) else finished.content


class LaneCapability(AbstractCapability[Any]):
    """Gives a run its journaled tools."""

    def __init__(self, journal: ToolJournal, emit: Emit) -> None:
        super().__init__()
        self.journal = journal
        self.emit = emit

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _JournaledToolset(toolset, self.journal, self.emit)


class StreamingLaneCapability(LaneCapability):
    """Says what the model says, as it comes. Its presence makes the framework stream each model request."""

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        async for event in stream:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ) if text:
                    self.emit(EventKind.TEXT_DELTA, {"text": text})
                case PartStartEvent(part=ThinkingPart(content=text)) if text:
                    self.emit(EventKind.THINKING_DELTA, {"text": text})
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
                    self.emit(EventKind.THINKING_DELTA, {"text": text})
                case _:
                    pass
            yield event
