"""How a history grows in one step of a Pydantic AI run: by what follows it, or by being written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RunUsage

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.pydantic_compaction import COMPACTION, is_compaction
from laneway.activities.pydantic_editing import DIALECT, Continuity, describe, request_of
from laneway.activities.pydantic_run import capture, common_prefix, is_end
from laneway.history.editing import EditOutcome, EditReceipt, receipt_of
from laneway.history.groups import find_groups
from laneway.history.origins import EntryMetadata
from laneway.history.prefix import receipts_of
from laneway.history.records import TurnUsage
from laneway.history.views import view_of

__all__ = ["Growth", "text_of", "usage_of"]


@dataclass
class Growth:
    """How a history grows in a step: by what follows it, or by being written anew.

    Attributes:
        work: the step.
        stored: the history that the step began from, as the framework reads it.
        base: how many of its messages are those of earlier turns.
        continuity: what of the provider's own state may be used.
        prefix: names what the lane's last request carried before its messages; None where no model asks for that.
        framing: how many tokens the lane's last request carried beside its messages; 0 where nobody has looked.
        archived: what exact archival did, until that is staged.
        edited: what history processing did, until that is staged.
        released: what became of reasoning that no longer fitted its prefix, until that is staged.
        took: the messages that came while the turn ran, and that are in the request that is sent.
    """

    work: StepWork[ModelMessage]
    stored: Sequence[ModelMessage]
    base: int
    continuity: Continuity
    prefix: str | None = None
    framing: int = 0
    archived: EditOutcome[ModelMessage] | None = None
    edited: EditOutcome[ModelMessage] | None = None
    released: EditOutcome[ModelMessage] | None = None
    took: Sequence[str] = ()

    def known(self, messages: Sequence[ModelMessage]) -> list[EntryMetadata]:
        """What is known of each of the messages beside its content."""
        stored, entries = self.work.history, self.work.entries
        if not self._rewrites() and len(messages) >= len(stored) and all(map(is_, stored, messages)):
            return [*entries, *(describe(one, self.work.turn_id) for one in messages[len(stored) :])]
        pairs = [*zip(stored, entries, strict=True)]
        for outcome in self._rewrites():
            pairs.extend(zip(outcome.messages, outcome.entries, strict=True))
        known = {id(message): entry for message, entry in pairs}
        return [known.get(id(one)) or describe(one, self.work.turn_id) for one in messages]

    def begin(self, messages: Sequence[ModelMessage]) -> None:
        """The messages, and a request, are about to be sent."""
        if not self._is_kept(messages):
            self.continuity.live = len(messages) + 1
            self.continuity.cache_identity = f"{self.work.lane_id}:{self.work.checkpoint.epoch + 1}"

    def is_written_anew(self, messages: Sequence[ModelMessage]) -> bool:
        """Whether the framework, not an edit, has changed messages that were stored: system text with another value."""
        return not self._rewrites() and not self._is_kept(messages)

    def release(self, outcome: EditOutcome[ModelMessage]) -> Sequence[ModelMessage] | None:
        """Take up what was released of the messages that are being sent; the messages now, None if nothing was."""
        if outcome.verdict != "accepted":
            return None
        self.released = outcome
        self.continuity.live = len(outcome.messages)
        return outcome.messages

    def _rewrites(self) -> list[EditOutcome[ModelMessage]]:
        outcomes = (self.archived, self.edited, self.released)
        return [outcome for outcome in outcomes if outcome is not None and outcome.verdict == "accepted"]

    def _receipts(self) -> tuple[EditReceipt, ...]:
        return receipts_of((self.archived, self.edited, self.released))

    def _is_kept(self, messages: Sequence[ModelMessage]) -> bool:
        """Whether the history only grew. A rewrite writes it anew, wherever it changed it."""
        return not self._rewrites() and common_prefix(self.stored, messages) == len(self.stored)

    def _compacted(self, messages: Sequence[ModelMessage]) -> int | None:
        """Index of the message that brought a compaction by the provider in this step; None where none did."""
        # What was stored brought none in this step.
        first = len(self.stored) if self._is_kept(messages) else 0
        for index in range(len(messages) - 1, first - 1, -1):
            if is_compaction(messages[index]):
                known = any(messages[index] is one or messages[index] == one for one in self.stored)
                return None if known else index
        return None

    def _compaction(
        self, messages: Sequence[ModelMessage], index: int | None, run: AgentRun[Any, Any]
    ) -> Sequence[EditReceipt]:
        if index is None:
            return ()
        entries, request_index = self.known(messages), run.ctx.state.run_step
        request = request_of(
            self.work,
            owner=self,
            model=run.ctx.deps.model,
            messages=messages[:index],
            entries=entries[:index],
            request_index=request_index,
        )
        groups = find_groups(DIALECT, view_of(DIALECT, messages[:index], entries[:index], request_index=request_index))
        receipt = receipt_of(
            DIALECT,
            request,
            messages[index:],
            entries[index:],
            processor=COMPACTION,
            groups_before=len(groups),
            released=(),
        )
        return (receipt,)

    def is_staged(self, result: StepResult[ModelMessage], run: AgentRun[Any, Any]) -> None:
        """What the step has come to so far is staged: only what follows is its result."""
        if result.rewritten is not None:
            self.base = 0
        self.stored = tuple(run.ctx.state.message_history)
        self.archived = self.edited = self.released = None

    def result(
        self, run: AgentRun[Any, Any], node: Any, *, usage_before: RunUsage | None = None
    ) -> StepResult[ModelMessage]:
        """What the run has come to, before `node`."""
        messages = run.ctx.state.message_history
        compacted = self._compacted(messages)
        if compacted is not None:
            # Ids of the provider's from before it continue what is no more.
            self.continuity.live = compacted
        unchanged = self._is_kept(messages) and compacted is None
        grown = messages[len(self.stored) :] if unchanged else list(messages)
        edited, live = self.edited, self.continuity.live
        kept = (("live", live), ("prefix", self.prefix), ("framing", self.framing))
        extras = {name: value for name, value in kept if value}
        state = b""
        if not is_end(node):
            stored = capture(run, node, base=self.base if unchanged else 0, usage_before=usage_before)
            stored.live, stored.prefix, stored.framing = live, self.prefix, self.framing
            state = stored.to_json()
        return StepResult(
            appended=grown if unchanged else (),
            rewritten=None if unchanged else grown,
            entries=None if unchanged else self.known(grown),
            state=state,
            usage=usage_of(run.usage),
            extras={**self.work.extras, **extras} if extras else None,
            edits=(*self._receipts(), *self._compaction(messages, compacted, run)),
            noops=int(edited is not None and edited.verdict == "no-op"),
            skips=int(edited is not None and edited.verdict == "skipped"),
            took=self.took,
        )


def text_of(message: ModelMessage) -> str:
    """The text of a response; empty for a request."""
    if not isinstance(message, ModelResponse):
        return ""
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))


def usage_of(usage: RunUsage) -> TurnUsage:
    """What a run has used, as a turn counts it."""
    return TurnUsage(
        requests=usage.requests,
        tool_calls=usage.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
