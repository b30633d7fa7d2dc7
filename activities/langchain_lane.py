"""A graph as a lane runs it: what of its state is stored, and how it comes back."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph._internal._config import ensure_config
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.pregel._checkpoint import empty_checkpoint

from laneway.activities.adapter import StepWork
from laneway.activities.arguments import AdapterArguments
from laneway.activities.framing import FramingMemory
from laneway.activities.langchain_checkpoint import ROOT, StepSaver
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_framing import GraphFraming
from laneway.activities.langchain_graphs import Graph
from laneway.activities.langchain_output import OutputFinder
from laneway.activities.langchain_run import borrowed
from laneway.activities.langchain_state import Saved, Spaces, StateCodec, Stored
from laneway.activities.langchain_traits import ModelTraits
from laneway.langgraph_encoder import Snapshot

__all__ = ["LaneGraph"]

_NO_THREAD: Final = "-"


@dataclass(frozen=True)
class LaneGraph:
    """A graph, and how a lane runs it.

    Attributes:
        graph: the graph.
        messages_key: the channel of its messages.
        config: LangChain's configuration of each run.
        serde: what stores its state.
        codec: what stores its messages.
        output: says what a turn comes to.
        models: the nodes that ask a model with the messages, and what is known of these models.
        given: the adapter's arguments.
        owner: the adapter.
        tools: the names of the tools that are found in the graph.
        framings: what each lane's last request carried beside its history.
    """

    graph: Graph
    messages_key: str
    config: Mapping[str, Any]
    serde: SerializerProtocol
    codec: MessageCodec
    output: OutputFinder
    models: Mapping[str, ModelTraits]
    given: AdapterArguments
    owner: object
    tools: frozenset[str] = frozenset()
    framings: FramingMemory[GraphFraming] = field(default_factory=FramingMemory[GraphFraming])

    @property
    def limit(self) -> int:
        """How many supersteps a turn may have."""
        whole: Any = ensure_config(self.graph.config, cast("Any", self.config))
        return int(whole["recursion_limit"])

    def load(
        self,
        blob: bytes | None,
        messages: Sequence[BaseMessage],
        *,
        parts: Mapping[str, bytes],
        held: bytes | None = None,
    ) -> Spaces:
        """What is stored of a graph's state, put together with its messages.

        Args:
            blob: as `dump` gave it; None where nothing is stored.
            messages: the messages.
            parts: at least the large parts that `dump` named.
            held: what `dump` was given.

        Raises:
            CheckpointLost: a part is missing.
            StoreError: it was altered, or holds a type that is not on the allow-list.
        """
        spaces = {} if blob is None else StateCodec(self.serde, messages, held=held, parts=parts).load_spaces(blob)
        if messages or ROOT in spaces:
            root = spaces.setdefault(ROOT, [Saved(empty_checkpoint(), {"step": -1})])[-1]
            self.put_messages(root, messages)
        return spaces

    def values(
        self, blob: bytes | None, messages: Sequence[BaseMessage], parts: Mapping[str, bytes]
    ) -> dict[str, object]:
        """The values of a graph's channels, as they are stored. Raises as `load` does."""
        graph = borrowed(self.graph, StepSaver(_NO_THREAD, self.load(blob, messages, parts=parts)), taken=0)
        values: dict[str, object] = graph.get_state({"configurable": {"thread_id": _NO_THREAD}}).values
        return values

    def dump(
        self,
        spaces: Spaces,
        messages: Sequence[BaseMessage],
        *,
        parts: Mapping[str, bytes],
        held: bytes | None = None,
    ) -> Stored:
        """What `load` is given.

        Args:
            spaces: the state.
            messages: the messages.
            parts: the large parts that are stored already.
            held: state that is stored elsewhere for as long as this is: what the two have in common is left out.

        Raises:
            SerializationFailed: the value of a channel cannot be stored.
        """
        codec = StateCodec(self.serde, messages, held=held, parts=parts)
        return codec.dump_spaces(spaces, without=self.messages_key)

    async def committed(
        self,
        work: StepWork[BaseMessage],
        spaces: Spaces,
        messages: Sequence[BaseMessage],
        *,
        parts: Mapping[str, bytes] | None = None,
    ) -> dict[str, object]:
        """What is kept beside the history from a commit on. Large parts are kept with the turn by then.

        Args:
            work: the step that commits.
            spaces, messages: the graph's state.
            parts: the large parts that are stored already; None for those that the step began with.

        Raises:
            SerializationFailed: the value of a channel cannot be stored.
        """
        stored = self.dump(spaces, messages, parts=work.parts if parts is None else parts)
        if stored.new:
            await work.keep(stored.new)
        extras: dict[str, object] = {**work.extras, "graph": b64encode(stored.blob).decode()}
        extras.pop("parts", None)
        if stored.names:
            extras["parts"] = list(stored.names)
        return extras

    def put_messages(self, root: Saved, messages: Sequence[BaseMessage]) -> None:
        """Have a checkpoint hold these messages."""
        value: object = list(messages)
        if isinstance(self.graph.channels[self.messages_key], DeltaChannel):
            value = Snapshot(value)
        root.checkpoint["channel_values"][self.messages_key] = value
        root.checkpoint["channel_versions"].setdefault(self.messages_key, 1)
