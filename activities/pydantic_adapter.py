"""Pydantic AI agents, unchanged, on lanes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Generic, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits
from typing_extensions import TypeVar

from laneway.activities import pydantic_contract
from laneway.activities.adapter import Capability, RetryPolicy, StepResult, StepWork
from laneway.activities.arguments import AdapterArguments, WithArguments
from laneway.activities.compacting import unchanged
from laneway.activities.hooks import Hooks
from laneway.activities.profiles import RunProfile
from laneway.activities.pydantic_codec import decode, encode
from laneway.activities.pydantic_compacting import compacted
from laneway.activities.pydantic_compaction import can_compact
from laneway.activities.pydantic_editing import describe
from laneway.activities.pydantic_growth import text_of
from laneway.activities.pydantic_import import read_import, stored_import
from laneway.activities.pydantic_lane import LaneAgent
from laneway.activities.pydantic_models import can_stream
from laneway.activities.pydantic_profile import ProfiledAgent
from laneway.activities.pydantic_prompt import Prompt, decode_prompt, encode_prompt, text_of_prompt
from laneway.activities.pydantic_servers import connected
from laneway.activities.pydantic_step import RunStep
from laneway.activities.pydantic_summary import Processors
from laneway.activities.pydantic_waiting import delegate_tools
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.archival import READ_TOOL, HistoryArchiveSettings
from laneway.history.budget import RequestBudget
from laneway.history.compaction import Compaction
from laneway.history.context import HistoryProcessorCondition
from laneway.history.delegation import Delegation
from laneway.history.given import check_callable, check_kind, refused
from laneway.history.origins import EntryMetadata
from laneway.history.repair import ImportRepair
from laneway.history.scopes import in_force
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


class PydanticAdapter(WithArguments, Generic[DepsT, OutputT]):
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
        given = AdapterArguments.checked(
            type(self).__name__,
            budget=budget,
            retry_policy=retry_policy,
            stream=stream,
            history=history,
            history_archive=history_archive,
            max_tool_result_bytes=max_tool_result_bytes,
            hooks=hooks,
            history_processor=history_processor,
            history_processor_condition=history_processor_condition,
            delegates=delegates,
        )
        super().__init__(given)
        if stream and isinstance(agent.model, Model) and not can_stream(agent.model):
            raise refused("PydanticAdapter: stream", stream, f"None or False: {agent.model!r} cannot stream")
        check_callable("PydanticAdapter: deps_factory", deps_factory, "a function from a conversation's id to `deps`")
        check_kind("PydanticAdapter: usage_limits", usage_limits, UsageLimits, "UsageLimits(…), or None for no limit")
        if deps is not None and deps_factory is not None:
            raise ConfigurationError("PydanticAdapter takes `deps` or `deps_factory`, not both")
        self._lane = LaneAgent(
            agent,
            given,
            owner=self,
            deps=deps,
            deps_factory=deps_factory,
            usage_limits=usage_limits,
            delegate_tools=delegate_tools(given.delegates),
        )
        if given.processor is not None:
            _check_single_processor(agent)
        given.warn_of_cost(stacklevel=2)

    @property
    def agent(self) -> AbstractAgent[DepsT, OutputT]:
        """The agent."""
        return self._lane.agent

    @property
    def capabilities(self) -> frozenset[Capability]:
        return _CAPABILITIES | _COMPACTS if can_compact(self.agent.model) else _CAPABILITIES

    def contract(self) -> Mapping[str, object]:
        contract = pydantic_contract.contract_of(self.agent, delegates=self.delegates)
        # Its tool is part of what models are sent.
        return contract if self._given.archival is None else {**contract, "archive": READ_TOOL}

    # Messages ---------------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: object) -> bytes:
        return encode_prompt(prompt)

    def decode_prompt(self, prompt: bytes) -> Prompt:
        """The prompt that `encode_prompt` was given."""
        return decode_prompt(prompt)

    def text_of_prompt(self, prompt: bytes) -> str:
        """The text of a stored prompt, with a description of each file, as a text thread keeps it."""
        return text_of_prompt(decode_prompt(prompt))

    def encode(self, message: ModelMessage) -> bytes:
        return encode(message)

    def decode(self, payload: bytes) -> ModelMessage:
        return decode(payload)

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
        return self._lane.outputs.decode(output)

    def decode_typed(self, output: str, output_type: str) -> object:
        return self._lane.outputs.decode(output, output_type)

    # Steps ------------------------------------------------------------------------------------------------------------

    async def step(self, work: StepWork[ModelMessage]) -> StepResult[ModelMessage]:
        return await RunStep(self._lane, work).take()

    # Profiles ---------------------------------------------------------------------------------------------------------

    def with_profile(self, profile: RunProfile) -> PydanticAdapter[DepsT, OutputT]:
        """The same adapter, whose agent runs under a profile."""
        under = copy(self)
        under._lane = replace(self._lane, agent=ProfiledAgent(self.agent, profile), owner=under)
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
            model=self._lane.model,
            framing=self._lane.framings.get(work.lane_id),
        )

    # Resources --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Have the agent's tool servers connected, once and not for each step."""
        async with connected(self.agent, self._lane.servers):
            yield


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
