"""Compaction of a graph's lane on demand: one pass of history editing, with no model node after it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage

from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.compacting import rewritten, unchanged
from laneway.activities.langchain_checkpoint import ROOT
from laneway.activities.langchain_editing import NodeRequest, describe
from laneway.activities.langchain_framing import sent_prefix
from laneway.activities.langchain_lane import LaneGraph
from laneway.activities.langchain_recorded import edit_once
from laneway.activities.langchain_traits import traits_of
from laneway.activities.langchain_view import with_calls
from laneway.history.compaction import Compaction, compactor, summaries_of, why_not
from laneway.history.model_calls import ModelCalls
from laneway.history.records import TurnUsage
from laneway.history.scopes import HistoryProcessingInForce

__all__ = ["compacted"]

_PLACEHOLDER: Final = "(compaction)"  # stands where a request would; it is neither sent nor kept


async def compacted(
    lane: LaneGraph,
    work: StepWork[BaseMessage],
    compaction: Compaction,
    *,
    processor: object,
    models: Sequence[BaseChatModel],
    live: int,
) -> StepResult[BaseMessage]:
    """Sum up a history.

    Args:
        lane: the graph.
        work: the step, of a turn that does nothing else.
        compaction: what is asked for.
        processor: the history processor in force, whose summaries are used where it makes any.
        models: those that the graph's model nodes ask; the first sums up where the processor does not.
        live: index of the first message that came after the history was written anew.
    """
    if not work.history:
        return unchanged("the lane has no history yet")
    if not models and summaries_of(processor) is None:
        return unchanged(
            "no model is found in the graph's nodes that could sum up: give the adapter a SummarizationProcessor"
        )
    summaries = compactor(processor, compaction, model=models[0] if models else None)
    placeholder = HumanMessage(_PLACEHOLDER, id=f"{work.turn_id}/compaction")
    request = NodeRequest(
        messages=[*work.history, placeholder],
        entries=[*work.entries, describe(placeholder, work.turn_id)],
        turn_id=work.turn_id,
        request_index=1,
        cache_epoch=work.checkpoint.epoch,
        history_version=f"{work.checkpoint}+{work.step}",
        live=live,
        model=replace(traits_of(models), binds_reasoning=any(one.binds_reasoning for one in lane.models.values())),
        calls=ModelCalls(
            work.journal,
            framing=lane.framings.get(work.lane_id),
            prefix=partial(sent_prefix, work.history, live),
            admit=work.account.admit,
            settle=work.account.settle,
        ),
    )
    outcome = await edit_once(
        request,
        HistoryProcessingInForce(cast("Any", summaries)),
        owner=lane.owner,
        journal=work.journal,
        codec=lane.codec,
    )
    usage = with_calls(TurnUsage(), outcome.receipt)
    reason = why_not(outcome, compaction)
    if reason is not None:
        edits = () if outcome.receipt is None else (outcome.receipt,)
        return replace(unchanged(reason), usage=usage, edits=edits, noops=1)
    assert outcome.receipt is not None
    kept = [message for message in outcome.messages if message is not placeholder]
    entries = [
        entry for message, entry in zip(outcome.messages, outcome.entries, strict=True) if message is not placeholder
    ]
    extras = dict(work.extras)
    if isinstance(blob := extras.get("graph"), str):
        # Messages that other channels hold are places in the history, which is another one now.
        spaces = lane.load(b64decode(blob), work.history, parts=work.parts)
        lane.put_messages(spaces[ROOT][-1], kept)
        extras = await lane.committed(work, spaces, kept)
    return rewritten(kept, entries, extras=extras, usage=usage, receipt=outcome.receipt, before=len(work.history))
