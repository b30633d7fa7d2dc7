"""What an agent framework's adapter answers, and what it is given to take a step.

The workflow and the steps' bookkeeping know no framework. An adapter says what the lane contract is, encodes and
decodes native messages, and takes one step from a native checkpoint: the lane's messages and the adapter's own state.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar, cast

from laneway.activities.account import TurnAccount
from laneway.activities.archive import TurnArchive
from laneway.activities.capabilities import Capability
from laneway.activities.journal import ToolJournal
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.telemetry import StepTelemetry
from laneway.activities.turn_hooks import TurnHooks
from laneway.history.checkpoints import CheckpointRef
from laneway.history.compaction import Compaction
from laneway.history.editing import EditReceipt
from laneway.history.given import check_count, check_delay, check_number
from laneway.history.origins import EntryMetadata
from laneway.history.records import EventKind, TurnUsage
from laneway.history.refusals import EarlierCalls
from laneway.history.repair import ImportRepair
from laneway.history.requests import Answered, PendingRequest
from laneway.history.threads import TextWindow

__all__ = [
    "IMPORT_MARK",
    "Adapter",
    "Capability",
    "Compacting",
    "RetryPolicy",
    "StepResult",
    "StepWork",
    "Typed",
    "Windowed",
    "digest_of",
    "read_output",
]

M = TypeVar("M")

IMPORT_MARK = b'{"import":'
"""How the stored form of an import begins, by which a step tells it from a prompt."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and when a model request that failed on its way is tried again.

    Retried are failures that another try may not meet: 408, 409, 425, 429 and 5xx answers, connections that break,
    timeouts. A `Retry-After` of the provider's goes before the computed delay. Failures of workers do not count.

    Attributes:
        max_attempts: how many attempts there are in all; 1 for no retry.
        first_delay: before the second attempt.
        backoff: what each further delay is multiplied by.
        max_delay: the longest delay, and the longest `Retry-After` that is waited for; a longer one fails the turn.

    Raises:
        InvalidArgument: there is no attempt, a delay is no `timedelta` or negative, or the backoff is not positive.
    """

    max_attempts: int = 5
    first_delay: timedelta = timedelta(seconds=1)
    backoff: float = 2.0
    max_delay: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        check_count("RetryPolicy: max_attempts", self.max_attempts, least=1, give="an int from 1 on, 1 for no retry")
        check_delay("RetryPolicy: first_delay", self.first_delay)
        check_number("RetryPolicy: backoff", self.backoff, above=0, give="a positive number")
        check_delay("RetryPolicy: max_delay", self.max_delay)

    def delay_after(self, attempts: int) -> timedelta:
        """How long is waited after so many attempts, where the provider does not say."""
        longest = self.max_delay.total_seconds()
        try:
            seconds = self.first_delay.total_seconds() * self.backoff ** (attempts - 1)
        except OverflowError:
            seconds = longest
        return timedelta(seconds=min(seconds, longest))


@dataclass(frozen=True)
class StepResult(Generic[M]):
    """What a step came to.

    Attributes:
        appended: native messages that follow the history and were not staged yet.
        state: the adapter's state for the next step.
        usage: what the turn has used so far.
        done: whether the turn has its output; then `appended` completes the history to commit.
        output: the output as JSON; None where `output_in_history`.
        output_type: names the output's type, for an adapter that is `Typed`.
        output_in_history: the output is the text of the history's last message.
        rewritten: the whole history, where the framework or an edit changed what was stored: a new cache epoch.
        entries: what is known of each message of `appended`, or of `rewritten`; None to describe them.
        extras: what the adapter keeps beside the history, committed with it; None for what it was given.
        reply: with a text window, the assistant's message for the thread; None where the answer was cut off.
        edits, noops, skips: what history processing did, not counting what was staged before.
        requests: what the turn waits for before its next step, whose `StepWork.answers` has the answers. A step that is
            `done` has none.
        took: the messages of `StepWork.steered` that are in the history from now on, by their turn ids.
        said: what is said on the lane's stream together with what the step writes: what has no need to be said sooner.
        asked: whether a model was asked for this. Where it was not, the activity may take the next step as well.
    """

    appended: Sequence[M]
    state: bytes
    usage: TurnUsage
    done: bool = False
    output: str | None = None
    output_in_history: bool = False
    output_type: str | None = None
    rewritten: Sequence[M] | None = None
    entries: Sequence[EntryMetadata] | None = None
    extras: Mapping[str, object] | None = None
    reply: str | None = None
    edits: Sequence[EditReceipt] = ()
    noops: int = 0
    skips: int = 0
    requests: Sequence[PendingRequest] = ()
    took: Sequence[str] = ()
    said: Sequence[tuple[EventKind, Mapping[str, object]]] = ()
    asked: bool = True


async def _kept_nowhere(parts: Mapping[str, bytes]) -> None:
    raise NotImplementedError("this step has nowhere to keep parts")


@dataclass
class StepWork(Generic[M]):
    """One step to take.

    Attributes:
        conversation, turn_id: where.
        step: which step of the turn, from 0.
        attempt: which attempt at it, from 1.
        prompt: as `Adapter.encode_prompt` gave it.
        history: the lane's native messages: committed, then staged. Not to be changed in place.
        entries: what is known of each of them beside its content.
        base_length: how many of them are committed.
        checkpoint: the checkpoint that they are; its epoch is the cache epoch.
        extras: what the adapter keeps beside the history, as committed last.
        parts: large parts of that and of `state`, by name, so that what stays the same is stored once: those that
            `extras["parts"]` names, and those that the turn has kept.
        keep: keeps further ones with the turn. A name stands for one content for ever. With the turn's commit those
            that its result's `extras["parts"]` names are the lane's, and all others go.
        lane_id: names the lane, for providers' caches.
        state: the adapter's state as staged last; None at the start of a turn.
        journal: the tool calls of this step that are finished; those of the steps before it that ended waiting
            included, so that a step can begin its batch of calls again from the start.
        opening: with a text window, what stands before the prompt in the turn's request. The history is the turn's
            alone then.
        stage: keeps what the step has come to so far, before it is done. What is staged is never asked of a model
            again.
        emit: says something on the lane's stream.
        archive: where what does not stay in history is put, and read back from.
        account: what the turn may spend. An adapter with the capability `budgets` asks it with `request` before each
            model request, tells it with `settle` what that took, and asks it with `tool_calls` before the calls of a
            response are made. Its own budget is its attribute `budget`.
        earlier_calls: what became of the calls that history processors made before, for `ModelCalls`.
        answers: what the steps directly before it waited for, oldest first, each with its answer.
        steered: messages that came while the turn ran, oldest first: the turn id and the prompt of each. A step that is
            about to ask a model takes them in, as prompts of the user's that follow what was to be sent, and says so in
            its result's `took`; those that it does not take wait for the next step, and for the turn's end at last.
        scope: what the scopes around the call say, inside of the adapter's own settings.
        hooks: what an adapter with the capability `hooks` asks before a model request and a tool, and tells after it.
        telemetry: where the framework's own spans go; None for nowhere.
    """

    conversation: str
    turn_id: str
    step: int
    attempt: int
    prompt: bytes
    history: Sequence[M]
    entries: Sequence[EntryMetadata]
    base_length: int
    checkpoint: CheckpointRef
    extras: Mapping[str, object]
    lane_id: str
    state: bytes | None
    journal: ToolJournal
    stage: Callable[[StepResult[M]], Awaitable[None]]
    emit: Callable[[EventKind, Mapping[str, object]], None] = field(repr=False)
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    keep: Callable[[Mapping[str, bytes]], Awaitable[None]] = field(default=_kept_nowhere, repr=False)
    opening: str = ""
    archive: TurnArchive | None = field(default=None, repr=False)
    account: TurnAccount = field(default_factory=TurnAccount, repr=False)
    earlier_calls: EarlierCalls = field(default_factory=EarlierCalls, repr=False)
    answers: Sequence[Answered] = ()
    steered: Sequence[tuple[str, bytes]] = ()
    scope: ScopeInForce = field(default_factory=ScopeInForce)
    hooks: TurnHooks = field(default_factory=TurnHooks, repr=False)
    telemetry: StepTelemetry | None = None


class Adapter(Protocol[M]):
    """One registered agent, as Laneway sees it."""

    @property
    def shortname(self) -> str:
        """The framework's short name: `pydantic_ai`, `langchain`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do; the rest is refused before a model is asked. See `laneway.activities.capabilities`."""
        ...

    @property
    def retry_policy(self) -> RetryPolicy:
        """How its model requests are retried."""
        ...

    def contract(self) -> Mapping[str, object]:
        """The lane contract, as JSON: what makes a history the agent's own."""
        ...

    def encode_prompt(self, prompt: object) -> bytes:
        """The stored form of a prompt.

        Raises:
            InvalidInput: the framework does not take it.
        """
        ...

    def decode_prompt(self, prompt: bytes) -> object:
        """The prompt that `encode_prompt` was given."""
        ...

    def encode(self, message: M) -> bytes:
        """A native message in its framework's own serialised form.

        Raises:
            SerializationFailed: something in it cannot be stored.
        """
        ...

    def decode(self, payload: bytes) -> M:
        """The native message that `encode` was given."""
        ...

    def describe(self, message: M, turn_id: str) -> EntryMetadata:
        """What is known of a message that the turn produced: its origins, and an estimate of its tokens."""
        ...

    def encode_import(self, messages: object, *, repair: bool) -> bytes:
        """The stored form of a history that was made elsewhere, after it was checked whole.

        Raises:
            HistoryProcessingValidationError: it may not be sent as it is.
        """
        ...

    def decode_import(self, blob: bytes, turn_id: str) -> tuple[Sequence[M], Sequence[EntryMetadata]]:
        """The history that `encode_import` was given, repaired where that was asked for, and what is known of it."""
        ...

    def repairs_of(self, blob: bytes) -> Sequence[ImportRepair]:
        """What `encode_import` repaired."""
        ...

    def state_of(
        self, messages: Sequence[M], extras: Mapping[str, object], parts: Mapping[str, bytes]
    ) -> Mapping[str, object]:
        """The committed state that the agent has besides and with its messages. For `parts` see `StepWork`.

        Raises:
            InvalidInput: agents of this framework have none.
        """
        ...

    def output_of(self, message: M) -> object:
        """The output of a turn whose output is the text of its last message."""
        ...

    def decode_output(self, output: str) -> object:
        """A turn's output, of the agent's output type."""
        ...

    async def step(self, work: StepWork[M]) -> StepResult[M]:
        """Take one step: one model request, or one batch of tool calls."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """What the agent needs while a worker runs it: connections to tool servers, HTTP clients."""
        ...


class Compacting(Protocol[M]):
    """What an adapter with the capability `compaction` has besides."""

    async def compact(self, work: StepWork[M], compaction: Compaction) -> StepResult[M]:
        """Sum up the lane's history, as the whole of a turn; its output says what came of it."""
        ...


class Typed(Protocol):
    """What an adapter has besides whose results name the type of their output."""

    def decode_typed(self, output: str, output_type: str) -> object:
        """A turn's output, of the named type."""
        ...


class Windowed(Protocol):
    """What an adapter has besides where it can begin turns with a text window."""

    @property
    def text_window(self) -> TextWindow | None:
        """How much of the text thread a turn begins with; None for native history."""
        ...

    def text_of_prompt(self, prompt: bytes) -> str:
        """The text of a stored prompt, as the thread keeps it."""
        ...


def read_output(adapter: Adapter[Any], output: str | None, output_type: str | None) -> object:
    """A turn's output out of its record or its last step's result, where it is not in the history."""
    if output_type is None:
        return adapter.decode_output(output or "null")
    return cast("Typed", adapter).decode_typed(output or "null", output_type)


def digest_of(contract: Mapping[str, object]) -> str:
    """The digest of a lane contract: 16 hexadecimal characters."""
    text = json.dumps(contract, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()
