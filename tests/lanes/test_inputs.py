"""A turn's prompt in Redis, between its submit and its end, whoever submits it and however often."""

from __future__ import annotations

import time

import pytest

from laneway.errors import StaleTurn
from laneway.history.checkpoints import EMPTY, CheckpointRef, StoredEntry
from laneway.history.heads import Fence, TurnEnded
from laneway.history.inputs import KeptInput
from laneway.history.lanes import LaneKey
from laneway.history.records import EventKind, LaneEvent, TurnRecord
from laneway.history.store import HistoryStore

LANE = LaneKey("conversation", "agent", "contract")


async def _put(store: HistoryStore, claim: str) -> object:
    return await store.inputs.put(LANE, "turn", digest="d", prompt=b'"hello"', claim=claim)


async def _load(store: HistoryStore, attempt: int) -> None:
    event = LaneEvent(EventKind.TURN_STARTED, "turn")
    await store.turns.load(Fence(LANE, "turn", 0, attempt), held=EMPTY, started=event, retried=event, now=time.time())


def _failed() -> TurnRecord:
    return TurnRecord("turn", "failed", "d", started_at=None, ended_at=time.time(), error_type="E", error_message="m")


async def test_a_refused_submit_leaves_the_prompt_of_another_clients(store: HistoryStore):
    """One client's submit was refused as busy; another's, of the same turn, may have been accepted meanwhile."""
    await _put(store, "one")
    await _put(store, "two")
    await store.inputs.drop(LANE, "turn", claim="one")
    await store.inputs.drop(LANE, "turn", claim="one")
    assert await store.turns.prompt(LANE, "turn") == b'"hello"'
    await store.inputs.drop(LANE, "turn", claim="two")
    assert await store.turns.prompt(LANE, "turn") is None


async def test_a_refused_submit_leaves_the_prompt_of_a_turn_that_has_begun(store: HistoryStore):
    await _put(store, "one")
    await _load(store, 1)
    await store.inputs.drop(LANE, "turn", claim="one")
    assert await store.turns.prompt(LANE, "turn") == b'"hello"'


async def test_a_turn_can_be_submitted_again_while_its_first_step_is_tried_again(store: HistoryStore):
    await _put(store, "one")
    await _load(store, 1)
    await _load(store, 2)
    assert isinstance(await _put(store, "one"), KeptInput)


async def test_only_the_latest_attempt_can_fail_the_turn(store: HistoryStore):
    """A worker that was frozen, and whose tool fails when it wakes, does not end a turn that goes on elsewhere."""
    await _put(store, "one")
    await _load(store, 1)
    await _load(store, 2)
    with pytest.raises(StaleTurn):
        await store.endings.abort(Fence(LANE, "turn", 0, 1), _failed())
    assert await store.record(LANE, "turn") is None
    assert await store.turns.prompt(LANE, "turn") == b'"hello"'
    assert (await store.endings.abort(Fence(LANE, "turn", 0, 2), _failed())).outcome == "failed"


async def test_the_workflow_ends_a_turn_whatever_attempts_there_are(store: HistoryStore):
    await _put(store, "one")
    await _load(store, 3)
    assert (await store.endings.abort(Fence(LANE, "turn"), _failed(), decided=True)).outcome == "failed"
    with pytest.raises(TurnEnded):
        await _load(store, 4)


async def test_a_commit_leaves_nothing_of_what_was_staged_for_another_epoch(store: HistoryStore, redis):
    """The turn's last step wrote the history anew."""
    await _put(store, "one")
    fence = Fence(LANE, "turn", 0, 1, version=0)
    await store.turns.stage(fence, "s0", b"0|2|{}|", entries=[StoredEntry(b'{"n":1}', {})], after=EMPTY)
    record = TurnRecord("turn", "committed", "d", started_at=None, ended_at=time.time())
    anew = [StoredEntry(b'{"n":2}', {}), StoredEntry(b'{"n":3}', {})]
    await store.endings.commit(fence, base=EMPTY, after=CheckpointRef(1, 0, ""), entries=anew, extras={}, record=record)
    head = await store.head(LANE)
    assert [entry.payload for entry in await store.history(LANE, head.checkpoint)] == [b'{"n":2}', b'{"n":3}']
    assert [key async for key in redis.scan_iter(match=store.names(LANE).base + "stage:*")] == []
