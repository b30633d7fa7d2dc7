"""What a run of a Pydantic AI agent is given beside its own: journaled tools, and an ear for what it says.

The journal sits around the innermost call of a tool, so that everything the framework does around it (validation, retry
counters, hooks, usage) happens again when a finished call is answered from the journal, and comes out the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import PydanticSerializationError, to_json

from laneway.activities.archive import TurnArchive, too_large
from laneway.activities.exits import UserCodeStopped, stopped_itself
from laneway.activities.hooks import AfterTool, BeforeTool
from laneway.activities.journal import UNKNOWN_OUTCOME, ToolJournal, shown_arguments
from laneway.activities.pydantic_framing import FramingWatch
from laneway.activities.pydantic_run import JSON_FORM, CallQueue
from laneway.activities.pydantic_waiting import deferred_result, results_for
from laneway.activities.retries import SerializationFailed
from laneway.activities.turn_hooks import TurnHooks
from laneway.errors import ConfigurationError
from laneway.history.archival import READ_TOOL
from laneway.history.records import EventKind, UncertainCall
from laneway.history.requests import Answered
from laneway.history.stored_json import any_json, kind_of

__all__ = ["Emit", "LaneCapability", "ResultLimit", "StreamingLaneCapability"]

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


@dataclass
class _Deferred(_Effects):
    """A call that ran, and put off its result: it is not run again for that."""

    waits_for: Literal["approval", "external", "question"]
    metadata: dict[str, Any] | None
    kind: Literal["deferred"] = "deferred"


_Finished = _Returned | _ReturnedRich | _Raised | _Deferred
_finished: TypeAdapter[_Finished] = TypeAdapter(_Finished, config=JSON_FORM)


def _encode(tool: str, finished: _Finished) -> bytes:
    try:
        return _finished.dump_json(finished)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise SerializationFailed(
            f"tool {tool!r} returned what cannot be stored: {error}. Return JSON values, pydantic models or dataclasses"
        ) from error


@dataclass(frozen=True)
class ResultLimit:
    """How large a tool's result may be in history.

    Attributes:
        max_bytes: as JSON.
        archived: where a larger one is put; None where it fails the turn.
    """

    max_bytes: int
    archived: TurnArchive | None

    async def kept(self, tool: str, finished: _Finished) -> _Finished:
        """What of a result enters history.

        Raises:
            ToolOutputTooLarge: it is too large, and is not archived.
        """
        if isinstance(finished, _Deferred):
            return finished
        value: object
        if isinstance(finished, _Returned):
            value = finished.content
        elif isinstance(finished, _ReturnedRich):
            value = [finished.result.return_value, finished.result.content]
        else:
            value = finished.message
        try:
            stored = to_json(value, bytes_mode="base64", inf_nan_mode="constants")
        except (PydanticSerializationError, TypeError, ValueError, RecursionError):
            return finished  # refused by name, where it is journaled
        if len(stored) <= self.max_bytes:
            return finished
        if self.archived is None:
            raise too_large(tool, len(stored), self.max_bytes)
        text = await self.archived.instead_of(tool, stored)
        if isinstance(finished, _Raised):
            return replace(finished, message=text)
        return _Returned(text, queued=finished.queued)


@dataclass
class _JournaledToolset(WrapperToolset[Any]):
    journal: ToolJournal
    emit: Emit
    answers: Sequence[Answered] = ()
    limit: ResultLimit | None = None
    hooks: TurnHooks = field(default_factory=TurnHooks)
    step: int = 0

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        arguments = any_json(tool_args, fallback=kind_of)
        # An approved call is another one than the one that asked for its approval.
        key = self.journal.key(ctx.tool_call_id or "", f"{name}!" if ctx.tool_call_approved else name, arguments)
        done = self.journal.finished(key)
        if done is not None:
            finished = _finished.validate_json(done)
            if isinstance(ctx.pending_messages, CallQueue):
                ctx.pending_messages.again(finished.queued)
            await self._tell(name, tool_args, ctx, finished, key)
            return self._answer(finished, ctx)
        reason = await self._ask(name, tool_args, ctx, key)
        shown = {"tool": name, "call_id": ctx.tool_call_id, "arguments": shown_arguments(arguments)}
        self.emit(EventKind.TOOL_CALLED, shown)
        if reason is None and _runs_once(tool):
            call = UncertainCall(name, ctx.tool_call_id or "", shown_arguments(arguments))
            if not await self.journal.begin_once(key, call.to_json()):
                reason = UNKNOWN_OUTCOME.format(name=name)
        finished = await self._call(name, tool_args, ctx, tool) if reason is None else _Raised("failed", reason)
        if self.limit is not None and name != READ_TOOL:
            finished = await self.limit.kept(name, finished)
        done = await self.journal.finish(key, _encode(name, finished))
        shown = {"tool": name, "call_id": ctx.tool_call_id, "outcome": _outcome(finished)}
        self.emit(EventKind.TOOL_FINISHED, shown)
        await self._tell(name, tool_args, ctx, finished, key)
        return self._answer(_finished.validate_json(done), ctx)

    async def _ask(self, name: str, arguments: dict[str, Any], ctx: RunContext[Any], key: str) -> str | None:
        """Why the tool may not run; None where it may."""
        if not self.hooks.has("before_tool"):
            return None
        call_id, place = ctx.tool_call_id or "", self.hooks.place
        event = BeforeTool(**place, step=self.step, tool=name, call_id=call_id, arguments=arguments)
        return await self.hooks.ask("before_tool", event, key=f"{self.hooks.episode}:{key}")

    async def _tell(
        self, name: str, arguments: dict[str, Any], ctx: RunContext[Any], finished: _Finished, key: str
    ) -> None:
        if not self.hooks.has("after_tool"):
            return
        call_id, place, outcome = ctx.tool_call_id or "", self.hooks.place, _outcome(finished)
        event = AfterTool(**place, step=self.step, tool=name, call_id=call_id, arguments=arguments, outcome=outcome)
        await self.hooks.ask("after_tool", event, key=f"{self.hooks.episode}:{key}")

    def _answer(self, finished: _Finished, ctx: RunContext[Any]) -> Any:
        match finished:
            case _Raised(error="retry", message=message):
                raise ModelRetry(message)
            case _Raised(message=message):
                raise ToolFailed(message)
            case _Deferred(waits_for="approval", metadata=metadata):
                raise ApprovalRequired(metadata)
            case _Deferred(waits_for=("external" | "question") as kind, metadata=metadata):
                # The framework asks for results once in a batch, before what was approved runs.
                later = deferred_result(ctx.tool_call_id, self.answers) if ctx.tool_call_approved else None
                if later is None:
                    raise CallDeferred(metadata, kind=kind)
                if later.kind == "error":
                    raise ToolFailed(later.reason or "")
                return later.value
            case _ReturnedRich(result=result):
                return result
            case _Returned(content=content):
                return content
            case _:
                raise AssertionError(finished)

    async def _call(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> _Finished:
        queued: list[PendingMessage] = []
        token = CallQueue.calling.set(queued)
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except ApprovalRequired as error:
            return _Deferred(waits_for="approval", metadata=error.metadata, queued=queued)
        except CallDeferred as error:
            return _Deferred(waits_for=error.kind, metadata=error.metadata, queued=queued)
        except ModelRetry as error:
            return _Raised("retry", error.message, queued=queued)
        except ToolFailed as error:
            return _Raised("failed", error.message, queued=queued)
        except (asyncio.CancelledError, SystemExit) as error:
            # A call is a task of its own: there either would take the step's task, or the whole worker, with it.
            if not stopped_itself(error):
                raise
            raise UserCodeStopped(f"tool {name!r}", error) from error
        finally:
            CallQueue.calling.reset(token)
        if isinstance(result, ToolReturn):
            return _ReturnedRich(cast("ToolReturn[Any]", result), queued=queued)
        return _Returned(result, queued=queued)


def _runs_once(tool: ToolsetTool[Any]) -> bool:
    retry: object = (tool.tool_def.metadata or {}).get("retry")
    if retry not in (None, "never"):
        raise ConfigurationError(f"tool {tool.tool_def.name!r} has {retry!r} as its metadata's retry: give 'never'")
    return retry == "never"


def _outcome(finished: _Finished) -> str:
    return "deferred" if isinstance(finished, _Deferred) else getattr(finished, "error", "returned")


class LaneCapability(AbstractCapability[Any]):
    """Gives a run its journaled tools, and the answers to what it waited for."""

    def __init__(
        self,
        journal: ToolJournal,
        emit: Emit,
        answers: Sequence[Answered] = (),
        limit: ResultLimit | None = None,
        hooks: TurnHooks | None = None,
        step: int = 0,
        framing: FramingWatch | None = None,
    ) -> None:
        super().__init__()
        self.limit = limit
        self.journal = journal
        self.emit = emit
        self.answers = answers
        self.hooks = hooks or TurnHooks()
        self.step = step
        self.framing = framing

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if self.framing is not None:
            self.framing.see(request_context)
        return request_context

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _JournaledToolset(toolset, self.journal, self.emit, self.answers, self.limit, self.hooks, self.step)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        return results_for(requests, self.answers)


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
