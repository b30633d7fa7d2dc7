"""One step of a Pydantic AI run: from the lane's history and the run's stored state to what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Generic, cast

from pydantic_ai import CallToolsNode
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage
from typing_extensions import TypeVar

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.framing import native_prefix
from laneway.activities.pydantic_archive import ArchiveReader, archive_before
from laneway.activities.pydantic_budget import BudgetGate
from laneway.activities.pydantic_codec import decode, encode
from laneway.activities.pydantic_compaction import compaction_of
from laneway.activities.pydantic_editing import DIALECT, Continuity, edit
from laneway.activities.pydantic_framing import FramingWatch
from laneway.activities.pydantic_growth import Growth, text_of, usage_of
from laneway.activities.pydantic_hooks import tell_answer
from laneway.activities.pydantic_lane import LaneAgent
from laneway.activities.pydantic_models import stop_sdk_retries, told_apart
from laneway.activities.pydantic_prefix import PrefixWatch
from laneway.activities.pydantic_prompt import decode_prompt, opened_with
from laneway.activities.pydantic_run import (
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
from laneway.activities.pydantic_servers import ServerWatch
from laneway.activities.pydantic_summary import is_cut_off
from laneway.activities.pydantic_telemetry import instrumentation_of
from laneway.activities.pydantic_tools import LaneCapability, ResultLimit, StreamingLaneCapability
from laneway.activities.pydantic_waiting import allow_deferral, requests_of
from laneway.history.model_calls import CallUsage, ModelCalls
from laneway.history.records import EventKind
from laneway.history.scopes import in_force

__all__ = ["RunStep"]

DepsT = TypeVar("DepsT", default=None)


class RunStep(Generic[DepsT]):
    """Takes one step.

    Args:
        lane: the agent.
        work: the step.
    """

    def __init__(self, lane: LaneAgent[DepsT], work: StepWork[ModelMessage]) -> None:
        self._lane = lane
        self._work = work

    async def take(self) -> StepResult[ModelMessage]:
        """Take the step: one model request, or one batch of tool calls.

        Raises:
            TransientFailure: a model or a tool server could not be reached.
        """
        await self._lane.servers.mend()
        servers = ServerWatch(self._lane.servers)
        try:
            return await self._run(servers)
        except Exception as error:
            told = servers.told_apart(error)
            if told is error:
                raise
            raise told from error

    async def _run(self, servers: ServerWatch) -> StepResult[ModelMessage]:
        lane, work = self._lane, self._work
        prompt = decode_prompt(work.prompt)
        asked = opened_with(work.opening, prompt)
        state = None if work.state is None else RunState.from_json(work.state)
        base = work.base_length if state is None else state.base
        history = as_loaded(work.history, base)
        live = int(str(work.extras.get("live", 0))) if state is None else state.live
        continuity = Continuity(f"{work.lane_id}:{work.checkpoint.epoch}", live)
        streaming = lane.streams
        archived = None if lane.given.archival is None else work.archive
        limit = None if lane.given.max_result_bytes is None else ResultLimit(lane.given.max_result_bytes, archived)
        capability = (StreamingLaneCapability if streaming else LaneCapability)(
            work.journal,
            work.emit,
            work.answers,
            limit,
            work.hooks,
            work.step,
            FramingWatch(lane.framings, work.lane_id),
        )
        reader = None if archived is None else ArchiveReader(archived, decode)
        watch = PrefixWatch(lane.owner) if lane.may_tie_reasoning else None
        gate = BudgetGate(work.account) if work.account.is_limited else None
        async with lane.agent.iter(
            asked if state is None else None,
            message_history=history,
            # A run id that the history holds already is refused; the turn's own is put back below.
            run_id=work.turn_id if state is None else f"{work.turn_id}#{work.step}",
            conversation_id=work.conversation,
            deps=await lane.make_deps(work.conversation),
            usage_limits=lane.usage_limits,
            usage=None if state is None else state.usage,
            model_settings=continuity.settings,
            # In this order: the budget is asked about what is sent in the end.
            capabilities=[
                *self._compaction(),
                *_instrumentation(work),
                *(one for one in (capability, reader, watch, gate, servers) if one is not None),
            ],
            toolsets=lane.delegate_tools or None,
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
            asks = not isinstance(node, CallToolsNode)
            return replace(await self._go_on(run, node, growth, streaming=streaming), asked=asks)

    async def _go_on(
        self, run: AgentRun[DepsT, Any], node: Any, growth: Growth, *, streaming: bool
    ) -> StepResult[ModelMessage]:
        """What comes of the next of the run's nodes."""
        work, hooks = self._work, self._work.hooks
        said: tuple[tuple[EventKind, Mapping[str, object]], ...] = ()
        if isinstance(node, CallToolsNode):
            # The attempt before may have ended between the answer's stage and those who are told of it.
            await tell_answer(run, node, hooks, step=work.step)
        else:
            self._steer(node, growth)
            await self.edit_request(run, node, growth)
            await hooks.before_model_request(
                step=work.step,
                request_index=run.ctx.state.run_step + 1,
                model_id=run.ctx.deps.model.model_id,
            )
            before = deepcopy(run.ctx.state.usage)
            try:
                node = await run.next(node)
            except (ModelAPIError, FallbackExceptionGroup) as error:
                raise told_apart(error) from error
            await work.account.settle(run.usage.input_tokens - before.input_tokens)
            if not streaming and isinstance(node, CallToolsNode) and (text := text_of(node.model_response)):
                said = ((EventKind.TEXT_DELTA, {"text": text}),)
            result = replace(growth.result(run, node, usage_before=before), said=said)
            if not isinstance(node, CallToolsNode):
                return result
            calls, told = runs_tools(run, cast("Any", node)), hooks.has("after_model_request")
            if told or not (calls or self._is_plain(run)):
                # Code of the user's comes next: the answer must be safe before it.
                for kind, data in said:
                    work.emit(kind, data)
                said = ()
                await work.stage(result)
                growth.is_staged(result, run)
                await tell_answer(run, node, hooks, step=work.step)
            if calls:
                return growth.result(run, node, usage_before=before) if told else result
        await work.account.tool_calls(calls_of(run, node))
        allow_deferral(run)
        last: Any = await run.next(cast("Any", node))
        if not is_end(last):
            return replace(growth.result(run, last), said=said)
        output: object = last.data.output
        if isinstance(output, DeferredToolRequests):
            return self._wait(run, output)
        in_history = isinstance(output, str) and output == text_of(run.ctx.state.message_history[-1])
        stored, output_type = (None, None) if in_history else self._lane.encode_output(output)
        return replace(
            growth.result(run, last),
            done=True,
            output=stored,
            output_in_history=in_history,
            output_type=output_type,
            reply=self._reply(run.ctx.state.message_history, output),
            said=said,
        )

    def _wait(self, run: AgentRun[DepsT, Any], deferred: DeferredToolRequests) -> StepResult[ModelMessage]:
        """Nothing of the batch is kept but its journal: it begins again when all is answered."""
        work = self._work
        assert work.state is not None, "a batch of tool calls is a step of its own"
        usage = usage_of(RunState.from_json(work.state).usage)
        return StepResult(
            appended=(),
            state=work.state,
            usage=usage,
            requests=requests_of(work, run, deferred, self._lane.given.delegates),
        )

    def _reply(self, messages: Sequence[ModelMessage], output: object) -> str | None:
        """What a text thread keeps of the turn's answer; None of one that was cut off."""
        last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
        if self._lane.given.text_window is None or last is None or is_cut_off(last):
            return None
        return output if isinstance(output, str) else self._lane.encode_output(output)[0]

    def _steer(self, node: Any, growth: Growth) -> None:
        """Let messages that came while the turn ran follow what is about to be sent."""
        steered = self._work.steered
        if steered:
            prompts = [UserPromptPart(decode_prompt(prompt)) for _, prompt in steered]
            node.request = replace(node.request, parts=[*node.request.parts, *prompts])
            growth.took = [turn_id for turn_id, _ in steered]

    async def edit_request(self, run: AgentRun[DepsT, Any], node: Any, growth: Growth) -> None:
        """Let the history processor in force edit what the node is about to send."""
        lane, work, messages = self._lane, self._work, run.ctx.state.message_history
        await self._archive(run, node, growth)
        processing = in_force([lane.given.processing, work.scope.processing])
        if processing.processor is None:
            growth.begin(messages)
            return
        calls = ModelCalls(
            work.journal,
            framing=lane.framings.get(work.lane_id),
            prefix=partial(native_prefix, DIALECT, messages),
            admit=work.account.admit,
            settle=work.account.settle,
            earlier=work.earlier_calls,
        )
        outcome = await edit(
            work,
            processing,
            owner=lane.owner,
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
        lane, messages = self._lane, run.ctx.state.message_history
        if lane.given.archival is None:
            return
        outcome = await archive_before(
            self._work,
            lane.given.archival,
            owner=lane.owner,
            model=run.ctx.deps.model,
            encode=encode,
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

    def _compaction(self) -> Sequence[AbstractCapability[Any]]:
        """What has the provider compact the history, where the scopes ask for that."""
        compaction = self._work.scope.compaction
        return () if compaction is None else compaction_of(self._lane.model, compaction)

    def _is_plain(self, run: AgentRun[DepsT, Any]) -> bool:
        """Whether an answer becomes the output without code of the user's: then the commit itself stages it."""
        deps = run.ctx.deps
        return self._lane.agent.output_type is str and not deps.output_validators


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
    return (Instrumentation(settings=instrumentation_of(work.telemetry)),)
