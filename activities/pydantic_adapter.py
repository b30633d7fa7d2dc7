"""Pydantic AI agents, unchanged, on lanes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import CallToolsNode
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserContent
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import TypeVar

from laneway.activities import pydantic_contract
from laneway.activities.adapter import Capability, RetryPolicy, StepResult, StepWork
from laneway.activities.pydantic_run import (
    JSON_FORM,
    CallQueue,
    RunState,
    as_loaded,
    capture,
    common_prefix,
    is_end,
    keep_stored,
    next_node,
    restore,
    runs_tools,
)
from laneway.activities.pydantic_tools import LaneCapability, StreamingLaneCapability
from laneway.activities.retries import SerializationFailed, TransientFailure
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.records import EventKind, TurnUsage

__all__ = ["PydanticAdapter"]

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)

_message: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage, config=JSON_FORM)
_prompt: TypeAdapter[str | list[UserContent]] = TypeAdapter(str | list[UserContent], config=JSON_FORM)

_TRANSIENT = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})


class PydanticAdapter(Generic[DepsT, OutputT]):
    """Runs a Pydantic AI agent on lanes.

    Args:
        agent: the agent, as it is. Its model, settings, tools and output types make the lane contract; its instructions
            do not, and can change while conversations run.
        deps: the dependencies that every run gets.
        deps_factory: makes a run's dependencies, once for each step, in place of `deps`; sync or async. It is given the
            conversation's id.
        usage_limits: the limits of each turn, as `agent.run` takes them.
        retry_policy: how model requests that failed on their way are retried. The provider SDKs' own retries are
            switched off in a worker, since they pay twice for an answer that was cut.
        stream: whether model requests are streamed, so that text is seen as it comes. None: where the model can.

    Raises:
        ConfigurationError: `agent` is no agent, or has no model, or both `deps` and `deps_factory` are given.
    """

    shortname = "pydantic_ai"

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        *,
        deps: DepsT = cast("Any", None),
        deps_factory: Callable[[str], Any] | None = None,
        usage_limits: UsageLimits | None = None,
        retry_policy: RetryPolicy | None = None,
        stream: bool | None = None,
    ) -> None:
        if not isinstance(cast("object", agent), AbstractAgent):
            raise ConfigurationError(
                f"PydanticAdapter takes a pydantic_ai.Agent, not {type(agent).__name__} ({agent!r})"
            )
        if agent.model is None:
            raise ConfigurationError(
                f"agent {agent.name or '(unnamed)'!r} has no model: give it one, since the model is part of the lane "
                "contract"
            )
        if deps is not None and deps_factory is not None:
            raise ConfigurationError("PydanticAdapter takes `deps` or `deps_factory`, not both")
        self.agent = agent
        self._deps = deps
        self._deps_factory = deps_factory
        self._usage_limits = usage_limits
        self._retry_policy = retry_policy or RetryPolicy()
        self._stream = stream

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"streaming"})

    @property
    def retry_policy(self) -> RetryPolicy:
        return self._retry_policy

    def contract(self) -> Mapping[str, object]:
        return pydantic_contract.contract_of(self.agent)

    # Messages ---------------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: object) -> bytes:
        if isinstance(prompt, str):
            if not prompt.strip():
                raise InvalidInput("the prompt is empty: give it some text")
        elif not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
            raise InvalidInput(
                f"the prompt is a {type(prompt).__name__}: Pydantic AI takes text, or a sequence of text, images and "
                "documents"
            )
        elif not prompt or all(isinstance(item, str) and not item.strip() for item in cast("Sequence[object]", prompt)):
            raise InvalidInput("the prompt is empty: give it some content")
        value: object = prompt if isinstance(prompt, str) else list(cast("Sequence[object]", prompt))
        try:
            return _prompt.dump_json(_prompt.validate_python(value))
        except (ValidationError, PydanticSerializationError, UnicodeError) as error:
            raise InvalidInput(f"Pydantic AI does not take this prompt: {error}") from error

    def decode_prompt(self, prompt: bytes) -> str | list[UserContent]:
        """The prompt that `encode_prompt` was given."""
        return _prompt.validate_json(prompt)

    def encode(self, message: ModelMessage) -> bytes:
        try:
            return _message.dump_json(message)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise SerializationFailed(
                f"a {type(message).__name__} cannot be stored: {error}. Tools and outputs must be JSON values, "
                "pydantic models or dataclasses"
            ) from error

    def decode(self, payload: bytes) -> ModelMessage:
        return _message.validate_json(payload)

    # Outputs ----------------------------------------------------------------------------------------------------------

    def output_of(self, message: ModelMessage) -> object:
        return _text_of(message)

    def decode_output(self, output: str) -> object:
        return self._output.validate_json(output)

    @cached_property
    def _output(self) -> TypeAdapter[Any]:
        return TypeAdapter(pydantic_contract.output_type_of(self.agent))

    def _encode_output(self, output: object) -> str:
        try:
            return to_json(output, bytes_mode="base64").decode()
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise SerializationFailed(
                f"the output, a {type(output).__name__}, cannot be stored: {error}. Outputs must be JSON values, "
                "pydantic models or dataclasses"
            ) from error

    # Steps ------------------------------------------------------------------------------------------------------------

    async def step(self, work: StepWork[ModelMessage]) -> StepResult[ModelMessage]:
        prompt = self.decode_prompt(work.prompt)
        state = None if work.state is None else RunState.from_json(work.state)
        base = work.base_length if state is None else state.base
        history = as_loaded(work.history, base)
        streaming = self._streams()
        capability = (StreamingLaneCapability if streaming else LaneCapability)(work.journal, work.emit)
        async with self.agent.iter(
            prompt if state is None else None,
            message_history=history,
            # A run id that the history holds already is refused; the turn's own is put back below.
            run_id=work.turn_id if state is None else f"{work.turn_id}#{work.step}",
            conversation_id=work.conversation,
            deps=await self._make_deps(work.conversation),
            usage_limits=self._usage_limits,
            usage=None if state is None else state.usage,
            capabilities=[capability],
            infer_name=False,
        ) as run:
            _stop_sdk_retries(run.ctx.deps.model)
            run.ctx.state.pending_messages = CallQueue(run.ctx.state.pending_messages)
            if state is None:
                node: Any = await run.next(cast("Any", run.next_node))
                keep_stored(history, run.ctx.state.message_history)
            else:
                await restore(run, state, list(history), prompt=prompt, turn_id=work.turn_id)
                node = next_node(state, history)
            return await self._step(run, work, node, history, base=base, streaming=streaming)

    async def _step(
        self,
        run: AgentRun[DepsT, Any],
        work: StepWork[ModelMessage],
        node: Any,
        stored: Sequence[ModelMessage],
        *,
        base: int,
        streaming: bool,
    ) -> StepResult[ModelMessage]:
        if not isinstance(node, CallToolsNode):
            before = deepcopy(run.ctx.state.usage)
            try:
                node = await run.next(node)
            except ModelAPIError as error:
                raise _failure(error) from error
            messages = run.ctx.state.message_history
            kept = common_prefix(stored, messages)
            if not streaming and isinstance(node, CallToolsNode) and (text := _text_of(node.model_response)):
                work.emit(EventKind.TEXT_DELTA, {"text": text})
            if kept < len(stored) or runs_tools(run, node) or not isinstance(node, CallToolsNode):
                return self._unfinished(run, node, stored, base=base, usage_before=before)
            if not self._is_plain(run):
                # Code of the user's comes next: the answer must be safe before it.
                await work.stage(messages[kept:], capture(run, node, base=base, usage_before=before).to_json())
                stored = tuple(messages)
        node = await run.next(node)
        if not is_end(node):
            return self._unfinished(run, node, stored, base=base)
        output = node.data.output
        messages = run.ctx.state.message_history
        in_history = isinstance(output, str) and output == _text_of(messages[-1])
        kept = common_prefix(stored, messages)
        return StepResult(
            appended=messages[kept:] if kept == len(stored) else (),
            rewritten=None if kept == len(stored) else list(messages),
            state=b"",
            usage=_usage(run.usage),
            done=True,
            output=None if in_history else self._encode_output(output),
            output_in_history=in_history,
        )

    def _unfinished(
        self,
        run: AgentRun[DepsT, Any],
        node: Any,
        stored: Sequence[ModelMessage],
        *,
        base: int,
        usage_before: RunUsage | None = None,
    ) -> StepResult[Any]:
        messages = run.ctx.state.message_history
        kept = common_prefix(stored, messages)
        unchanged = kept == len(stored)
        return StepResult(
            appended=messages[kept:] if unchanged else (),
            rewritten=None if unchanged else list(messages),
            state=capture(run, node, base=base if unchanged else 0, usage_before=usage_before).to_json(),
            usage=_usage(run.usage),
        )

    def _is_plain(self, run: AgentRun[DepsT, Any]) -> bool:
        """Whether an answer becomes the output without any code of the user's: then the commit itself stages it."""
        deps = run.ctx.deps
        return self.agent.output_type is str and not deps.output_validators

    async def _make_deps(self, conversation: str) -> DepsT:
        if self._deps_factory is None:
            return self._deps
        made = self._deps_factory(conversation)
        return cast("DepsT", await made if inspect.isawaitable(made) else made)

    def _streams(self) -> bool:
        if self._stream is not None:
            return self._stream
        model = self.agent.model
        return not isinstance(model, Model) or all(_can_stream(inner) for inner in _models(model))

    # Resources --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the agent, so that its tool servers are connected once and not for each step."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = asyncio.Event()

        async def hold() -> None:
            # Entered and left by one task, since tool servers' cancel scopes ask for it.
            try:
                async with self.agent:
                    ready.set_result(None)
                    await done.wait()
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        holder = asyncio.create_task(hold(), name="laneway-agent")
        try:
            await ready
            yield
        finally:
            done.set()
            await holder


