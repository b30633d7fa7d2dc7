"""One superstep of a graph: from the lane's history and stored state to what follows them."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import GraphRecursionError
from langgraph.types import StateSnapshot

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.hooks import AfterModelRequest
from laneway.activities.langchain_archive import archive_before, bounded
from laneway.activities.langchain_budget import GraphBudget, Sized
from laneway.activities.langchain_checkpoint import ROOT, StepSaver, checkpoint_name
from laneway.activities.langchain_compaction import compacted_at, compacting, receipt_of_compaction
from laneway.activities.langchain_editing import DIALECT, NodeRequest, describe
from laneway.activities.langchain_framing import FramingWatch, sent_prefix
from laneway.activities.langchain_growth import History, grown, has_open_calls, shown
from laneway.activities.langchain_lane import LaneGraph
from laneway.activities.langchain_models import told_apart
from laneway.activities.langchain_position import Position
from laneway.activities.langchain_prefix import PrefixWatch, is_stale, released
from laneway.activities.langchain_prompt import GraphInput
from laneway.activities.langchain_recorded import edit_once
from laneway.activities.langchain_run import UNSEEN, StepListener, borrowed, run_graph, run_values
from laneway.activities.langchain_state import Saved, Spaces, StateCodec, Stored
from laneway.activities.langchain_telemetry import GraphSpans
from laneway.activities.langchain_tools import HookStopped, ToolGate
from laneway.activities.langchain_traits import ModelTraits
from laneway.activities.langchain_waiting import requests_of, resume_with
from laneway.history.editing import EditOutcome, EditReceipt
from laneway.history.model_calls import ModelCalls
from laneway.history.prefix import receipts_of
from laneway.history.records import TurnUsage
from laneway.history.scopes import CompactionInForce, in_force
from laneway.langgraph_encoder import Snapshot

__all__ = ["Superstep", "with_calls"]

_OF_A_TASK: Final = ":"
"""In the name of a namespace that is a task's own, and of no use when the task is done."""


