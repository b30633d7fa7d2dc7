"""Pydantic AI agents, unchanged, on lanes."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Generic, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import CallToolsNode
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, Instrumentation, ProcessHistory
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserContent, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, UsageLimits
from pydantic_core import PydanticSerializationError
from typing_extensions import TypeVar

from laneway.activities import pydantic_contract
from laneway.activities.adapter import Capability, RetryPolicy, StepResult, StepWork
from laneway.activities.arguments import check_arguments, one_processor
from laneway.activities.compacting import unchanged
from laneway.activities.framing import FramingMemory, native_prefix
from laneway.activities.hooks import Hooks
from laneway.activities.outputs import OutputForm
from laneway.activities.profiles import RunProfile
from laneway.activities.pydantic_archive import ArchiveReader, archive_before
from laneway.activities.pydantic_budget import BudgetGate
from laneway.activities.pydantic_compacting import compacted
from laneway.activities.pydantic_compaction import can_compact, compaction_of
from laneway.activities.pydantic_editing import DIALECT, Continuity, describe, edit, ties_reasoning
from laneway.activities.pydantic_framing import FramingWatch, RequestFraming
from laneway.activities.pydantic_growth import Growth, text_of, usage_of
from laneway.activities.pydantic_hooks import tell_answer
from laneway.activities.pydantic_import import read_import, stored_import
from laneway.activities.pydantic_models import can_stream, stop_sdk_retries, told_apart
from laneway.activities.pydantic_prefix import PrefixWatch
from laneway.activities.pydantic_profile import ProfiledAgent
from laneway.activities.pydantic_run import (
    JSON_FORM,
    CallQueue,
    RunState,
    as_loaded,
    calls_of,
    is_end,
    keep_stored,
    next_node,
    restore,
    runs_tools,
)
from laneway.activities.pydantic_summary import Processors, PydanticText, is_cut_off
from laneway.activities.pydantic_tools import LaneCapability, ResultLimit, StreamingLaneCapability
from laneway.activities.pydantic_waiting import allow_deferral, delegate_tools, requests_of
from laneway.activities.retries import SerializationFailed
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.archival import READ_TOOL, HistoryArchiveSettings
from laneway.history.budget import RequestBudget
from laneway.history.callbacks import callback_name
from laneway.history.compaction import Compaction
from laneway.history.context import HistoryProcessorCondition
from laneway.history.delegation import Delegation
from laneway.history.model_calls import CallUsage, ModelCalls
from laneway.history.origins import EntryMetadata
from laneway.history.records import EventKind
from laneway.history.repair import ImportRepair
from laneway.history.scopes import HistoryProcessingSettings, in_force
from laneway.history.threads import TextWindow

__all__ = ["PydanticAdapter"]

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)

_CAPABILITIES: frozenset[Capability] = frozenset(
    {
        "approval",
        "budgets",
        "compaction",
        "delegation",
        "history_processing",
        "hooks",
        "profiles",
        "streaming",
        "tool_hooks",
    }
)
_COMPACTS: frozenset[Capability] = frozenset({"native_compaction"})

_message: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage, config=JSON_FORM)
_prompt: TypeAdapter[str | list[UserContent]] = TypeAdapter(str | list[UserContent], config=JSON_FORM)


class PydanticAdapter(Generic[DepsT, OutputT]):
    """Runs a Pydantic AI agent on lanes.

    Args:
        agent: the agent, as it is. Its model, settings, tools and output types make the lane contract; its instructions
            do not, and can change while conversations run.
        deps: the dependencies that every run gets.
        deps_factory: makes a run's dependencies, once for each step, in place of `deps`; sync or async. It is given the
            conversation's id.
        usage_limits: the limits of each turn, as `agent.run` takes them.
        budget: what the requests of each turn may take; see docs/budgets.md.
        retry_policy: how model requests that failed on their way are retried. The provider SDKs' own retries are
            switched off in a worker, since they pay twice for an answer that was cut.
        stream: whether model requests are streamed, so that text is seen as it comes. None: where the model can.
        history: in place of native history, how many of the last messages of the conversation's text thread each turn
            begins with; see docs/windows.md.
        history_archive: archives old tool exchanges of long turns, and tool results that are too large; see
            docs/archival.md. None for neither.
        max_tool_result_bytes: how large a tool's result may be, as JSON, to enter history. A larger one is archived, or
            fails the turn with ToolOutputTooLarge. None for any.
        hooks: called around turns, model requests and tools; see docs/hooks.md.
        history_processor: edits the history before every model request; several run in order. See docs/history.md.
        history_processor_condition: says before each request whether it does; always, where there is none.
        delegates: other agents of the application to which the model can hand work, by name. Their tools are part of
            the lane contract; see docs/delegation.md.

    Raises:
        ConfigurationError: `agent` is no agent, or has no model; an argument is of another type than it has to be; both
            `deps` and `deps_factory` are given; there is a condition and no processor; or the agent has a
            `ProcessHistory` capability beside the processor.
    """

    shortname = "pydantic_ai"

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        *,
        deps: DepsT = cast("Any", None),
        deps_factory: Callable[[str], Any] | None = None,
        usage_limits: UsageLimits | None = None,
        budget: RequestBudget | None = None,
        retry_policy: RetryPolicy | None = None,
        stream: bool | None = None,
        history: TextWindow | None = None,
        history_archive: HistoryArchiveSettings | None = None,
        max_tool_result_bytes: int | None = 100_000,
        hooks: Hooks | None = None,
        history_processor: Processors | None = None,
        history_processor_condition: HistoryProcessorCondition | None = None,
        delegates: Mapping[str, Delegation] | None = None,
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
        check_arguments(
            type(self).__name__,
            history=history,
            history_archive=history_archive,
            max_tool_result_bytes=max_tool_result_bytes,
            budget=budget,
            retry_policy=retry_policy,
            hooks=hooks,
            delegates=delegates,
            condition=history_processor_condition,
        )
        processor = one_processor(type(self).__name__, history_processor)
        if deps is not None and deps_factory is not None:
            raise ConfigurationError("PydanticAdapter takes `deps` or `deps_factory`, not both")
        self.agent = agent
        self._deps = deps
        self._deps_factory = deps_factory
        self._usage_limits = usage_limits
        self._budget = budget
        self._framings: FramingMemory[RequestFraming] = FramingMemory()
        self.delegates: Mapping[str, Delegation] = dict(delegates or {})
        self._delegate_tools = delegate_tools(self.delegates)
        self._retry_policy = retry_policy or RetryPolicy()
        self._stream = stream
        self.text_window = history
        self._archival = history_archive
        self._max_result_bytes = max_tool_result_bytes
        self.hooks = hooks
        self.processing = HistoryProcessingSettings(processor, history_processor_condition)
        in_force([self.processing])
        if processor is not None:
            _check_single_processor(agent)
            warnings.warn(
                f"the history processor {callback_name(processor)} rewrites what a provider may have cached: "
                "requests after an edit can cost more",
                UserWarning,
                stacklevel=2,
            )

    @property
    def capabilities(self) -> frozenset[Capability]:
        return _CAPABILITIES | _COMPACTS if can_compact(self.agent.model) else _CAPABILITIES

    @property
    def retry_policy(self) -> RetryPolicy:
        return self._retry_policy

    @property
    def budget(self) -> RequestBudget | None:
        return self._budget

    def contract(self) -> Mapping[str, object]:
        contract = pydantic_contract.contract_of(self.agent, delegates=self.delegates)
        # Its tool is part of what models are sent.
        return contract if self._archival is None else {**contract, "archive": READ_TOOL}

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

    def text_of_prompt(self, prompt: bytes) -> str:
        """The text of a stored prompt, with a description of each file, as a text thread keeps it."""
        lines = PydanticText().lines(ModelRequest(parts=[UserPromptPart(self.decode_prompt(prompt))]))
        return "\n".join(line.text for line in lines)

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

    def describe(self, message: ModelMessage, turn_id: str) -> EntryMetadata:
        return describe(message, turn_id)

    def encode_import(self, messages: object, *, repair: bool) -> bytes:
        return stored_import(messages, repair=repair)

    def decode_import(self, blob: bytes, turn_id: str) -> tuple[Sequence[ModelMessage], Sequence[EntryMetadata]]:
        messages, _ = read_import(blob)
        return messages, [describe(one, one.run_id or turn_id, source="import") for one in messages]

    def repairs_of(self, blob: bytes) -> Sequence[ImportRepair]:
        return read_import(blob)[1]

    def state_of(
        self, messages: Sequence[ModelMessage], extras: Mapping[str, object], parts: Mapping[str, bytes]
    ) -> Mapping[str, object]:
        raise InvalidInput("a Pydantic AI agent has no state beside its messages: read these with messages()")

    # Outputs ----------------------------------------------------------------------------------------------------------

    def output_of(self, message: ModelMessage) -> object:
        return text_of(message)

    def decode_output(self, output: str) -> object:
        return self._outputs.decode(output)

    def decode_typed(self, output: str, output_type: str) -> object:
        return self._outputs.decode(output, output_type)

    @cached_property
    def _outputs(self) -> OutputForm:
        context: object = getattr(self.agent, "_validation_context", None)
        return OutputForm(pydantic_contract.output_types_of(self.agent), context=None if callable(context) else context)

    def _encode_output(self, output: object) -> tuple[str, str | None]:
        try:
            return self._outputs.encode(output)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise SerializationFailed(
                f"the output, a {type(output).__name__}, cannot be stored: {error}. Outputs must be JSON values, "
                "pydantic models or dataclasses"
            ) from error

    # Steps ------------------------------------------------------------------------------------------------------------

    async def step(self, work: StepWork[ModelMessage]) -> StepResult[ModelMessage]:
        prompt = self.decode_prompt(work.prompt)
        asked = opened_with(work.opening, prompt)
        state = None if work.state is None else RunState.from_json(work.state)
        base = work.base_length if state is None else state.base
        history = as_loaded(work.history, base)
        live = int(str(work.extras.get("live", 0))) if state is None else state.live
        continuity = Continuity(f"{work.lane_id}:{work.checkpoint.epoch}", live)
        streaming = self._streams()
        archived = None if self._archival is None else work.archive
        limit = None if self._max_result_bytes is None else ResultLimit(self._max_result_bytes, archived)
        capability = (StreamingLaneCapability if streaming else LaneCapability)(
            work.journal, work.emit, work.answers, limit, work.hooks, work.step
        )
        reader = None if archived is None else ArchiveReader(archived, self.decode)
        watch = PrefixWatch(self) if self._may_tie_reasoning() else None
        gate = BudgetGate(work.account) if work.account.is_limited else None
        memory = FramingWatch(self._framings, work.lane_id)
        async with self.agent.iter(
            asked if state is None else None,
            message_history=history,
            # A run id that the history holds already is refused; the turn's own is put back below.
            run_id=work.turn_id if state is None else f"{work.turn_id}#{work.step}",
            conversation_id=work.conversation,
            deps=await self._make_deps(work.conversation),
            usage_limits=self._usage_limits,
            usage=None if state is None else state.usage,
            model_settings=continuity.settings,
            # In this order: the budget is asked about what is sent in the end.
            capabilities=[
                *self._compaction(work),
                *_instrumentation(work),
                *(one for one in (capability, reader, watch, memory, gate) if one is not None),
            ],
            toolsets=self._delegate_tools or None,
            infer_name=False,
        ) as run:
            stop_sdk_retries(run.ctx.deps.model)
            run.ctx.state.pending_messages = CallQueue(run.ctx.state.pending_messages)
            if state is None:
                node: Any = await run.next(cast("Any", run.next_node))
                run.ctx.deps.prompt = prompt  # as it is in every later step
                keep_stored(history, run.ctx.state.message_history)
            else:
                await restore(run, state, list(history), prompt=prompt, turn_id=work.turn_id)
                node = next_node(state, history)
            prefix = work.extras.get("prefix") if state is None else state.prefix
            framing = int(str(work.extras.get("framing", 0))) if state is None else state.framing
            growth = Growth(work, history, base, continuity, cast("str | None", prefix), framing)
            for one in (watch, gate):
                if one is not None:
                    one.growth = growth
            return await self._step(run, node, growth, streaming=streaming)

    async def _step(
        self, run: AgentRun[DepsT, Any], node: Any, growth: Growth, *, streaming: bool
    ) -> StepResult[ModelMessage]:
        hooks = growth.work.hooks
        said: tuple[tuple[EventKind, Mapping[str, object]], ...] = ()
        if isinstance(node, CallToolsNode):
            # The attempt before may have ended between the answer's stage and those who are told of it.
            await tell_answer(run, node, hooks, step=growth.work.step)
        else:
            self._steer(node, growth)
            await self._edit(run, node, growth)
            await hooks.before_model_request(
                step=growth.work.step,
                request_index=run.ctx.state.run_step + 1,
                model_id=run.ctx.deps.model.model_id,
            )
            before = deepcopy(run.ctx.state.usage)
            try:
                node = await run.next(node)
            except (ModelAPIError, FallbackExceptionGroup) as error:
                raise told_apart(error) from error
            await growth.work.account.settle(run.usage.input_tokens - before.input_tokens)
            if not streaming and isinstance(node, CallToolsNode) and (text := text_of(node.model_response)):
                said = ((EventKind.TEXT_DELTA, {"text": text}),)
            result = replace(growth.result(run, node, usage_before=before), said=said)
            if not isinstance(node, CallToolsNode):
                return result
            calls, told = runs_tools(run, cast("Any", node)), hooks.has("after_model_request")
            if told or not (calls or self._is_plain(run)):
                # Code of the user's comes next: the answer must be safe before it.
                for kind, data in said:
                    growth.work.emit(kind, data)
                said = ()
                await growth.work.stage(result)
                growth.is_staged(result, run)
                await tell_answer(run, node, hooks, step=growth.work.step)
            if calls:
                return growth.result(run, node, usage_before=before) if told else result
        await growth.work.account.tool_calls(calls_of(run, node))
        allow_deferral(run)
        last: Any = await run.next(cast("Any", node))
        if not is_end(last):
            return replace(growth.result(run, last), said=said)
        output: object = last.data.output
        if isinstance(output, DeferredToolRequests):
            return self._wait(run, output, growth)
        in_history = isinstance(output, str) and output == text_of(run.ctx.state.message_history[-1])
        stored, output_type = (None, None) if in_history else self._encode_output(output)
        return replace(
            growth.result(run, last),
            done=True,
            output=stored,
            output_in_history=in_history,
            output_type=output_type,
            reply=self._reply(run.ctx.state.message_history, output),
            said=said,
        )

    def _wait(
        self, run: AgentRun[DepsT, Any], deferred: DeferredToolRequests, growth: Growth
    ) -> StepResult[ModelMessage]:
        """Nothing of the batch is kept but its journal: it begins again when all is answered."""
        work = growth.work
        assert work.state is not None, "a batch of tool calls is a step of its own"
        usage = usage_of(RunState.from_json(work.state).usage)
        return StepResult(
            appended=(), state=work.state, usage=usage, requests=requests_of(work, run, deferred, self.delegates)
        )

    def _reply(self, messages: Sequence[ModelMessage], output: object) -> str | None:
        """What a text thread keeps of the turn's answer; None of one that was cut off."""
        last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
        if self.text_window is None or last is None or is_cut_off(last):
            return None
        return output if isinstance(output, str) else self._encode_output(output)[0]

    def _steer(self, node: Any, growth: Growth) -> None:
        """Let messages that came while the turn ran follow what is about to be sent."""
        steered = growth.work.steered
        if steered:
            prompts = [UserPromptPart(self.decode_prompt(prompt)) for _, prompt in steered]
            node.request = replace(node.request, parts=[*node.request.parts, *prompts])
            growth.took = [turn_id for turn_id, _ in steered]

    async def _edit(self, run: AgentRun[DepsT, Any], node: Any, growth: Growth) -> None:
        """Let the history processor in force edit what the node is about to send."""
        messages = run.ctx.state.message_history
        await self._archive(run, node, growth)
        processing = in_force([self.processing, growth.work.scope.processing])
        if processing.processor is None:
            growth.begin(messages)
            return
        work = growth.work
        calls = ModelCalls(
            work.journal,
            framing=self._framings.get(work.lane_id),
            prefix=partial(native_prefix, DIALECT, messages),
            admit=work.account.admit,
            settle=work.account.settle,
            earlier=work.earlier_calls,
        )
        outcome = await edit(
            work,
            processing,
            owner=self,
            model=run.ctx.deps.model,
            messages=messages,
            entries=growth.known(messages),
            request=node.request,
            request_index=run.ctx.state.run_step + 1,
            live=growth.continuity.live,
            calls=calls,
        )
        growth.edited = outcome
        for call in calls.receipts:
            run.ctx.state.usage.requests += call.usage.requests
            run.ctx.state.usage.incr(_usage_of(call.usage))
        if outcome.verdict == "accepted":
            messages[:], node.request = outcome.messages[:-1], outcome.messages[-1]
        growth.begin(messages)

    async def _archive(self, run: AgentRun[DepsT, Any], node: Any, growth: Growth) -> None:
        if self._archival is None:
            return
        messages = run.ctx.state.message_history
        outcome = await archive_before(
            growth.work,
            self._archival,
            owner=self,
            model=run.ctx.deps.model,
            encode=self.encode,
            messages=messages,
            entries=growth.known(messages),
            request=node.request,
            request_index=run.ctx.state.run_step + 1,
            live=growth.continuity.live,
        )
        if outcome is not None:
            growth.archived = outcome
            messages[:], node.request = outcome.messages[:-1], outcome.messages[-1]
            growth.continuity.live = len(messages) + 1

    def _compaction(self, work: StepWork[ModelMessage]) -> Sequence[AbstractCapability[Any]]:
        """What has the provider compact the history, where the scopes ask for that."""
        if work.scope.compaction is None:
            return ()
        model: Any = self.agent.model
        return compaction_of(infer_model(model), work.scope.compaction)

    def _is_plain(self, run: AgentRun[DepsT, Any]) -> bool:
        """Whether an answer becomes the output without code of the user's: then the commit itself stages it."""
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
        return not isinstance(model, Model) or can_stream(model)

    def _may_tie_reasoning(self) -> bool:
        model = self.agent.model
        return not isinstance(model, Model) or ties_reasoning(model)

    # Profiles ---------------------------------------------------------------------------------------------------------

    def with_profile(self, profile: RunProfile) -> PydanticAdapter[DepsT, OutputT]:
        """The same adapter, whose agent runs under a profile."""
        under = copy(self)
        under.agent = cast("Any", ProfiledAgent(self.agent, profile))
        return under

    # Compaction -------------------------------------------------------------------------------------------------------

    async def compact(self, work: StepWork[ModelMessage], compaction: Compaction) -> StepResult[ModelMessage]:
        """Sum up the lane's history: see `Conversation.compact`."""
        if self.text_window is not None:
            return unchanged("the agent's turns begin with a text window, not with the lane's history")
        return await compacted(
            work,
            compaction,
            processor=in_force([self.processing, work.scope.processing]).processor,
            owner=self,
            model=infer_model(cast("Model | str", self.agent.model)),
            framing=self._framings.get(work.lane_id),
        )

    # Resources --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
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