def _text_of(message: ModelMessage) -> str:
    if not isinstance(message, ModelResponse):
        return ""
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))


def _usage(usage: RunUsage) -> TurnUsage:
    return TurnUsage(
        requests=usage.requests,
        tool_calls=usage.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def _failure(error: ModelAPIError) -> Exception:
    """Tell a failure that another attempt may not meet from one that it would."""
    if isinstance(error, ModelQuotaExceededError):
        return error
    transient = isinstance(
        error,
        ModelRateLimitError | ModelUnavailableError | ModelServerError | ModelConnectionError | ModelRequestTimeout,
    ) or (isinstance(error, ModelHTTPError) and (error.status_code in _TRANSIENT_STATUS or error.status_code >= 500))
    if not transient:
        return error
    wait = error.retry_after
    return TransientFailure(error, retry_after=None if wait is None else timedelta(seconds=wait))


def _models(model: Model) -> Iterator[Model]:
    yield model
    if isinstance(model, WrapperModel):
        yield from _models(model.wrapped)
    elif isinstance(model, FallbackModel):
        for inner in model.models:
            yield from _models(inner)


def _can_stream(model: Model) -> bool:
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def _stop_sdk_retries(model: Model) -> None:
    for inner in _models(model):
        client: Any = getattr(inner, "client", None)
        if getattr(client, "max_retries", 0):
            client.max_retries = 0
