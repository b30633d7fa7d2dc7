"""One superstep of a graph: from the lane's history and stored state to what follows them."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph._internal._config import ensure_config
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.errors import GraphRecursionError
from langgraph.pregel._checkpoint import empty_checkpoint
from langgraph.types import StateSnapshot

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.langchain_checkpoint import ROOT, StepSaver, checkpoint_name
from laneway.activities.langchain_codec import detached
from laneway.activities.langchain_graphs import Graph
from laneway.activities.langchain_growth import Grown, grown, without_response_ids
from laneway.activities.langchain_models import told_apart
from laneway.activities.langchain_output import OutputFinder
from laneway.activities.langchain_prompt import GraphInput
from laneway.activities.langchain_run import UNSEEN, StepListener, borrowed, run_graph, run_values
from laneway.activities.langchain_state import Saved, Spaces, StateCodec
from laneway.errors import ConfigurationError
from laneway.history.records import TurnUsage
from laneway.langgraph_encoder import Snapshot
from laneway.langgraph_records import packb, unpackb

__all__ = ["LaneGraph", "Position", "Superstep"]

_NO_THREAD: Final = "-"
_OF_A_TASK: Final = ":"
"""In the name of a namespace that is a task's own, and of no use when the task is done."""


@dataclass(frozen=True)
class LaneGraph:
    """A graph, and how a lane runs it.

    Attributes:
        graph: the graph.
        messages_key: the channel of its messages.
        config: LangChain's configuration of each run.
        serde: what stores its state.
        output: says what a turn comes to.
        stream: whether models stream their answers.
    """

    graph: Graph
    messages_key: str
    config: Mapping[str, Any]
    serde: SerializerProtocol
    output: OutputFinder
    stream: bool

    @property
    def limit(self) -> int:
        """How many supersteps a turn may have."""
        whole: Any = ensure_config(self.graph.config, cast("Any", self.config))
        return int(whole["recursion_limit"])

    def load(self, blob: bytes | None, messages: Sequence[BaseMessage]) -> Spaces:
        """What is stored of a graph's state, put together with its messages.

        Raises:
            StoreError: it was altered, or holds a type that is not on the allow-list.
        """
        spaces = {} if blob is None else StateCodec(self.serde, messages).load_spaces(blob)
        if messages or ROOT in spaces:
            root = spaces.setdefault(ROOT, [Saved(empty_checkpoint(), {"step": -1})])[-1]
            self.put_messages(root, messages)
        return spaces

    def values(self, blob: bytes | None, messages: Sequence[BaseMessage]) -> dict[str, object]:
        """The values of a graph's channels, as they are stored. Raises as `load` does."""
        graph = borrowed(self.graph, StepSaver(_NO_THREAD, self.load(blob, messages)), taken=0)
        values: dict[str, object] = graph.get_state({"configurable": {"thread_id": _NO_THREAD}}).values
        return values

    def dump(self, spaces: Spaces, messages: Sequence[BaseMessage]) -> bytes:
        """What `load` is given.

        Raises:
            SerializationFailed: the value of a channel cannot be stored.
        """
        return StateCodec(self.serde, messages).dump_spaces(spaces, without=self.messages_key)

    def put_messages(self, root: Saved, messages: Sequence[BaseMessage]) -> None:
        """Have a checkpoint hold these messages."""
        value: object = list(messages)
        if isinstance(self.graph.channels[self.messages_key], DeltaChannel):
            value = Snapshot(value)
        root.checkpoint["channel_values"][self.messages_key] = value
        root.checkpoint["channel_versions"].setdefault(self.messages_key, 1)


@dataclass
class Position:
    """Where a turn is between two supersteps.

    Attributes:
        next: the nodes that are next.
        origin: the number that LangGraph gave the step before the turn's first node.
        begun: the version that the channel with the output had then.
        live: index of the first message that came after the history was written anew; 0 where it never was.
        asked: the id of the last message that the turn was given; None for none.
        used: what the turn has used.
    """

    next: list[str] = field(default_factory=list[str])
    origin: int = 0
    begun: int = 0
    live: int = 0
    asked: str | None = None
    used: TurnUsage = field(default_factory=TurnUsage)

    def to_bytes(self, spaces: bytes) -> bytes:
        """The stored form, together with the graph's state."""
        used = list(asdict(self.used).values())
        fields = [self.next, self.origin, self.begun, self.live, self.asked, used]
        head = json.dumps(fields, separators=(",", ":"))
        return packb([head, spaces])

    @classmethod
    def from_bytes(cls, blob: bytes) -> tuple[Position, bytes]:
        """What `to_bytes` was given."""
        head, spaces = unpackb(blob)
        following, origin, begun, live, asked, used = json.loads(head)
        return cls(following, origin, begun, live, asked, TurnUsage(*used)), spaces


