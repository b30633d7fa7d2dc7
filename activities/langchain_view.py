"""The messages of one step: what a graph is shown of the lane's history, and what it makes of them."""

# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.langchain_archive import archive_before, bounded
from laneway.activities.langchain_compaction import compacted_at, receipt_of_compaction
from laneway.activities.langchain_editing import DIALECT, NodeRequest, describe
from laneway.activities.langchain_framing import sent_prefix
from laneway.activities.langchain_growth import History, grown, has_open_calls, shown
from laneway.activities.langchain_lane import LaneGraph
from laneway.activities.langchain_position import Position
from laneway.activities.langchain_prefix import PrefixWatch, is_stale, released
from laneway.activities.langchain_prompt import GraphInput
from laneway.activities.langchain_recorded import edit_once
from laneway.activities.langchain_state import Saved
from laneway.activities.langchain_traits import ModelTraits
from laneway.history.editing import EditOutcome, EditReceipt
from laneway.history.model_calls import ModelCalls
from laneway.history.prefix import receipts_of
from laneway.history.records import TurnUsage
from laneway.history.scopes import in_force
from laneway.langgraph_encoder import Snapshot

__all__ = ["StepMessages", "with_calls"]


class StepMessages:
    """A lane's messages in one step of a graph.

    Args:
        lane: the graph.
        work: the step.
        live: see `Position`.

    Attributes:
        history: the lane's, with what came of it so far.
        shown: the form of it that the graph is given.
        watch: stops requests that would be refused for their reasoning; None where there is none of that kind.
    """

    def __init__(self, lane: LaneGraph, work: StepWork[BaseMessage], *, live: int) -> None:
        self._lane = lane
        self._work = work
        self.history = History(work.history, work.entries)
        # How many of its messages Redis has; None where it has another history.
        self._staged: int | None = len(work.history)
        self.shown = shown(work.history, live=live, asks=False)
        # Of each message of the history the copy that was shown, where it is as it was.
        self._copies: Sequence[BaseMessage | None] = self.shown.copies_of(work.history)
        self.watch: PrefixWatch | None = None
        self._archived: EditOutcome[BaseMessage] | None = None
        self._edited: EditOutcome[BaseMessage] | None = None
        self._released: EditOutcome[BaseMessage] | None = None
        self._compacted: EditReceipt | None = None
        self._took: list[str] = []

    @property
    def is_staged(self) -> bool:
        """Whether what Redis has is how the history begins."""
        return self._staged is not None

    # Before the graph runs --------------------------------------------------------------------------------------------

    async def prepare(self, position: Position, asking: Sequence[str]) -> Position:
        """Archive and edit what the nodes of these names are about to ask their models with."""
        models = [self._lane.models[name] for name in asking]
        traits = replace(models[0], binds_reasoning=any(one.binds_reasoning for one in models))
        if not position.edited:
            position = await self._archive(position, traits)
            position = await self._edit(position, traits)
        return self._keep_prefix(position, traits) if traits.binds_reasoning else position

    def steer(self, position: Position, steered: Sequence[tuple[str, GraphInput]]) -> Position:
        """Let messages that came while the turn ran follow the history, in order, up to the first that cannot."""
        if has_open_calls(self.history.messages):
            return position  # their results come first
        for turn_id, given in steered:
            if given.state or not all(isinstance(one, HumanMessage) for one in given.messages):
                break
            entries = [describe(one, self._work.turn_id) for one in given.messages]
            self.history = History([*self.history.messages, *given.messages], [*self.history.entries, *entries])
            self._took.append(turn_id)
            position = replace(position, asked=given.messages[-1].id)
        return position

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
            prefix=partial(sent_prefix, self.history.messages, position.live),
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
        self.history, self._staged, self._copies = History(outcome.messages, outcome.entries), None, ()
        return replace(position, live=len(outcome.messages))

    def _request(self, position: Position, traits: ModelTraits) -> NodeRequest:
        work = self._work
        return NodeRequest(
            messages=self.history.messages,
            entries=self.history.entries,
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
        bound = {name for message in self.history.messages for name in DIALECT.bound_reasoning(message)}
        self.watch = PrefixWatch(position.prefix, bound)
        return position

    def show(self, position: Position, root: Saved, *, asks: bool) -> None:
        """Show the graph the history, in its latest checkpoint; `asks` where the nodes that are next ask a model."""
        self.shown = shown(self.history.messages, live=position.live, asks=asks, copies=self._copies)
        if self.shown.messages or self._lane.messages_key in root.checkpoint["channel_versions"]:
            self._lane.put_messages(root, self.shown.messages)

    # After it has run -------------------------------------------------------------------------------------------------

    def grow(self, root: Saved) -> bool:
        """Take up what the graph has made of its messages; whether they only grew."""
        work, key = self._work, self._lane.messages_key
        value = _unwrapped(root.checkpoint["channel_values"].get(key, []))
        name = f"{work.turn_id}/{work.step}"
        self.history, kept, self._copies = grown(
            self.history, self.shown, value, channel=key, turn_id=work.turn_id, name=name
        )
        if not kept:
            self._staged = None
        return kept

    async def bound(self, before: Collection[int]) -> None:
        """Archive or refuse tool results that are too large, of the messages that are not among `before` by `id`."""
        self.history = await bounded(
            self.history,
            before,
            max_bytes=self._lane.given.max_result_bytes,
            archived=None if self._lane.given.archival is None else self._work.archive,
            turn_id=self._work.turn_id,
        )

    def result(self) -> StepResult[BaseMessage]:
        """What was not staged yet: of the history, and of what its editing did."""
        history, staged, edited = self.history, self._staged, self._edited
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

    def take_compaction(self, position: Position, known: Collection[str | None]) -> Position:
        """Begin an epoch where an answer of this superstep brought a compaction by its provider."""
        index = compacted_at(self.history.messages)
        if index is None or self.history.messages[index].id in known:
            return position
        traits = next(iter(self._lane.models.values()), ModelTraits())
        # `asked_models` counts the request that brought it by now.
        request = replace(self._request(position, traits), request_index=position.asked_models)
        self._compacted, self._staged = receipt_of_compaction(request, index, owner=self._lane.owner), None
        return replace(position, live=index)


def with_calls(used: TurnUsage, receipt: EditReceipt | None) -> TurnUsage:
    """What was used, the model calls of history processors included."""
    for call in receipt.calls if receipt is not None else ():
        figures = {name: getattr(used, name) + spent for name, spent in asdict(call.usage).items()}
        used = replace(used, **figures)
    return used


def _unwrapped(value: Any) -> object:
    return value.value if type(value) is Snapshot else value