class Superstep:
    """Takes one step.

    Args:
        lane: the graph.
        work: the step.
        context: LangGraph's runtime context.
        live: see `Position`.
        state: the graph's state, as it was staged last; None at the start of a turn.
        committed: as it was committed last.
    """

    def __init__(
        self,
        lane: LaneGraph,
        work: StepWork[BaseMessage],
        *,
        context: object,
        live: int,
        state: bytes | None,
        committed: bytes | None,
    ) -> None:
        self._lane = lane
        self._work = work
        self._context = context
        self._history = History(work.history, work.entries)
        # How many of its messages Redis has; None where it has another history.
        self._staged: int | None = len(work.history)
        self._shown = shown(work.history, live=live, asks=False)
        # Of each message of the history the copy that was shown, where it is as it was.
        self._copies: Sequence[BaseMessage | None] = self._shown.copies_of(work.history)
        # The head does not move while the turn runs, so what is staged need not hold again what the head holds.
        self._committed = committed
        self._parts = dict(work.parts)
        blob = committed if state is None else state
        spaces = lane.load(blob, self._shown.messages, parts=self._parts, held=committed)
        self._saver = StepSaver(work.conversation, spaces)
        given: Mapping[str, object] = lane.config.get("configurable") or {}
        self._config = {**lane.config, "configurable": {**given, **_names_of(work)}}
        self._archived: EditOutcome[BaseMessage] | None = None
        self._edited: EditOutcome[BaseMessage] | None = None
        self._released: EditOutcome[BaseMessage] | None = None
        self._watch: PrefixWatch | None = None
        self._framing: FramingWatch | None = None
        self._budget: GraphBudget | None = None
        self._compacted: EditReceipt | None = None
        self._compaction: CompactionInForce | None = None
        self._records = 0
        self._tools = ToolGate(work) if work.hooks.has("before_tool", "after_tool") else None
        self._took: list[str] = []

    async def begin(self, given: GraphInput, *, live: int) -> Position:
        """Give the graph a turn's input: up to its first node."""
        listener = StepListener(self._work.emit, TurnUsage())
        update = {**given.state, self._lane.messages_key: list(given.messages)}
        snapshot = await self._run(update, listener, taken=0)
        self._settle(snapshot, step=self._work.step)
        self._grow()
        root = self._saver.root
        return Position(
            next=list(snapshot.next),
            origin=root.metadata.get("step", 0),
            begun=_version(root, self._lane.output.channel),
            live=live if self._staged is not None else len(self._history.messages),
            asked=given.messages[-1].id if given.messages else None,
            used=listener.used,
            prefix=cast("str | None", self._work.extras.get("prefix")),
            framing=int(str(self._work.extras.get("framing", 0))),
            given=len(given.messages),
        )

    async def run(self, position: Position, steered: Sequence[tuple[str, GraphInput]] = ()) -> StepResult[BaseMessage]:
        """Run the nodes that are next; those that ask a model are given what came while the turn ran before."""
        if not position.next:
            return await self._result(await self._snapshot(), position, position.used)
        asking = [name for name in position.next if name in self._lane.models]
        if asking and not self._work.answers:
            position = self._steer(position, steered)
        if asking:
            models = [self._lane.models[name] for name in asking]
            traits = replace(models[0], binds_reasoning=any(one.binds_reasoning for one in models))
            if not position.edited:
                position = await self._archive(position, traits)
                position = await self._edit(position, traits)
            if traits.binds_reasoning:
                position = self._keep_prefix(position, traits)
        self._show(position, asks=bool(asking))
        if self._work.account.is_limited:
            self._budget = GraphBudget(self._work.account, self._lane.tools, self._watch)
            history = self._history
            self._budget.begin(
                Sized.of(
                    self._shown.messages,
                    history.messages,
                    history.entries,
                    live=position.live,
                    framing=position.framing,
                )
            )
        model_id = self._lane.models[asking[0]].model_id if asking else ""
        if asking:
            self._framing = FramingWatch(self._lane.framings, self._work.lane_id, self._shown.messages)
            self._compaction = self._work.scope.compaction
            await self._work.hooks.before_model_request(
                step=self._work.step, request_index=position.asked_models + 1, model_id=model_id
            )
        root, begun = self._saver.root, {name: len(chain) for name, chain in self._saver.spaces.items()}
        # Not a continuation to LangGraph: see `langchain_run`.
        root.checkpoint["versions_seen"][UNSEEN] = dict(root.checkpoint["channel_versions"])
        codec = StateCodec(
            self._lane.serde,
            self._history.messages,
            growing=True,
            held=self._committed,
            parts=self._parts,
            copies=True,
        )
        listener = StepListener(self._work.emit, self._replay(codec, position.used))
        try:
            return await self._run_nodes(position, listener, codec, begun, asking=len(asking), model_id=model_id)
        except Exception:
            self._say_rest(listener)
            await self._saver.keep_rest()
            raise
        finally:
            listener.rest()

    async def _run_nodes(
        self,
        position: Position,
        listener: StepListener,
        codec: StateCodec,
        begun: Mapping[str, int],
        *,
        asking: int,
        model_id: str,
    ) -> StepResult[BaseMessage]:
        """Run them, and say what comes of it; `asking` of them ask a model."""
        taken = self._saver.root.metadata.get("step", 0) - position.origin
        resumes = self._resumes(begun)

        async def keep(header: object, values: Sequence[tuple[str, Any]]) -> None:
            used = list(asdict(listener.used).values())
            stored = codec.store([header, used], values)
            await self._keep(stored)
            await self._work.journal.finish(self._next_record(), stored.blob)

        self._saver.keep_with(keep, quiet=self._quiet(position))
        snapshot = await self._run(resume_with(self._work), listener, taken=taken, resumes=resumes)
        self._saver.keep_with(None)
        if snapshot.interrupts:
            result = await self._waiting(snapshot, position, begun, listener.used)
            return replace(result, said=listener.rest())
        if self._tools is not None:
            await self._tools.tell()
        if asking:
            await self._tell_answer(snapshot, request_index=position.asked_models + 1, model_id=model_id)
        taken = self._saver.root.metadata.get("step", 0) - position.origin
        if taken >= self._lane.limit:
            raise GraphRecursionError(
                f"the turn took {taken} steps without coming to an end, and its recursion_limit is {self._lane.limit}: "
                "raise it with LangChainAdapter(config={'recursion_limit': ...})"
            )
        self._settle(snapshot, step=self._work.step + 1)
        asked = bool(asking) or listener.used.requests > position.used.requests
        position = replace(position, next=list(snapshot.next), asked_models=position.asked_models + asking)
        result = await self._result(snapshot, replace(position, edited=False), listener.used)
        return replace(result, asked=asked, said=listener.rest())

    def _quiet(self, position: Position) -> Collection[str]:
        """The channels whose writes need not be kept before the step's end: see `langchain_quiet`."""
        is_alone = len(position.next) == 1
        is_told = self._tools is not None or self._work.hooks.has("after_model_request")
        return self._lane.quiet if is_alone and not is_told and self._budget is None else ()

    def _steer(self, position: Position, steered: Sequence[tuple[str, GraphInput]]) -> Position:
        """Let messages that came while the turn ran follow the history, in order, up to the first that cannot."""
        if has_open_calls(self._history.messages):
            return position  # their results come first
        for turn_id, given in steered:
            if given.state or not all(isinstance(one, HumanMessage) for one in given.messages):
                break
            entries = [describe(one, self._work.turn_id) for one in given.messages]
            self._history = History([*self._history.messages, *given.messages], [*self._history.entries, *entries])
            self._took.append(turn_id)
            position = replace(position, asked=given.messages[-1].id)
        return position

    async def _run(self, given: object, listener: StepListener, *, taken: int, resumes: bool = False) -> StateSnapshot:
        lane = self._lane
        graph = borrowed(lane.graph, self._saver, taken=taken)
        budget = self._budget
        handlers: list[BaseCallbackHandler] = [listener]
        if self._work.telemetry is not None:
            handlers.append(GraphSpans(self._work.telemetry))
        handlers += [one for one in (self._watch, self._framing) if one is not None]
        if self._tools is not None:
            graph = self._tools.guarded(graph)
            handlers.append(self._tools.watch)
        if budget is not None:
            handlers.extend(budget.handlers)
        try:
            with compacting(self._compaction):
                await run_graph(
                    graph,
                    given,
                    self._config,
                    handlers,
                    resumes=resumes,
                    stream=lane.given.stream is not False,
                    context=self._context,
                )
        except BaseException as error:
            await self._saver.given_up()
            if budget is not None:
                with suppress(Exception):  # then what was reserved stays, and the error is the other one
                    await budget.settle()
                if budget.stopped is not None:
                    raise budget.stopped from None
            if isinstance(error, HookStopped):
                raise error.error from error
            if isinstance(error, Exception) and listener.is_of_a_model(error):
                raise told_apart(error) from error
            raise
        await self._saver.kept()
        if budget is not None:
            await budget.settle()
            if budget.stopped is not None:  # a node that catches everything went on without it
                raise budget.stopped
        return await graph.aget_state(cast("Any", {"configurable": {"thread_id": self._work.conversation}}))

    def _say_rest(self, listener: StepListener) -> None:
        for kind, data in listener.rest():
            self._work.emit(kind, data)

    async def _tell_answer(self, snapshot: StateSnapshot, *, request_index: int, model_id: str) -> None:
        """Tell hooks of what models answered: it is kept by now."""
        hooks, work = self._work.hooks, self._work
        if not hooks.has("after_model_request"):
            return
        known = {message.id for message in self._shown.messages}
        found: Sequence[BaseMessage] = snapshot.values.get(self._lane.messages_key, ())
        answers = [one for one in found if isinstance(one, AIMessage) and one.id not in known]
        event = AfterModelRequest(
            **hooks.place,
            step=work.step,
            request_index=request_index,
            model_id=model_id,
            text="".join(str(answer.text) for answer in answers),
            tools=tuple(call["name"] for answer in answers for call in answer.tool_calls),
        )
        await hooks.ask("after_model_request", event, key=str(request_index))

    async def _snapshot(self) -> StateSnapshot:
        graph = borrowed(self._lane.graph, self._saver, taken=0)
        return await graph.aget_state(cast("Any", {"configurable": {"thread_id": self._work.conversation}}))

    # What the graph is shown ------------------------------------------------------------------------------------------

    async def _archive(self, position: Position, traits: ModelTraits) -> Position:
        """Let old tool exchanges of the turn give way to a checkpoint."""
        lane, work = self._lane, self._work
        if lane.given.archival is None:
            return position
        outcome = await archive_before(
            self._request(position, traits),
            lane.given.archival,
            owner=lane.owner,
            archived=work.archive,
            journal=work.journal,
            codec=lane.codec,
            given=position.given,
        )
        self._archived = outcome
        return position if outcome is None else self._rewritten(position, outcome)

    async def _edit(self, position: Position, traits: ModelTraits) -> Position:
        """Let the history processor in force edit what model nodes are about to read."""
        lane, work = self._lane, self._work
        processing = in_force([lane.given.processing, work.scope.processing])
        if processing.processor is None:
            return position
        calls = ModelCalls(
            work.journal,
            framing=lane.framings.get(work.lane_id),
            prefix=partial(sent_prefix, self._history.messages, position.live),
            admit=work.account.admit,
            settle=work.account.settle,
            earlier=work.earlier_calls,
        )
        request = replace(self._request(position, traits), calls=calls)
        outcome = await edit_once(request, processing, owner=lane.owner, journal=work.journal, codec=lane.codec)
        self._edited = outcome
        return self._rewritten(replace(position, used=with_calls(position.used, outcome.receipt)), outcome)

    def _rewritten(self, position: Position, outcome: EditOutcome[BaseMessage]) -> Position:
        """Take up what an edit has made of the history."""
        if outcome.verdict != "accepted":
            return position
        self._history, self._staged, self._copies = History(outcome.messages, outcome.entries), None, ()
        return replace(position, live=len(outcome.messages))

    def _request(self, position: Position, traits: ModelTraits) -> NodeRequest:
        work = self._work
        return NodeRequest(
            messages=self._history.messages,
            entries=self._history.entries,
            turn_id=work.turn_id,
            request_index=position.asked_models + 1,
            cache_epoch=work.checkpoint.epoch,
            history_version=f"{work.checkpoint}+{work.step}",
            live=position.live,
            model=traits,
        )

    def _keep_prefix(self, position: Position, traits: ModelTraits) -> Position:
        """Have reasoning meet what it was signed under: release it where an attempt before this found that it does not.

        Raises:
            HistoryProcessingValidationError: the cycle that runs holds such reasoning.
        """
        if is_stale(self._work.journal):
            outcome = released(self._request(position, traits), owner=self._lane.owner)
            self._released = outcome
            position = self._rewritten(position, outcome)
        bound = {name for message in self._history.messages for name in DIALECT.bound_reasoning(message)}
        self._watch = PrefixWatch(position.prefix, bound)
        return position

    def _show(self, position: Position, *, asks: bool) -> None:
        self._shown = shown(self._history.messages, live=position.live, asks=asks, copies=self._copies)
        if self._shown.messages or self._lane.messages_key in self._saver.root.checkpoint["channel_versions"]:
            self._lane.put_messages(self._saver.root, self._shown.messages)

    async def _keep(self, stored: Stored) -> None:
        """Keep the large parts of what is about to be stored."""
        if stored.new:
            await self._work.keep(stored.new)
            self._parts.update(stored.new)

    # What earlier attempts kept ---------------------------------------------------------------------------------------

    def _next_record(self) -> str:
        self._records += 1
        return f"g{self._records}"

    def _replay(self, codec: StateCodec, used: TurnUsage) -> TurnUsage:
        """Take up what earlier attempts at the superstep kept; what they had used until then."""
        while (blob := self._work.journal.finished(f"g{self._records + 1}")) is not None:
            self._records += 1
            (header, figures), values = codec.load(blob)
            self._saver.replay(header, values)
            used = TurnUsage(*figures)
        return used

    def _resumes(self, begun: Mapping[str, int]) -> bool:
        """Whether subgraphs go on from what earlier attempts kept of them.

        LangGraph tells that to all of a superstep's subgraphs or to none. One that keeps its state from turn to turn,
        and had not begun when another had, would take up its last turn's run: then the others begin again.
        """
        spaces = self._saver.spaces
        started = [name for name, chain in spaces.items() if name != ROOT and len(chain) > begun.get(name, 0)]
        if not any(name != ROOT and name not in started for name in begun):
            return bool(started)
        for name in started:
            del spaces[name][begun.get(name, 0) :]
            if not spaces[name]:
                del spaces[name]
        return False

    # What comes of it -------------------------------------------------------------------------------------------------

    def _settle(self, snapshot: StateSnapshot, *, step: int) -> None:
        """Make the graph's latest checkpoint the one that its next superstep runs from."""
        root, graph = self._saver.root, self._lane.graph
        checkpoint = root.checkpoint
        # The next attempt at what follows must give its tasks the same ids.
        checkpoint["id"] = checkpoint_name(self._work.lane_id, self._work.turn_id, step)
        root.parent_id = None
        root.metadata.pop("counters_since_delta_snapshot", None)
        values: Mapping[str, Any] = snapshot.values
        for name, channel in graph.channels.items():
            if isinstance(channel, DeltaChannel) and name in values and name in checkpoint["channel_versions"]:
                checkpoint["channel_values"][name] = Snapshot(values[name])
        spaces = self._saver.spaces
        for namespace in list(spaces):
            if _OF_A_TASK in namespace:
                del spaces[namespace]
            else:
                spaces[namespace] = [root] if namespace == ROOT else _needed(spaces[namespace])

    def _grow(self) -> bool:
        """Take up what the graph has made of its messages; whether they only grew."""
        work, key = self._work, self._lane.messages_key
        value = _unwrapped(self._saver.root.checkpoint["channel_values"].get(key, []))
        name = f"{work.turn_id}/{work.step}"
        self._history, kept, self._copies = grown(
            self._history, self._shown, value, channel=key, turn_id=work.turn_id, name=name
        )
        if not kept:
            self._staged = None
        return kept

    def _so_far(self) -> StepResult[BaseMessage]:
        """What was not staged yet: of the history, and of what its editing did."""
        history, staged, edited = self._history, self._staged, self._edited
        result: StepResult[BaseMessage] = StepResult(
            appended=() if staged is None else history.messages[staged:],
            rewritten=history.messages if staged is None else None,
            entries=history.entries if staged is None else history.entries[staged:],
            state=b"",
            usage=TurnUsage(),
            took=tuple(self._took),
        )
        receipts = receipts_of((self._archived, edited, self._released))
        if self._compacted is not None:
            receipts = (*receipts, self._compacted)
        if edited is None:
            return replace(result, edits=receipts)
        return replace(
            result,
            edits=receipts,
            noops=int(edited.verdict == "no-op"),
            skips=int(edited.verdict == "skipped"),
        )

    async def _result(self, snapshot: StateSnapshot, position: Position, used: TurnUsage) -> StepResult[BaseMessage]:
        lane, root = self._lane, self._saver.root
        done = not position.next
        before = {id(message) for message in self._history.messages}
        known = {message.id for message in self._history.messages}
        kept = self._grow()
        self._history = await bounded(
            self._history,
            before,
            max_bytes=lane.given.max_result_bytes,
            archived=None if lane.given.archival is None else self._work.archive,
            turn_id=self._work.turn_id,
        )
        messages = self._history.messages
        if not kept:
            position = replace(position, live=len(messages))
        position = self._take_compaction(position, known)
        if self._watch is not None:
            position = replace(position, prefix=self._watch.after(messages))
        if self._budget is not None:
            position = replace(position, framing=self._budget.framing_after(messages))
        if done:
            for name in run_values(lane.graph):
                root.checkpoint["channel_values"].pop(name, None)
                root.checkpoint["channel_versions"].pop(name, None)
        result = replace(self._so_far(), usage=used)
        if not done:
            return replace(result, state=await self._stored(replace(position, used=used), self._saver.spaces))
        extras = await lane.committed(self._work, self._saver.spaces, messages, parts=self._parts)
        if position.live:
            extras["live"] = position.live
        if position.prefix is not None:
            extras["prefix"] = position.prefix
        if position.framing:
            extras["framing"] = position.framing
        is_new = _version(root, lane.output.channel) != position.begun
        output = lane.output.find(_after(messages, position.asked), snapshot.values, is_new=is_new)
        return replace(
            result,
            done=True,
            extras=extras,
            output=output.value,
            output_in_history=output.value is None,
            output_type=output.type,
        )

    def _take_compaction(self, position: Position, known: Collection[str | None]) -> Position:
        """Begin an epoch where an answer of this superstep brought a compaction by its provider."""
        index = compacted_at(self._history.messages)
        if index is None or self._history.messages[index].id in known:
            return position
        traits = next(iter(self._lane.models.values()), ModelTraits())
        # `asked_models` counts the request that brought it by now.
        request = replace(self._request(position, traits), request_index=position.asked_models)
        self._compacted, self._staged = receipt_of_compaction(request, index, owner=self._lane.owner), None
        return replace(position, live=index)

    async def _waiting(
        self, snapshot: StateSnapshot, position: Position, begun: Mapping[str, int], used: TurnUsage
    ) -> StepResult[BaseMessage]:
        """What the superstep began from is staged; what it has come to is in the journal already."""
        result = replace(
            self._so_far(), usage=used, requests=requests_of(self._work, snapshot, self._lane.given.delegates)
        )
        if self._work.answers:
            assert self._work.state is not None
            return replace(result, state=self._work.state)
        spaces = {name: self._saver.spaces[name][:length] for name, length in begun.items()}
        spaces[ROOT] = [replace(self._saver.root, writes={})]
        # What is kept of the superstep goes by the history as it is now.
        return replace(result, state=await self._stored(replace(position, edited=True), spaces))

    async def _stored(self, position: Position, spaces: Spaces) -> bytes:
        """What the turn goes on from; its large parts are kept with the turn."""
        stored = self._lane.dump(spaces, self._history.messages, parts=self._parts, held=self._committed)
        await self._keep(stored)
        return position.to_bytes(stored.blob)


