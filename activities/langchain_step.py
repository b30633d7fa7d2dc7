"""One superstep of a graph: from the lane's history and stored state to what follows them."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import GraphRecursionError
from langgraph.types import StateSnapshot

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.hooks import AfterModelRequest
from laneway.activities.langchain_budget import GraphBudget, Sized
from laneway.activities.langchain_checkpoint import ROOT, StepSaver, checkpoint_name
from laneway.activities.langchain_compaction import compacting
from laneway.activities.langchain_framing import FramingWatch
from laneway.activities.langchain_lane import LaneGraph
from laneway.activities.langchain_models import told_apart
from laneway.activities.langchain_position import Position
from laneway.activities.langchain_prompt import GraphInput
from laneway.activities.langchain_run import UNSEEN, StepListener, borrowed, run_graph, run_values
from laneway.activities.langchain_state import Saved, Spaces, StateCodec, Stored
from laneway.activities.langchain_telemetry import GraphSpans
from laneway.activities.langchain_tools import HookStopped, ToolGate
from laneway.activities.langchain_view import StepMessages
from laneway.activities.langchain_waiting import requests_of, resume_with
from laneway.history.records import TurnUsage
from laneway.history.scopes import CompactionInForce
from laneway.langgraph_encoder import Snapshot

__all__ = ["Superstep"]

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
        self._messages = StepMessages(lane, work, live=live)
        # The head does not move while the turn runs, so what is staged need not hold again what the head holds.
        self._committed = committed
        self._parts = dict(work.parts)
        blob = committed if state is None else state
        spaces = lane.load(blob, self._messages.shown.messages, parts=self._parts, held=committed)
        self._saver = StepSaver(work.conversation, spaces)
        given: Mapping[str, object] = lane.config.get("configurable") or {}
        self._config = {**lane.config, "configurable": {**given, **_names_of(work)}}
        self._framing: FramingWatch | None = None
        self._budget: GraphBudget | None = None
        self._compaction: CompactionInForce | None = None
        self._records = 0
        self._tools = ToolGate(work) if work.hooks.has("before_tool", "after_tool") else None

    async def begin(self, given: GraphInput, *, live: int) -> Position:
        """Give the graph a turn's input: up to its first node."""
        listener = StepListener(self._work.emit, TurnUsage())
        update = {**given.state, self._lane.messages_key: list(given.messages)}
        snapshot = await self._run(update, listener, taken=0)
        self._settle(snapshot, step=self._work.step)
        root, messages = self._saver.root, self._messages
        messages.grow(root)
        return Position(
            next=list(snapshot.next),
            origin=root.metadata.get("step", 0),
            begun=_version(root, self._lane.output.channel),
            live=live if messages.is_staged else len(messages.history.messages),
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
        messages = self._messages
        asking = [name for name in position.next if name in self._lane.models]
        if asking and not self._work.answers:
            position = messages.steer(position, steered)
        if asking:
            position = await messages.prepare(position, asking)
        messages.show(position, self._saver.root, asks=bool(asking))
        shown, history = messages.shown.messages, messages.history
        if self._work.account.is_limited:
            self._budget = GraphBudget(self._work.account, self._lane.tools, messages.watch)
            self._budget.begin(
                Sized.of(shown, history.messages, history.entries, live=position.live, framing=position.framing)
            )
        model_id = self._lane.models[asking[0]].model_id if asking else ""
        if asking:
            self._framing = FramingWatch(self._lane.framings, self._work.lane_id, shown)
            self._compaction = self._work.scope.compaction
            await self._work.hooks.before_model_request(
                step=self._work.step, request_index=position.asked_models + 1, model_id=model_id
            )
        root, begun = self._saver.root, {name: len(chain) for name, chain in self._saver.spaces.items()}
        # Not a continuation to LangGraph: see `langchain_run`.
        root.checkpoint["versions_seen"][UNSEEN] = dict(root.checkpoint["channel_versions"])
        codec = StateCodec(
            self._lane.serde,
            history.messages,
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

        self._saver.keep_with(keep)
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

    async def _run(self, given: object, listener: StepListener, *, taken: int, resumes: bool = False) -> StateSnapshot:
        lane = self._lane
        graph = borrowed(lane.graph, self._saver, taken=taken)
        budget = self._budget
        handlers: list[BaseCallbackHandler] = [listener]
        if self._work.telemetry is not None:
            handlers.append(GraphSpans(self._work.telemetry))
        handlers += [one for one in (self._messages.watch, self._framing) if one is not None]
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
        known = {message.id for message in self._messages.shown.messages}
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

    # What is kept before the step ends --------------------------------------------------------------------------------

    async def _keep(self, stored: Stored) -> None:
        """Keep the large parts of what is about to be stored."""
        if stored.new:
            await self._work.keep(stored.new)
            self._parts.update(stored.new)

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

    async def _result(self, snapshot: StateSnapshot, position: Position, used: TurnUsage) -> StepResult[BaseMessage]:
        lane, root = self._lane, self._saver.root
        done = not position.next
        seen = self._messages
        before = {id(message) for message in seen.history.messages}
        known = {message.id for message in seen.history.messages}
        kept = seen.grow(root)
        await seen.bound(before)
        messages = seen.history.messages
        if not kept:
            position = replace(position, live=len(messages))
        position = seen.take_compaction(position, known)
        if seen.watch is not None:
            position = replace(position, prefix=seen.watch.after(messages))
        if self._budget is not None:
            position = replace(position, framing=self._budget.framing_after(messages))
        if done:
            for name in run_values(lane.graph):
                root.checkpoint["channel_values"].pop(name, None)
                root.checkpoint["channel_versions"].pop(name, None)
        result = replace(seen.result(), usage=used)
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

    async def _waiting(
        self, snapshot: StateSnapshot, position: Position, begun: Mapping[str, int], used: TurnUsage
    ) -> StepResult[BaseMessage]:
        """What the superstep began from is staged; what it has come to is in the journal already."""
        result = replace(
            self._messages.result(), usage=used, requests=requests_of(self._work, snapshot, self._lane.given.delegates)
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
        stored = self._lane.dump(spaces, self._messages.history.messages, parts=self._parts, held=self._committed)
        await self._keep(stored)
        return position.to_bytes(stored.blob)


def _names_of(work: StepWork[BaseMessage]) -> Mapping[str, object]:
    """By which names nodes and tools find the conversation and the turn in their configuration."""
    return {"thread_id": work.conversation, "turn_id": work.turn_id}


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
