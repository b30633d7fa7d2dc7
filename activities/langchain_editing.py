"""History editing where a graph is about to run a model node: the one entry for the LangChain adapter.

An edit happens between two supersteps: what the node will read is in the messages channel, and has not been read yet.
The adapter writes what comes out into the channel with `Overwrite`, so that the graph's durable state has it.

What it asks before each model node, in this order:

    outcome = await edit(request, processing, owner=adapter)     # accepted: write it, and set live = len(messages)
    form = request_form(outcome.messages, live=live)             # what the node is given, for this request only
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.langchain_traits import ModelTraits
from laneway.history.budget import RequestEstimate, UsageCheckpoint, estimate_request
from laneway.history.editing import EditOutcome, EditRequest, edit_history
from laneway.history.estimation import estimate_message
from laneway.history.model_calls import ModelCalls
from laneway.history.origins import EntryMetadata
from laneway.history.prefix import release_reasoning
from laneway.history.scopes import HistoryProcessingInForce

__all__ = [
    "DIALECT",
    "IMPORT",
    "NodeRequest",
    "describe",
    "edit",
    "imported",
    "measured",
    "release",
    "request_of",
    "stamped",
    "with_ids",
]

DIALECT: Final = LangChainDialect()
SHORTNAME: Final = "langchain"
IMPORT: Final = "import"
"""The source of messages that were brought from elsewhere."""


def describe(message: BaseMessage, turn_id: str, *, source: str | None = None) -> EntryMetadata:
    """What is known of a message that a turn produced, or that was brought from elsewhere (`source`)."""
    origins = DIALECT.origins(message, run_id=turn_id, source_location=source)
    return EntryMetadata(origins, estimate_message(DIALECT, message))


def imported(entries: Sequence[EntryMetadata]) -> int:
    """How many messages, from the first on, were brought from elsewhere."""
    for index, entry in enumerate(entries):
        if not any(origin.source_location == IMPORT for origin in entry.origins):
            return index
    return len(entries)


def stamped(messages: Sequence[BaseMessage], *, seed: str, given: Iterable[BaseMessage] = ()) -> list[BaseMessage]:
    """The messages, each with an id of its own.

    LangGraph's `add_messages` takes two messages of one id for one, and replaces the earlier. So a message that is new
    gets a new id where it has none, or that of another: a changed copy of a message is not that message. The messages
    that have theirs are the given objects.

    Args:
        messages: a history that is about to be persisted.
        seed: what the ids are made from, with the message's place and content: the same again on another attempt.
        given: messages that keep their ids whatever else has the same: those that were persisted before.
    """
    kept = {id(message) for message in given}
    taken = {message.id for message in given if message.id}
    ids: set[str] = set()
    result: list[BaseMessage] = []
    for index, message in enumerate(messages):
        is_old = id(message) in kept
        if message.id and message.id not in ids and (is_old or message.id not in taken):
            ids.add(message.id)
            result.append(message)
            continue
        number = 0
        while (name := _id_of(message, f"{seed}\0{index}\0{number}")) in ids or name in taken:
            number += 1
        ids.add(name)
        result.append(message.model_copy(update={"id": name}))
    return result


def _id_of(message: BaseMessage, seed: str) -> str:
    digest = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=12)
    digest.update(DIALECT.content(message))
    return f"laneway-{digest.hexdigest()}"


def measured(messages: Sequence[BaseMessage], entries: Sequence[EntryMetadata], live: int = 0) -> RequestEstimate:
    """How large a history is: as its provider measured it up to the last answer, estimated from there on.

    An answer's usage holds for exactly what was sent for it, so one from before a rewrite is not looked at.
    """
    for index in range(len(messages) - 1, live - 1, -1):
        message = messages[index]
        usage = message.usage_metadata if isinstance(message, AIMessage) else None
        if usage and usage["input_tokens"]:
            # What it measured is not looked at again: a long history costs no more than what came since.
            checkpoint = UsageCheckpoint("", 0, usage["input_tokens"], usage["output_tokens"])
            return estimate_request(_tokens(entries[index + 1 :]), usage=checkpoint, digest_of_prefix="")
    return estimate_request(_tokens(entries))


def _tokens(entries: Sequence[EntryMetadata]) -> list[int]:
    return [entry.estimated_tokens or 0 for entry in entries]


@dataclass(frozen=True)
class NodeRequest:
    """A model node that is about to run.

    Attributes:
        messages: the messages channel as the node would read it: the history, the current request last.
        entries: what is known of each of the messages.
        turn_id: the turn.
        request_index: which model request of the turn it is, from 1.
        cache_epoch: the cache epoch of the history.
        history_version: names exactly this history.
        live: index of the first message that came after the history was written anew; 0 where it never was.
        model: what is known of the models that the node asks.
        calls: through which processors ask models.
    """

    messages: Sequence[BaseMessage]
    entries: Sequence[EntryMetadata]
    turn_id: str
    request_index: int
    cache_epoch: int
    history_version: str
    live: int = 0
    model: ModelTraits = field(default_factory=ModelTraits)
    calls: ModelCalls | None = None

    @property
    def current_start(self) -> int | None:
        """Index of the turn's prompt: the first thing of this turn that a user said; None where it began without."""
        found: int | None = None
        for index in range(len(self.entries) - 1, -1, -1):
            origins = self.entries[index].origins
            if not any(origin.run_id == self.turn_id for origin in origins):
                break  # what came before the turn is not looked at, however long it is
            if any(origin.kind == "user" for origin in origins):
                found = index
        return found