def _names_of(work: StepWork[BaseMessage]) -> Mapping[str, object]:
    """By which names nodes and tools find the conversation and the turn in their configuration."""
    return {"thread_id": work.conversation, "turn_id": work.turn_id}


def with_calls(used: TurnUsage, receipt: EditReceipt | None) -> TurnUsage:
    """What was used, the model calls of history processors included."""
    for call in receipt.calls if receipt is not None else ():
        figures = {name: getattr(used, name) + spent for name, spent in asdict(call.usage).items()}
        used = replace(used, **figures)
    return used


def _unwrapped(value: Any) -> object:
    return value.value if type(value) is Snapshot else value


def _version(root: Saved, channel: str) -> int:
    return int(root.checkpoint["channel_versions"].get(channel, 0))


def _after(messages: Sequence[BaseMessage], message_id: str | None) -> Sequence[BaseMessage]:
    """What follows the message of an id; all of it where there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if message_id is not None and messages[index].id == message_id:
            return messages[index + 1 :]
    return messages


def _needed(chain: list[Saved]) -> list[Saved]:
    """Of a namespace's checkpoints those that the latest is made of: more than itself where it has delta channels."""
    first = len(chain) - 1
    while first > 0 and chain[first].metadata.get("counters_since_delta_snapshot"):
        first -= 1
    return chain[first:]
