"""LangGraph graphs and LangChain agents, unchanged, on lanes."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

import inspect
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph._internal._serde import build_serde_allowlist
from langgraph.channels.base import BaseChannel
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel

from laneway.activities.adapter import Capability, RetryPolicy, StepResult, StepWork
from laneway.activities.arguments import AdapterArguments, WithArguments
from laneway.activities.compacting import unchanged
from laneway.activities.hooks import Hooks
from laneway.activities.langchain_archive import archive_tools, check_archival, readable
from laneway.activities.langchain_arguments import check_graph_arguments
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_compacting import compacted
from laneway.activities.langchain_compaction import can_compact, check_threshold, let_models_compact
from laneway.activities.langchain_contract import contract_of
from laneway.activities.langchain_delegation import check_tools, delegate_tools
from laneway.activities.langchain_editing import IMPORT, describe, imported
from laneway.activities.langchain_graphs import Graph, all_graphs, compiled, find, models_of_nodes, response_types
from laneway.activities.langchain_import import read_import, stored_import
from laneway.activities.langchain_lane import LaneGraph
from laneway.activities.langchain_models import stop_sdk_retries
from laneway.activities.langchain_once import calls_once, runs_once
from laneway.activities.langchain_output import OutputFinder
from laneway.activities.langchain_position import Position
from laneway.activities.langchain_prefix import PrefixChanged, mark_stale
from laneway.activities.langchain_profile import GraphFactory, made_under
from laneway.activities.langchain_prompt import GraphPrompt
from laneway.activities.langchain_state import StateCodec
from laneway.activities.langchain_step import Superstep
from laneway.activities.langchain_summary import LangChainText
from laneway.activities.langchain_traits import inner_models, traits_of
from laneway.activities.langchain_window import check_prompt, opened_with, reply_of, text_of
from laneway.activities.profiles import RunProfile
from laneway.errors import ConfigurationError
from laneway.history.archival import HistoryArchiveSettings
from laneway.history.budget import RequestBudget
from laneway.history.callbacks import callback_name
from laneway.history.compaction import Compaction
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.delegation import Delegation
from laneway.history.given import types_listed
from laneway.history.origins import EntryMetadata
from laneway.history.repair import ImportRepair
from laneway.history.scopes import in_force
from laneway.history.threads import TextWindow
from laneway.langgraph_serde import Leaves, strict_serializer

__all__ = ["LangChainAdapter", "LangChainText"]

_ALWAYS: Final[frozenset[Capability]] = frozenset(
    {"approval", "budgets", "compaction", "delegation", "history_processing", "hooks", "streaming", "tool_hooks"}
)
_COMPACTS: Final[frozenset[Capability]] = frozenset({"native_compaction"})
_OF_A_FACTORY: Final[frozenset[Capability]] = frozenset({"profiles"})


_HAS_MESSAGES: Final = ": the graph of a lane has a channel of messages, such as that of MessagesState"


class LangChainAdapter(WithArguments):
    """Runs a LangGraph graph, or an agent of LangChain's, on lanes.

    Args:
        graph: what `create_agent` returns, or any `StateGraph`, compiled without a checkpointer or not compiled. Its
            models, tools, nodes and channels make the lane contract; its prompts do not. Or a function that makes one
            of a `GraphProfile`, so that the agent can run under profiles: it is called once for each, and must make
            the same graph of the same profile.
        messages_key: the channel that holds the messages.
        model_nodes: the nodes that ask a model with them; by default those in which one is found.
        config: LangChain's configuration of every run: tags, callbacks, `configurable`, `recursion_limit`.
        context: the runtime context of every run, where the graph has a `context_schema`.
        context_factory: makes it, once for each step, in place of `context`; sync or async. It is given the
            conversation's id.
        output_key: the channel that holds a turn's output. Without it that is the structured response, where the turn
            has one, else the text of the last message.
        allowed_types: types of your own in the state, beside those that the graph's schemas name. They are constructed
            from stored data.
        contract: what makes a history the agent's own, in place of what is read from the graph: for one whose models
            cannot be found in its nodes, say.
        retry_policy: how model requests that failed on their way are retried. The provider SDKs' own retries are
            switched off for them, since they pay twice for an answer that was cut.
        stream: whether model requests are streamed, so that text is seen as it comes; by default they are.
        history_processor: edits the history before every model node; several run in order. See docs/history.md.
        history_processor_condition: says before each model node whether it does; always, where there is none.
        delegates: other agents of the application to which the graph's model can hand work, by name. The graph has to
            be made with their tools, see `delegate_tools`; see docs/delegation.md.
        hooks: called around turns and model nodes; see docs/hooks.md.
        budget: what a turn's model requests and tool calls may take; see docs/budgets.md.
        history: a text window with which turns begin in place of native history; see docs/windows.md.
        history_archive: archives old tool exchanges of long turns, and tool results that are too large. The graph has
            to be made with the tool that reads them, see `archive_tools`; see docs/archival.md. None for neither.
        max_tool_result_bytes: how large a tool's result may be, as JSON, to enter history. A larger one is archived, or
            fails the turn with ToolOutputTooLarge. None for any size.
        binds_reasoning: whether the graph's models tie their reasoning to everything before it, as newer Claude models
            do; by default their names tell. See docs/history.md.

    Raises:
        ConfigurationError: `graph` is no graph, or is compiled with a checkpointer or with breakpoints; an argument is
            of another type than it has to be; there is no channel `messages_key` or `output_key`, or no node of a name
            in `model_nodes`; both `context` and `context_factory` are given; there is a condition and no processor; or
            the graph has not the tools of `delegates` or of `history_archive`. Under a profile also: the function that
            makes the graph does not use what the profile says.
    """

    shortname = "langchain"

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any] | Graph | GraphFactory,
        *,
        messages_key: str = "messages",
        model_nodes: Sequence[str] | None = None,
        config: RunnableConfig | None = None,
        context: object = None,
        context_factory: Callable[[str], Any] | None = None,
        output_key: str | None = None,
        allowed_types: Iterable[type | tuple[str, str]] = (),
        contract: Mapping[str, object] | None = None,
        retry_policy: RetryPolicy | None = None,
        stream: bool | None = None,
        history_processor: HistoryProcessor[BaseMessage] | Sequence[HistoryProcessor[BaseMessage]] | None = None,
        history_processor_condition: HistoryProcessorCondition | None = None,
        delegates: Mapping[str, Delegation] | None = None,
        hooks: Hooks | None = None,
        budget: RequestBudget | None = None,
        history: TextWindow | None = None,
        history_archive: HistoryArchiveSettings | None = None,
        max_tool_result_bytes: int | None = 100_000,
        binds_reasoning: bool | None = None,
    ) -> None:
        if context is not None and context_factory is not None:
            raise ConfigurationError("LangChainAdapter takes `context` or `context_factory`, not both")
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
        check_graph_arguments(
            messages_key=messages_key,
            model_nodes=model_nodes,
            config=config,
            context_factory=context_factory,
            output_key=output_key,
            contract=contract,
            binds_reasoning=binds_reasoning,
        )
        self._factory = None if isinstance(graph, StateGraph | Pregel) or not callable(graph) else graph
        self._messages_key = messages_key
        self._model_nodes = model_nodes
        self._config = dict(config or {})
        self._output_key = output_key
        self._allowed_types = types_listed("LangChainAdapter: allowed_types", allowed_types)
        self._binds_reasoning = binds_reasoning
        self._context = context
        self._context_factory = context_factory
        self._contract = contract
        self._made: Mapping[str, object] | None = None
        self._take(graph if self._factory is None else made_under(self._factory, RunProfile()))
        if given.processor is not None:
            self._check_processor(given.processor)
        given.warn_of_cost(stacklevel=2)

    def _take(self, graph: object) -> None:
        """Read what a graph is made of."""
        self.graph = compiled(graph)
        for argument, channel in (("messages_key", self._messages_key), ("output_key", self._output_key)):
            if channel is not None and not isinstance(self.graph.channels.get(channel), BaseChannel):
                known = ", ".join(
                    sorted(name for name in self.graph.channels if not name.startswith(("__", "branch:")))
                )
                raise ConfigurationError(
                    f"the graph {self.graph.name!r} has no channel {channel!r}; its channels are: {known}. Name the "
                    f"right one with {argument}{_HAS_MESSAGES if argument == 'messages_key' else ''}"
                )
        models = models_of_nodes(self.graph)
        self.model_nodes = self._check_model_nodes(models if self._model_nodes is None else self._model_nodes)
        self._models = [
            one.model for node in self.graph.nodes if node in self.model_nodes for one in models.get(node, ())
        ]
        self._asked = [inner for model in self._models for inner in inner_models(model)]
        tools = {one.name: one for one in find(self.graph) if isinstance(one, BaseTool)}
        for one in tools.values():
            runs_once(one)
        check_tools(self.delegates, tools, graph=self.graph.name)
        check_archival(self._given.archival, tools, self.model_nodes, graph=self.graph.name)
        serde = strict_serializer(None, self._types(self._allowed_types))
        self._codec = MessageCodec(Leaves(serde, owner="LangChainAdapter"))
        self._lane = LaneGraph(
            graph=self.graph,
            messages_key=self._messages_key,
            config=self._config,
            serde=serde,
            codec=self._codec,
            output=OutputFinder(self._output_key, response_types(self.graph)),
            models={
                node: traits_of((one.model for one in models.get(node, ())), binds_reasoning=self._binds_reasoning)
                for node in sorted(self.model_nodes)
            },
            given=self._given,
            owner=self,
            tools=frozenset(tools),
        )

    def with_profile(self, profile: RunProfile) -> LangChainAdapter:
        """The same adapter, whose graph is made under a profile.

        Raises:
            ConfigurationError: the function that makes the graph does not use what the profile says.
        """
        if self._factory is None:
            raise ConfigurationError(
                f"the graph {self.graph.name!r} is made already, and a profile cannot change it: give LangChainAdapter "
                "a function that makes it"
            )
        under = copy(self)
        under.__dict__.pop("_prompt", None)
        under._take(made_under(self._factory, profile))
        if self._contract is not None and (made := contract_of(under.graph)) != contract_of(self.graph):
            under._made = made
        return under

    def _check_model_nodes(self, names: Iterable[str]) -> frozenset[str]:
        nodes = [name for name in self.graph.nodes if not name.startswith("__")]
        names = frozenset((names,) if isinstance(names, str) else names)
        for name in sorted(names):
            if name not in nodes:
                raise ConfigurationError(
                    f"the graph {self.graph.name!r} has no node {name!r} to be one of model_nodes; its nodes are: "
                    f"{', '.join(nodes)}"
                )
        return names

    def _check_processor(self, processor: HistoryProcessor[BaseMessage]) -> None:
        if not self.model_nodes:
            raise ConfigurationError(
                f"no model is found in the nodes of the graph {self.graph.name!r}, so that {callback_name(processor)} "
                "would edit nothing: name the nodes that ask one with model_nodes"
            )

    def _types(self, allowed: Iterable[type | tuple[str, str]]) -> list[type | tuple[str, str]]:
        """The types of the application's own that state may hold: named by itself, or by the schemas of its graphs."""
        types: dict[type | tuple[str, str], None] = dict.fromkeys(allowed)
        for graph in all_graphs(self.graph):
            channels = {name: one for name, one in graph.channels.items() if isinstance(one, BaseChannel)}
            types.update(dict.fromkeys(cast("set[tuple[str, str]]", build_serde_allowlist(channels=channels))))
        types.update(dict.fromkeys(response_types(self.graph)))
        return list(types)

    @staticmethod
    def delegate_tools(delegates: Mapping[str, Delegation]) -> list[BaseTool]:
        """The tools of delegates, to be given to a graph when it is made: `create_agent(model, tools=[…])`.

        Raises:
            ConfigurationError: a name cannot be one, or two tools have the same.
        """
        return delegate_tools(delegates)

    @staticmethod
    def archive_tools() -> list[BaseTool]:
        """The tool `read_archived`, by which the model reads what `history_archive` has archived.

        To be given to the graph when it is made: `create_agent(model, tools=[…, *LangChainAdapter.archive_tools()])`.
        """
        return archive_tools()

    @property
    def capabilities(self) -> frozenset[Capability]:
        found = _ALWAYS if self._factory is None else _ALWAYS | _OF_A_FACTORY
        return found | _COMPACTS if can_compact(self._asked) else found

    def contract(self) -> Mapping[str, object]:
        if self._contract is not None:
            given = {"adapter": self.shortname, "given": dict(self._contract)}
            # What is given is of the graph as it is without a profile.
            return given if self._made is None else {**given, "under": self._made}
        return contract_of(self.graph)

    # Messages ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _prompt(self) -> GraphPrompt:
        inputs = self.graph.input_channels
        names = {inputs} if isinstance(inputs, str) else set(inputs)
        if isinstance(self.graph, CompiledStateGraph):
            builder = self.graph.builder
            names = set(builder.schemas[builder.input_schema])
        return GraphPrompt(self._lane.messages_key, frozenset(names), self._codec, StateCodec(self._lane.serde))

    def encode_prompt(self, prompt: object) -> bytes:
        blob = self._prompt.encode(prompt)
        if self.text_window is not None:
            check_prompt(self._prompt.decode(blob, turn_id=""))
        return blob

    def decode_prompt(self, prompt: bytes) -> object:
        """The prompt that `encode_prompt` was given: text, messages or an update of the state."""
        return self._prompt.shown(prompt)

    def text_of_prompt(self, prompt: bytes) -> str:
        """The text of a stored prompt, with a description of each file, as a text thread keeps it."""
        return text_of(self._prompt.decode(prompt, turn_id=""))

    def encode(self, message: BaseMessage) -> bytes:
        return self._codec.encode(message)

    def decode(self, payload: bytes) -> BaseMessage:
        return self._codec.decode(payload)

    def describe(self, message: BaseMessage, turn_id: str) -> EntryMetadata:
        return describe(message, turn_id)

    def encode_import(self, messages: object, *, repair: bool) -> bytes:
        return stored_import(messages, repair=repair, codec=self._codec)

    def decode_import(self, blob: bytes, turn_id: str) -> tuple[Sequence[BaseMessage], Sequence[EntryMetadata]]:
        messages, _ = read_import(blob, self._codec)
        return messages, [describe(one, turn_id, source=IMPORT) for one in messages]

    def repairs_of(self, blob: bytes) -> Sequence[ImportRepair]:
        return read_import(blob, self._codec)[1]

    def state_of(
        self, messages: Sequence[BaseMessage], extras: Mapping[str, object], parts: Mapping[str, bytes]
    ) -> Mapping[str, object]:
        """A lane's committed graph state: the values of the graph's channels, messages among them."""
        return self._lane.values(_blob_of(extras), messages, parts)

    # Outputs ----------------------------------------------------------------------------------------------------------

    def output_of(self, message: BaseMessage) -> object:
        return str(message.text)

    def decode_output(self, output: str) -> object:
        return self._lane.output.decode(output)

    def decode_typed(self, output: str, output_type: str) -> object:
        return self._lane.output.decode(output, output_type)

    # Steps ------------------------------------------------------------------------------------------------------------

    async def step(self, work: StepWork[BaseMessage]) -> StepResult[BaseMessage]:
        stop_sdk_retries()
        let_models_compact()
        if work.scope.compaction is not None:
            check_threshold(self._asked, work.scope.compaction)
        try:
            return await self._superstep(work)
        except PrefixChanged as changed:
            await mark_stale(work.journal, changed)
        return await self._superstep(work)

    async def _superstep(self, work: StepWork[BaseMessage]) -> StepResult[BaseMessage]:
        context = await self._make_context(work.conversation)
        committed = _blob_of(work.extras)
        if work.state is None:
            # What a provider remembers of a history that was made elsewhere may be of another one.
            live = max(int(str(work.extras.get("live", 0))), imported(work.entries))
            step = Superstep(self._lane, work, context=context, live=live, state=None, committed=committed)
            given = opened_with(work.opening, self._prompt.decode(work.prompt, turn_id=work.turn_id))
            position = await step.begin(given, live=live)
        else:
            position, state = Position.from_bytes(work.state)
            step = Superstep(self._lane, work, context=context, live=position.live, state=state, committed=committed)
        steered = [(turn_id, self._prompt.decode(prompt, turn_id=turn_id)) for turn_id, prompt in work.steered]
        with calls_once(work.journal, self._lane.serde), readable(work.archive, self._codec):
            result = await step.run(position, steered)
        if result.done and self.text_window is not None:
            return replace(result, reply=reply_of(result, work.history))
        return result

    async def compact(self, work: StepWork[BaseMessage], compaction: Compaction) -> StepResult[BaseMessage]:
        """Sum up the lane's history: see `Conversation.compact`."""
        if self.text_window is not None:
            return unchanged("the agent's turns begin with a text window, not with the lane's history")
        return await compacted(
            self._lane,
            work,
            compaction,
            processor=in_force([self.processing, work.scope.processing]).processor,
            models=self._models,
            live=max(int(str(work.extras.get("live", 0))), imported(work.entries)),
        )

    async def _make_context(self, conversation: str) -> object:
        if self._context_factory is None:
            return self._context
        made = self._context_factory(conversation)
        return await made if inspect.isawaitable(made) else made

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Nothing is held: a graph's tools and clients are its own."""
        yield


def _blob_of(extras: Mapping[str, object]) -> bytes | None:
    """The graph's state, as it is kept beside the history."""
    graph = extras.get("graph")
    return None if graph is None else b64decode(str(graph))