def opened_with(opening: str, prompt: str | list[UserContent]) -> str | list[UserContent]:
    """A prompt after what stands before it in its request."""
    if not opening:
        return prompt
    if isinstance(prompt, str):
        return opening + prompt
    first, *rest = prompt
    return [opening + first, *rest] if isinstance(first, str) else [opening, *prompt]


def _usage_of(call: CallUsage) -> RequestUsage:
    return RequestUsage(
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cache_read_tokens=call.cache_read_tokens,
        cache_write_tokens=call.cache_write_tokens,
    )


def _instrumentation(work: StepWork[ModelMessage]) -> Sequence[AbstractCapability[Any]]:
    """The framework's own spans, where the application has telemetry."""
    if work.telemetry is None:
        return ()
    telemetry = work.telemetry.instruments.telemetry
    settings = InstrumentationSettings(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        include_content=telemetry.include_content,
        include_binary_content=telemetry.include_content,
    )
    return (Instrumentation(settings=settings),)


def _check_single_processor(agent: AbstractAgent[Any, Any]) -> None:
    def visit(capability: AbstractCapability[Any]) -> None:
        if isinstance(capability, ProcessHistory):
            raise ConfigurationError(
                "the agent has a ProcessHistory capability, and the adapter a history_processor: two editors would not "
                "see each other's edits. Keep one of the two"
            )

    root = getattr(agent, "root_capability", None)
    if isinstance(root, AbstractCapability):
        cast("AbstractCapability[Any]", root).apply(visit)
