"""One step of a graph on a lane: what it is given, and what is heard of it while it runs.

The hard fact: LangGraph steps natively, by stopping before every node, but it takes each continuation for the answer to
an interrupt. Subgraphs that keep their state from turn to turn would then take up their last run in place of beginning
a new one, counters of remaining steps would begin anew, and values that live for one run would be gone. So a step marks
in its checkpoint that what comes next was seen, rather than resume; and it lends the graph channels that know the turn.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# LangGraph's packages are typed, but have no marker that says so, and its graphs have open type parameters.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from copy import copy
from dataclasses import asdict, dataclass, replace
from threading import get_ident
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph._internal._constants import CONFIG_KEY_RESUMING
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph.channels.base import BaseChannel
from langgraph.channels.last_value import LastValue
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.errors import GraphBubbleUp
from langgraph.managed.base import ManagedValue
from langgraph.managed.is_last_step import IsLastStepManager, RemainingStepsManager
from pydantic_core import to_jsonable_python

from laneway.activities.journal import shown_arguments
from laneway.activities.langchain_checkpoint import StepSaver
from laneway.activities.langchain_graphs import Graph
from laneway.activities.langchain_models import IN_LANE_REQUEST
from laneway.history.records import EventKind, TurnUsage
from laneway.history.stored_json import any_json, kind_of

__all__ = ["UNSEEN", "StepListener", "borrowed", "run_graph", "run_values"]

Emit = Callable[[EventKind, Mapping[str, object]], None]

UNSEEN: Final = "__interrupt__"
"""Under which name a checkpoint says what was there when the graph went on from it last."""

_PAUSE_SECONDS: Final = 0.02


def run_values(graph: Graph) -> frozenset[str]:
    """The channels whose values live for one run, and are not kept after it."""
    return frozenset(name for name, channel in graph.channels.items() if isinstance(channel, UntrackedValue))


def borrowed(graph: Graph, saver: StepSaver, *, taken: int) -> Graph:
    """A graph for one step: the same but for its saver, and for channels that have to know of the whole turn.

    Args:
        graph: the graph. It is not changed.
        saver: the step's.
        taken: how many supersteps the turn has taken.
    """
    mine = copy(graph)
    mine.checkpointer = saver
    mine.channels = {name: _of_the_turn(name, channel, taken) for name, channel in graph.channels.items()}
    return mine


def _of_the_turn(name: str, channel: BaseChannel[Any, Any, Any] | type[ManagedValue[Any]], taken: int) -> Any:
    if isinstance(channel, UntrackedValue):
        return (LastValue[Any] if channel.guard else _RunValue)(channel.typ, name)
    if isinstance(channel, type) and issubclass(channel, RemainingStepsManager | IsLastStepManager):
        # A continuation is given one step more than a run from the start would have at its first node.
        passed, managed = taken + 2, cast("type[ManagedValue[Any]]", channel)

        class OfTheTurn(managed):  # type: ignore[misc, valid-type]
            @staticmethod
            def get(scratchpad: PregelScratchpad) -> Any:
                return managed.get(replace(scratchpad, stop=scratchpad.stop - passed))

        return OfTheTurn
    return channel


class _RunValue(LastValue[Any]):
    """Holds the last value that was written, of several too."""

    def update(self, values: Sequence[Any]) -> bool:
        return super().update(values[-1:])


async def run_graph(
    graph: Graph,
    given: object,
    config: Mapping[str, Any],
    handlers: Sequence[BaseCallbackHandler],
    *,
    resumes: bool,
    stream: bool,
    context: object,
) -> None:
    """Run a graph up to its next node.

    Args:
        graph: as `borrowed`.
        given: the input; None to run the nodes that are next.
        config: LangChain's configuration.
        handlers: hear what happens; the first is the step's listener.
        resumes: with no input, whether subgraphs go on from where they were stopped.
        stream: whether models are to stream their answers.
        context: LangGraph's runtime context.
    """
    configurable = dict(config.get("configurable") or {})
    if given is None:
        configurable[CONFIG_KEY_RESUMING] = resumes
    callbacks: Any = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        callbacks = [*cast("list[object]", callbacks or []), *handlers]
    else:
        callbacks = callbacks.copy()
        for handler in handlers:
            callbacks.add_handler(handler)
    listener = cast("StepListener", handlers[0])
    whole: Any = {**config, "configurable": configurable, "callbacks": callbacks}
    modes: Any = ["custom", "messages"] if stream else ["custom"]
    async with aclosing(
        cast(
            "Any",
            graph.astream(
                cast("Any", given),
                whole,
                context=cast("Any", context),
                stream_mode=modes,
                subgraphs=True,
                interrupt_before="*",
                durability="sync",
            ),
        )
    ) as chunks:
        async for _, mode, chunk in chunks:
            if mode == "custom":
                listener.say(EventKind.CUSTOM, {"data": to_jsonable_python(chunk, fallback=repr)})
            else:
                listener.hear(chunk[0])


@dataclass
class _Usage:
    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def add(self, used: UsageMetadata | None) -> None:
        self.requests += 1
        if used is None:
            return
        details: Mapping[str, int | None] = cast("Any", used.get("input_token_details") or {})
        self.input_tokens += used.get("input_tokens") or 0
        self.output_tokens += used.get("output_tokens") or 0
        self.cache_read_tokens += details.get("cache_read") or 0
        self.cache_write_tokens += details.get("cache_creation") or 0


class StepListener(BaseCallbackHandler):
    """Hears what a graph's models and tools do in one step: events for the lane's stream, usage, failures.

    Args:
        emit: says something on the lane's stream; called in the event loop's thread.
        used: what was used before.

    Attributes:
        failures: the errors of failed model requests.
    """

    run_inline = True
    """In the context of the request itself, so that it can be told from others."""

    def __init__(self, emit: Emit, used: TurnUsage) -> None:
        super().__init__()
        self._emit = emit
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._heard: list[tuple[EventKind, Mapping[str, object]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._used = _Usage(**asdict(used))
        self._tools: dict[UUID, tuple[str, str | None]] = {}
        self.failures: list[BaseException] = []

    @property
    def used(self) -> TurnUsage:
        """What was used, the step included."""
        return TurnUsage(**vars(self._used))

    def is_of_a_model(self, error: BaseException | None) -> bool:
        """Whether an error is, or was caused by, a failed model request."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            if any(error is failure for failure in self.failures):
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return False

    def say(self, kind: EventKind, data: Mapping[str, object]) -> None:
        """Say something on the lane's stream, from any thread."""
        if get_ident() == self._thread:
            self._say_now(kind, data)
        else:
            self._loop.call_soon_threadsafe(self._say_now, kind, data)

    def rest(self) -> tuple[tuple[EventKind, Mapping[str, object]], ...]:
        """What was heard and not said yet: it is the caller's to say, with what the step ends with."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest, self._heard = tuple(self._heard), []
        return rest

    def hear(self, message: BaseMessage) -> None:
        """Say what a model says: a part of an answer at once, and a whole one that was not streamed soon.

        Such an answer is most often the last that a step says, and costs no write of its own.
        """
        if not isinstance(message, AIMessage | AIMessageChunk):
            return
        say = self.say if isinstance(message, AIMessageChunk) else self._say_soon
        if isinstance(message.content, str):
            if message.content:
                say(EventKind.TEXT_DELTA, {"text": message.content})
            return
        for block in message.content_blocks:
            if block["type"] == "text" and block["text"]:
                say(EventKind.TEXT_DELTA, {"text": block["text"]})
            elif block["type"] == "reasoning" and (thought := block.get("reasoning")):
                say(EventKind.THINKING_DELTA, {"text": thought})

    def _say_now(self, kind: EventKind, data: Mapping[str, object]) -> None:
        self._say_rest()
        self._emit(kind, data)

    def _say_soon(self, kind: EventKind, data: Mapping[str, object]) -> None:
        self._heard.append((kind, data))
        if self._timer is None:
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._say_rest)

    def _say_rest(self) -> None:
        for kind, data in self.rest():
            self._emit(kind, data)

    # What LangChain calls ---------------------------------------------------------------------------------------------

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        IN_LANE_REQUEST.set(True)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        IN_LANE_REQUEST.set(False)
        told: UsageMetadata | None = None
        for generations in response.generations:
            for generation in generations:
                message = generation.message if isinstance(generation, ChatGeneration) else None
                if isinstance(message, AIMessage) and message.usage_metadata is not None:
                    told = message.usage_metadata
        self._used.add(told)

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        IN_LANE_REQUEST.set(False)
        self.failures.append(error)

    def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, inputs: Any = None, **kwargs: Any
    ) -> None:
        call_id: str | None = cast("Any", kwargs.get("tool_call_id"))
        tool = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        self._tools[run_id] = tool, call_id
        shown = input_str
        with suppress(TypeError, ValueError):  # what has no JSON form at all is shown as LangChain shows it
            shown = any_json(inputs, fallback=kind_of).decode() if inputs else input_str
        self.say(EventKind.TOOL_CALLED, {"tool": tool, "call_id": call_id, "arguments": shown_arguments(shown)})

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        failed = isinstance(output, ToolMessage) and output.status == "error"
        self._finished(run_id, "failed" if failed else "returned")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if not isinstance(error, GraphBubbleUp):  # an interrupt: the call is made again when it is answered
            self._finished(run_id, "failed")

    def _finished(self, run_id: UUID, outcome: str) -> None:
        tool, call_id = self._tools.pop(run_id, ("tool", None))
        self._used.tool_calls += 1
        self.say(EventKind.TOOL_FINISHED, {"tool": tool, "call_id": call_id, "outcome": outcome})
