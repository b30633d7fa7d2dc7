"""Compaction of a Pydantic AI lane on demand: one pass of history editing, with no request after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.compacting import rewritten, unchanged
from laneway.activities.framing import native_prefix
from laneway.activities.pydantic_editing import DIALECT, describe, edit
from laneway.activities.pydantic_framing import RequestFraming
from laneway.activities.pydantic_run import as_loaded
from laneway.history.compaction import Compaction, compactor, why_not
from laneway.history.editing import EditOutcome
from laneway.history.model_calls import ModelCalls
from laneway.history.origins import EntryMetadata
from laneway.history.records import TurnUsage
from laneway.history.scopes import HistoryProcessingInForce

__all__ = ["compacted"]

_PLACEHOLDER = "(compaction)"  # stands where a request would; it is neither sent nor kept


async def compacted(
    work: StepWork[ModelMessage],
    compaction: Compaction,
    *,
    processor: object,
    owner: object,
    model: Model,
    framing: RequestFraming | None,
) -> StepResult[ModelMessage]:
    """Sum up a history.

    Args:
        work: the step, of a turn that does nothing else.
        compaction: what is asked for.
        processor: the history processor in force, whose summaries are used where it makes any.
        owner: the adapter.
        model: the agent's model.
        framing: what the lane's last request carried beside its messages.
    """
    if not work.history:
        return unchanged("the lane has no history yet")
    messages = as_loaded(work.history, work.base_length)
    known = {id(message): entry for message, entry in zip(work.history, work.entries, strict=True)}
    entries = [known.get(id(one)) or describe(one, work.turn_id) for one in messages]
    calls = ModelCalls(
        work.journal,
        framing=framing,
        prefix=partial(native_prefix, DIALECT, messages),
        admit=work.account.admit,
        settle=work.account.settle,
    )
    outcome = await edit(
        work,
        HistoryProcessingInForce(cast("Any", compactor(processor, compaction, model=model))),
        owner=owner,
        model=model,
        messages=messages,
        entries=entries,
        request=ModelRequest(parts=[UserPromptPart(_PLACEHOLDER)]),
        request_index=1,
        live=int(str(work.extras.get("live", 0))),
        calls=calls,
    )
    usage = _usage(calls)
    reason = why_not(outcome, compaction)
    if reason is not None:
        edits = () if outcome.receipt is None else (outcome.receipt,)
        return replace(unchanged(reason), usage=usage, edits=edits, noops=1)
    kept, kept_entries = _without_placeholder(outcome, work.turn_id)
    assert outcome.receipt is not None
    return rewritten(
        kept, kept_entries, extras=work.extras, usage=usage, receipt=outcome.receipt, before=len(work.history)
    )


def _without_placeholder(
    outcome: EditOutcome[ModelMessage], turn_id: str
) -> tuple[list[ModelMessage], list[EntryMetadata]]:
    """The edited history without what stood for its request; it may have been merged with what was before it."""
    *kept, last = outcome.messages
    entries = list(outcome.entries[:-1])
    if isinstance(last, ModelRequest) and len(last.parts) > 1:
        rest = replace(last, parts=last.parts[:-1])
        described = describe(rest, turn_id)
        origins = outcome.entries[-1].origins[: len(described.origins)]
        entries.append(replace(described, origins=origins or described.origins))
        kept.append(rest)
    return kept, entries


def _usage(calls: ModelCalls) -> TurnUsage:
    used = [call.usage for call in calls.receipts]
    return TurnUsage(
        requests=sum(one.requests for one in used),
        input_tokens=sum(one.input_tokens for one in used),
        output_tokens=sum(one.output_tokens for one in used),
        cache_read_tokens=sum(one.cache_read_tokens for one in used),
        cache_write_tokens=sum(one.cache_write_tokens for one in used),
    )
