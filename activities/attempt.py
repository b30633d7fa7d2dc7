"""An attempt at a step: what it was loaded with, and what a result comes to in the lane's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from laneway.activities.account import TurnAccount
from laneway.activities.adapter import Adapter, StepResult
from laneway.activities.delegating import children_of, kept_after
from laneway.activities.journal import ToolJournal
from laneway.activities.profiles import ProfileSource
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.telemetry import StepTelemetry
from laneway.activities.turn_hooks import TurnHooks
from laneway.history.accounts import Accounts
from laneway.history.checkpoints import CheckpointRef, StoredEntry
from laneway.history.compaction import COMPACT_MARK
from laneway.history.delegation import Kept, kept_of, with_kept
from laneway.history.heads import Fence, LoadedTurn
from laneway.history.options import TurnOptions
from laneway.history.origins import EntryMetadata
from laneway.history.records import StepAttempt, TurnTally
from laneway.history.refusals import EarlierCalls, Refusals
from laneway.history.threads import TextWindow

__all__ = ["Attempt", "size_of"]

_REFUSALS: Final = "refusals"


@dataclass
class Attempt:
    """An attempt at a step, once it is loaded.

    Attributes:
        turn: what it was loaded with, but for entries as they are stored: the history is in memory once.
        history: the native messages, committed and staged; those that the attempt stages itself are added.
        size_bytes: what their entries take as they are stored.
        checkpoint: the one that they lead to.
        options: what the turn's caller asked for.
        window: the adapter's text window, where it has one in place of native history.
        opening: see `StepWork`.
        steered: what may be taken in: turn id, prompt's digest and prompt.
        asked: whether the step has asked a model. False only of one that is staged.
        staged_first: whether this attempt staged it, and none before it.
    """

    fence: Fence
    turn: LoadedTurn
    adapter: Adapter[Any]
    history: list[Any]
    entries: list[EntryMetadata]
    size_bytes: int
    checkpoint: CheckpointRef
    failed: Sequence[StepAttempt]
    state: bytes | None
    tally: TurnTally
    scope: ScopeInForce
    profile: ProfileSource
    hooks: TurnHooks
    options: TurnOptions
    window: TextWindow | None
    opening: str = ""
    steered: Sequence[tuple[str, str, bytes]] = ()
    journal: ToolJournal | None = None
    telemetry: StepTelemetry | None = None
    asked: bool = True
    staged_first: bool = False

    @property
    def base(self) -> CheckpointRef:
        """The committed checkpoint that the turn began from."""
        return self.turn.head.checkpoint

    @property
    def hidden(self) -> int:
        """How many messages of the history the turn is not shown: with a text window those of all other turns."""
        return 0 if self.window is None else self.base.length

    @property
    def kept(self) -> Kept:
        """Where kept conversations of children stand."""
        return kept_after(self.turn.fields, self.turn.head.extras)

    def account(self, accounts: Accounts, batch: int) -> TurnAccount:
        """What the turn may spend, and those above it; `batch` is the step that began the batch of tool calls."""
        options = self.options
        above = [
            TurnAccount.of_parent(accounts, parent, depth=depth, child=self.fence, batch=batch)
            for depth, parent in enumerate(options.parents)
        ]
        budget = getattr(self.adapter, "budget", None)  # of those with the capability
        return TurnAccount(accounts, self.fence, budget=budget, options=options, batch=batch, above=above)

    @property
    def refusals(self) -> Refusals:
        """What failed calls of history processors have left, as of the turns before."""
        return Refusals.from_data(self.turn.head.extras.get(_REFUSALS))

    def earlier_calls(self, *, now: float) -> EarlierCalls:
        """What became of the calls of history processors, up to now; the time is in seconds since 1970."""
        return EarlierCalls(self.tally.calls, self.refusals, now)

    # Results ----------------------------------------------------------------------------------------------------------

    def whole(self, result: StepResult[Any]) -> StepResult[Any]:
        """A result of a turn that was not shown the history before it, as one of the lane's whole history."""
        if self.window is None:
            return result
        hidden = self.hidden
        # Ids of the provider's that the turn left go on from what it was shown, not from the lane's history.
        extras = {**self.turn.head.extras, "live": len(self.history) + len(result.appended)}
        if result.rewritten is None:
            return replace(result, extras=extras)
        known = result.entries
        if known is None:
            known = [self.adapter.describe(message, self.fence.turn_id) for message in result.rewritten]
        return replace(
            result,
            rewritten=[*self.history[:hidden], *result.rewritten],
            entries=[*self.entries[:hidden], *known],
            extras={**extras, "live": hidden + len(result.rewritten)},
        )

    def tail(self, result: StepResult[Any]) -> tuple[CheckpointRef, list[StoredEntry]]:
        """Where the result's entries go: after what is staged, or into a cache epoch of their own."""
        adapter, turn_id = self.adapter, self.fence.turn_id
        if result.rewritten is None:
            after, messages = self.checkpoint, result.appended
        else:
            after, messages = CheckpointRef(self.checkpoint.epoch + 1, 0, ""), result.rewritten
        known = result.entries
        if known is None:
            known = [adapter.describe(message, turn_id) for message in messages]
        encoded = map(adapter.encode, messages)
        return after, [StoredEntry(blob, entry.to_stored()) for blob, entry in zip(encoded, known, strict=True)]

    def advance(self, result: StepResult[Any], entries: Sequence[StoredEntry]) -> None:
        """Let the attempt hold what the result's entries lead to."""
        if result.rewritten is not None:
            self.history, self.entries, self.size_bytes = [], [], 0
        self.history.extend(result.appended if result.rewritten is None else result.rewritten)
        self.entries.extend(EntryMetadata.from_stored(entry.metadata) for entry in entries)
        self.size_bytes += size_of(entries)

    def tally_with(self, result: StepResult[Any]) -> TurnTally:
        """What the turn has used, edited and taken in, the result's included."""
        taken = [(turn_id, digest) for turn_id, digest, _ in self.steered if turn_id in result.took]
        return self.tally.add(
            usage=result.usage, edits=result.edits, noops=result.noops, skips=result.skips, steered=taken
        )

    def extras_with(self, result: StepResult[Any], *, now: float) -> Mapping[str, object]:
        """What is kept beside the history: the adapter's, kept conversations of children, and failed calls."""
        extras = dict(self.turn.head.extras if result.extras is None else result.extras)
        runs = [*kept_of(self.turn.head.extras).values(), *children_of(self.turn.fields)]
        extras = with_kept(extras, self.kept, runs)
        is_asked_for = self.turn.fields["in"].startswith(COMPACT_MARK)
        refusals = self.refusals.after(self.tally_with(result).calls, now=now, is_asked_for=is_asked_for)
        extras.pop(_REFUSALS, None)
        return {**extras, _REFUSALS: refusals.to_data()} if refusals.count else extras


def size_of(entries: Sequence[StoredEntry]) -> int:
    """What entries take as they are stored, in bytes."""
    return sum(len(entry.payload) for entry in entries)
