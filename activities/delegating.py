"""Work handed to other agents: who does it, what they are given, and what came of it.

A step that ends waiting names the turns that are to do the work, and the workflow runs each as a child. A child's lane
is its own; one that goes on with a kept conversation begins with a copy of it. Which copy a kept conversation stands at
is among the extras of the parent's head, and so is committed with the parent's turn or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from pydantic_core import to_jsonable_python

from laneway.activities.account import TurnAccount
from laneway.activities.adapter import read_output
from laneway.activities.agents import Agents
from laneway.activities.wire import Awaited, ChildTurn
from laneway.errors import DelegationFailed, InvalidInput
from laneway.history.budget import RequestBudget
from laneway.history.delegation import (
    ChildRef,
    Delegation,
    Kept,
    brief_of,
    child_conversation,
    kept_of,
    superseded_of,
)
from laneway.history.heads import Fence
from laneway.history.inputs import DELEGATED
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.history.requests import Answer, StoredRequest, check_payload, failed, requests_of, result
from laneway.history.store import HistoryStore

__all__ = ["Delegating", "children_of", "kept_after"]


def children_of(fields: Mapping[str, bytes]) -> tuple[ChildRef, ...]:
    """The turns that a turn has handed work to, from the turn's fields."""
    return tuple(stored.child for stored, _ in requests_of(fields) if stored.child is not None)


def kept_after(fields: Mapping[str, bytes], extras: Mapping[str, object]) -> Kept:
    """Where each kept conversation stands, with what the turn has added."""
    kept = kept_of(extras)
    for stored, answer in requests_of(fields):
        if (
            stored.child is not None
            and stored.child.kept is not None
            and answer is not None
            and answer.kind == "result"
        ):
            kept[stored.child.kept] = stored.child
    return kept