def request_of(request: NodeRequest, *, owner: object) -> EditRequest[BaseMessage]:
    """A model node's request, as history editing takes it."""
    return EditRequest(
        messages=request.messages,
        entries=request.entries,
        adapter_shortname=SHORTNAME,
        model_id=request.model.model_id,
        request_index=request.request_index,
        cache_epoch=request.cache_epoch,
        estimated_tokens=measured(request.messages, request.entries, request.live).history_tokens,
        history_version=request.history_version,
        owner=owner,
        run_id=request.turn_id,
        binds_reasoning=request.model.binds_reasoning,
        current_start=request.current_start,
        calls=request.calls,
    )


async def edit(
    request: NodeRequest, processing: HistoryProcessingInForce[BaseMessage], *, owner: object
) -> EditOutcome[BaseMessage]:
    """Run the processor in force on the history of a request. New messages of an accepted edit have ids of their own.

    Args:
        request: the request.
        processing: the processor and the condition.
        owner: the adapter, whose processor may not call it.

    Raises:
        HistoryProcessingError, HistoryProcessingValidationError: see `edit_history`.
    """
    if processing.processor is None:
        return EditOutcome("unprocessed", request.messages, request.entries)
    outcome = await edit_history(DIALECT, request_of(request, owner=owner), processing)
    return with_ids(request, outcome)


def release(request: NodeRequest, *, owner: object, name: str, keep_open: bool = False) -> EditOutcome[BaseMessage]:
    """Release reasoning of closed cycles that no longer fits what is sent before the messages.

    See `release_reasoning`. Without a model that binds reasoning nothing is looked at.

    Raises:
        HistoryProcessingValidationError: the open cycle holds such reasoning (rule `bound_reasoning`).
    """
    if not request.model.binds_reasoning:
        return EditOutcome("unprocessed", request.messages, request.entries)
    return release_reasoning(DIALECT, request_of(request, owner=owner), name=name, keep_open=keep_open)


def with_ids(request: NodeRequest, outcome: EditOutcome[BaseMessage]) -> EditOutcome[BaseMessage]:
    """What came of a request's editing, with an id of its own for each new message of an accepted edit."""
    if outcome.verdict != "accepted":
        return outcome
    seed = f"{request.turn_id}\0{request.request_index}"
    # Reasoning that was released makes a copy of the message, which stays that message.
    kept = {id(message) for message in request.messages}
    by_id = {message.id: message for message in request.messages if message.id}
    given = [*request.messages]
    for message, entry in zip(outcome.messages, outcome.entries, strict=True):
        if id(message) not in kept and message.id in by_id and not _is_added(entry):
            given.append(message)
    return replace(outcome, messages=stamped(outcome.messages, seed=seed, given=given))


def _is_added(entry: EntryMetadata) -> bool:
    return all(origin.kind in ("archive", "processor") for origin in entry.origins)