class Superstep:
    """Takes one step.

    Args:
        lane: the graph.
        work: the step.
        context: LangGraph's runtime context.
        live: see `Position`.
        spaces: the graph's state, as it was staged or committed last.
    """

    def __init__(
        self, lane: LaneGraph, work: StepWork[BaseMessage], *, context: object, live: int, state: bytes | None
    ) -> None:
        self._lane = lane
        self._work = work
        self._context = context
        # What a provider remembers from before the history was written anew is not gone on from.
        self._given = [*without_response_ids(work.history[:live]), *map(detached, work.history[live:])]
        self._saver = StepSaver(work.conversation, lane.load(state, self._given))
        given: Mapping[str, object] = lane.config.get("configurable") or {}
        self._config = {**lane.config, "configurable": {**given, "thread_id": work.conversation}}
        self._records = 0

    async def begin(self, given: GraphInput, *, live: int) -> Position:
        """Give the graph a turn's input: up to its first node."""
        listener = StepListener(self._work.emit, TurnUsage())
        update = {**given.state, self._lane.messages_key: list(given.messages)}
        snapshot = await self._run(update, listener, taken=0)
        self._settle(snapshot, step=self._work.step)
        root = self._saver.root
        return Position(
            next=list(snapshot.next),
            origin=root.metadata.get("step", 0),
            begun=_version(root, self._lane.output.channel),
            live=live,
            asked=given.messages[-1].id if given.messages else None,
            used=listener.used,
        )

    async def run(self, position: Position) -> StepResult[BaseMessage]:
        """Run the nodes that are next."""
        if not position.next:
            return self._result(await self._snapshot(), position, position.used)
        root, step = self._saver.root, self._work.step
        taken = root.metadata.get("step", 0) - position.origin
        # Not a continuation to LangGraph: see `langchain_run`.
        root.checkpoint["versions_seen"][UNSEEN] = dict(root.checkpoint["channel_versions"])
        messages = cast("list[BaseMessage]", _messages(root, self._lane.messages_key))
        codec = StateCodec(self._lane.serde, list(messages), growing=True)
        listener = StepListener(self._work.emit, self._replay(codec, position.used))

        async def keep(header: object, values: Sequence[tuple[str, Any]]) -> None:
            used = list(asdict(listener.used).values())
            await self._work.journal.finish(self._next_record(), codec.dump([header, used], values))

        self._saver.keep_with(keep)
        snapshot = await self._run(None, listener, taken=taken)
        self._saver.keep_with(None)
        taken = self._saver.root.metadata.get("step", 0) - position.origin
        if snapshot.interrupts:
            raise ConfigurationError(
                "the graph asks for an answer with interrupt(), and lanes cannot wait for one yet: the turn ends here"
            )
        if taken >= self._lane.limit:
            raise GraphRecursionError(
                f"the turn took {taken} steps without coming to an end, and its recursion_limit is {self._lane.limit}: "
                "raise it with LangChainAdapter(config={'recursion_limit': ...})"
            )
        self._settle(snapshot, step=step + 1)
        return self._result(snapshot, replace(position, next=list(snapshot.next)), listener.used)

    async def _run(self, given: object, listener: StepListener, *, taken: int) -> StateSnapshot:
        graph = borrowed(self._lane.graph, self._saver, taken=taken)
        try:
            await run_graph(graph, given, self._config, listener, stream=self._lane.stream, context=self._context)
        except BaseException as error:
            await self._saver.given_up()
            if isinstance(error, Exception) and listener.is_of_a_model(error):
                raise told_apart(error) from error
            raise
        await self._saver.kept()
        return await graph.aget_state(cast("Any", {"configurable": {"thread_id": self._work.conversation}}))

    async def _snapshot(self) -> StateSnapshot:
        graph = borrowed(self._lane.graph, self._saver, taken=0)
        return await graph.aget_state(cast("Any", {"configurable": {"thread_id": self._work.conversation}}))

    # What earlier attempts kept ---------------------------------------------------------------------------------------

    def _next_record(self) -> str:
        self._records += 1
        return f"g{self._records}"

    def _replay(self, codec: StateCodec, used: TurnUsage) -> TurnUsage:
        """Take up what earlier attempts at the step kept; what they had used until then."""
        while (blob := self._work.journal.finished(f"g{self._records + 1}")) is not None:
            self._records += 1
            (header, figures), values = codec.load(blob)
            self._saver.replay(header, values)
            used = TurnUsage(*figures)
        return used

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

    def _result(self, snapshot: StateSnapshot, position: Position, used: TurnUsage) -> StepResult[BaseMessage]:
        lane, work, root = self._lane, self._work, self._saver.root
        done = not position.next
        current = _messages(root, lane.messages_key)
        after = grown(work.history, self._given, current, channel=lane.messages_key, name=f"{work.turn_id}/{work.step}")
        if not after.kept:
            position = replace(position, live=len(after.messages))
        if done:
            for name in run_values(lane.graph):
                root.checkpoint["channel_values"].pop(name, None)
                root.checkpoint["channel_versions"].pop(name, None)
        spaces = lane.dump(self._saver.spaces, cast("Sequence[BaseMessage]", current))
        result = self._grown(after)
        if not done:
            state = replace(position, used=used).to_bytes(spaces)
            return replace(result, state=state, usage=used)
        extras: dict[str, object] = {**work.extras, "graph": b64encode(spaces).decode()}
        if position.live:
            extras["live"] = position.live
        is_new = _version(root, lane.output.channel) != position.begun
        output = lane.output.find(_after(after.messages, position.asked), snapshot.values, is_new=is_new)
        return replace(
            result, usage=used, done=True, extras=extras, output=output.value, output_in_history=output.value is None
        )

    def _grown(self, after: Grown) -> StepResult[BaseMessage]:
        before = len(self._work.history)
        if after.kept:
            return StepResult(appended=after.messages[before:], state=b"", usage=TurnUsage())
        return StepResult(appended=(), rewritten=after.messages, state=b"", usage=TurnUsage())


def _messages(root: Saved, key: str) -> object:
    return _unwrapped(root.checkpoint["channel_values"].get(key, []))


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