class Delegating:
    """Hands work to other agents' turns. Made by the steps."""

    def __init__(self, store: HistoryStore, agents: Agents) -> None:
        self._store = store
        self._agents = agents

    # Before a child starts --------------------------------------------------------------------------------------------

    def plan(
        self,
        fence: Fence,
        requests: Sequence[StoredRequest],
        *,
        options: TurnOptions,
        kept: Kept,
    ) -> list[tuple[StoredRequest, Answer | None]]:
        """Name the children of the requests that are delegations.

        Returns:
            each request, and where it may not be handed on, the answer that says so.
        """
        planned: list[tuple[StoredRequest, Answer | None]] = []
        busy: set[str] = set()
        for stored in requests:
            if stored.request.delegation is None:
                planned.append((stored, None))
                continue
            try:
                child = self._child(fence, stored, stored.request.delegation, options, kept, busy)
            except InvalidInput as refused:
                planned.append((stored, failed(str(refused))))
            else:
                planned.append((replace(stored, child=child), None))
        return planned

    def _child(
        self,
        fence: Fence,
        stored: StoredRequest,
        delegation: Delegation,
        options: TurnOptions,
        kept: Kept,
        busy: set[str],
    ) -> ChildRef:
        request = stored.request
        check_payload(request, delegation.schema)
        depth = options.depth + 1
        deepest = min(delegation.max_depth, options.max_depth or delegation.max_depth)
        if depth > deepest:
            raise InvalidInput(
                f"the work is {depth} delegations deep, and {deepest} are allowed: do it without another"
            )
        above = [parent.lane.agent for parent in options.parents] + [fence.lane.agent]
        if delegation.agent in above:
            raise InvalidInput(
                f"agent {delegation.agent!r} is at work on this already ({' → '.join(above)}): that would be a circle"
            )
        lane = self._agents.lane(child_conversation(fence.lane.lane_id, fence.turn_id, request.id), delegation.agent)
        turn_id = f"turn-{request.id}"
        if not delegation.keep:
            return ChildRef(request.delegate, lane, turn_id)
        goes_on = request.payload.get("child")
        if goes_on is None:
            return ChildRef(request.delegate, lane, turn_id, f"{request.delegate}-{request.id[:8]}")
        before = kept.get(goes_on)
        if before is None or before.delegate != request.delegate:
            known = ", ".join(sorted(one for one, ref in kept.items() if ref.delegate == request.delegate)) or "none"
            raise InvalidInput(f"there is no kept conversation {goes_on!r} with {request.delegate!r}: there is {known}")
        if goes_on in busy:
            raise InvalidInput(f"conversation {goes_on!r} is being gone on with already: one run at a time")
        if before.turns >= delegation.max_turns:
            raise InvalidInput(f"conversation {goes_on!r} has had its {delegation.max_turns} runs: begin another one")
        if before.lane.contract != lane.contract:
            raise InvalidInput(f"conversation {goes_on!r} was with another version of the agent: begin another one")
        busy.add(goes_on)
        return ChildRef(request.delegate, lane, turn_id, goes_on, before.turns + 1)

    async def prepare(
        self, fence: Fence, stored: StoredRequest, *, options: TurnOptions, account: TurnAccount, kept: Kept
    ) -> Awaited:
        """Write what a child begins from, unless it is there. Done again where the step is tried again."""
        child, delegation = stored.child, stored.request.delegation
        assert child is not None
        assert delegation is not None
        adapter = self._agents[child.lane.agent]
        brief = adapter.encode_prompt(brief_of(delegation, stored.request.payload))
        digest = blake2b(brief, digest_size=12).hexdigest()
        parent = account.as_parent(fence.lane, fence.turn_id)
        within = RequestBudget(max_request_tokens=parent.budget.max_request_tokens)
        given = TurnOptions(
            within.narrowed(delegation.budget),
            depth=options.depth + 1,
            is_brief=True,
            parents=(*options.parents, parent),
            max_depth=min(delegation.max_depth, options.max_depth or delegation.max_depth),
            trace=options.trace,
        )
        before = kept.get(child.kept) if child.kept is not None else None
        if before is not None and child.turns > 1:
            await self._store.fork(before.lane, child.lane)
        await self._store.index.register(child.lane, listed=False)
        await self._store.inputs.put(
            child.lane, child.turn_id, digest=digest, prompt=brief, claim=DELEGATED, options=given.to_json()
        )
        lane = child.lane
        turn = ChildTurn(
            lane.conversation,
            lane.agent,
            lane.contract,
            child.turn_id,
            digest,
            self._store.workflow_id(lane),
            delegation.seconds,
            stored.request.delegate,
            delegation.max_concurrency,
        )
        return Awaited(stored.request.id, None, turn)

    # After it has ended -----------------------------------------------------------------------------------------------

    async def outcome(self, stored: StoredRequest) -> Answer:
        """What a child came to."""
        child = stored.child
        assert child is not None
        record = await self._ended(child)
        if record.outcome == "cancelled":
            return failed(f"{child.delegate} was stopped before it had an answer")
        if record.outcome == "failed":
            return failed(f"{child.delegate} failed: {record.error_type}: {record.error_message}")
        output = to_jsonable_python(await self._output(child, record), bytes_mode="base64")
        return result(output if child.kept is None else {"output": output, "child": child.kept})

    async def _ended(self, child: ChildRef) -> TurnRecord:
        """How a child ended. One whose workflow is gone without it (an operator ended it) is ended here."""
        record = await self._store.record(child.lane, child.turn_id)
        if record is not None:
            return record
        digest = (await self._store.turns.unfinished(child.lane, child.turn_id)).get("p", b"").decode()
        stopped = TurnRecord(child.turn_id, "cancelled", digest, None, time.time())
        return await self._store.endings.abort(Fence(child.lane, child.turn_id), stopped, decided=True)

    async def _output(self, child: ChildRef, record: TurnRecord) -> object:
        adapter: Any = self._agents[child.lane.agent]
        if not record.output_in_history:
            return read_output(adapter, record.output, record.output_type)
        assert record.checkpoint is not None
        entry = await self._store.entry(child.lane, record.checkpoint)
        return adapter.output_of(adapter.decode(entry.payload))

    def judge(self, stored: StoredRequest, answer: Answer) -> None:
        """Have the turn fail where work that it handed out was not done, if it is to.

        Raises:
            DelegationFailed: it is.
        """
        delegation = stored.request.delegation
        if delegation is not None and answer.kind == "error" and delegation.on_failure == "fail_turn":
            raise DelegationFailed(f"{stored.request.name} came to nothing: {answer.reason}")

    async def release(self, extras: Mapping[str, object]) -> None:
        """Keep no longer for ever what kept conversations stood at before: nothing goes on from it any more.

        Once the turn at the root has committed, and with it all below; what a turn below it has put aside is still what
        the root stands at where that one comes to nothing. Done again by the root's next turn, since a worker can die
        between the commit and this.

        Args:
            extras: of the root's lane, as committed.
        """
        for child in superseded_of(extras):
            await self._store.expire_history(child.lane)
        for child in kept_of(extras).values():
            await self.release((await self._store.head(child.lane)).extras)

    async def drop(self, children: Sequence[ChildRef]) -> None:
        """Drop the tentative histories of a turn's children, and of theirs. How they ended, and what it took, stays."""
        for child in children:
            record = await self._ended(child)
            await self.drop(record.children)
            await self._store.drop_history(child.lane)
