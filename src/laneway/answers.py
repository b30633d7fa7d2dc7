"""What turns wait for, and how they are answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.service import RPCError, RPCStatusCode

from laneway.activities.capabilities import require
from laneway.activities.wire import ANSWER_REQUEST, AnswerNotice
from laneway.errors import AlreadyAnswered, ServiceUnavailable, UnknownRequest
from laneway.history.heads import TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.requests import Answer, PendingRequest, check_answer

if TYPE_CHECKING:
    from laneway.client import LanewayClient
    from laneway.turns import Turn

__all__ = ["Pending", "give_answer", "pending_anywhere", "pending_on"]

# A lane is taken out of the index of those that wait this long after it was entered, where it waits no more.
_FORGET_AFTER_SECONDS = 60.0


@dataclass(frozen=True)
class Pending:
    """A request that waits for an answer.

    Attributes:
        lane, turn_id: the turn that waits for it.
        request: what is asked.
        since: from when on, in seconds since 1970.
        deadline: when its default answer counts, in seconds since 1970; None for never.
    """

    lane: LaneKey
    turn_id: str
    request: PendingRequest
    since: float
    deadline: float | None = None


async def pending_on(client: LanewayClient, lane: LaneKey) -> list[Pending]:
    """What a lane's turn waits for, oldest first."""
    turn_id = await client.store.waits.turn_of(lane)
    if turn_id is None:
        return []
    return [
        Pending(lane, turn_id, stored.request, stored.since, stored.deadline)
        for stored, answer in await client.store.waits.requests(lane, turn_id)
        if answer is None
    ]


async def pending_anywhere(client: LanewayClient) -> list[Pending]:
    """What the turns of all lanes wait for, oldest first."""
    found: list[Pending] = []
    now = time.time()
    for lane, since in await client.store.waits.lanes():
        waits = await pending_on(client, lane)
        found += waits
        if not waits and since < now - _FORGET_AFTER_SECONDS:
            await client.store.waits.leave(lane, since)
    return sorted(found, key=lambda one: one.since)


async def give_answer(client: LanewayClient, turn: Turn, request_id: str, answer: Answer) -> None:
    """See `Turn.answer`."""
    lane, turn_id, store = turn.lane, turn.turn_id, client.store
    if lane.agent in client.agents:  # who answers need not have the application
        require(client.agents[lane.agent], "approval", agent=lane.agent, what="turn.answer(…)")
    known = {stored.request.id: stored.request for stored, _ in await store.waits.requests(lane, turn_id)}
    request = known.get(request_id)
    if request is None:
        record = await store.record(lane, turn_id)
        why = f"it has {', '.join(known) or 'none'}" if record is None else f"it has ended ({record.outcome})"
        raise UnknownRequest(f"turn {turn_id!r} has no request {request_id!r}: {why}")
    answer = check_answer(request, answer)
    try:
        standing = await store.waits.answer(lane, turn_id, request_id, answer)
    except TurnEnded as ended:
        raise UnknownRequest(
            f"turn {turn_id!r} waits for request {request_id!r} no more: it has ended ({ended.record.outcome})"
        ) from None
    # The lane is told even where there was an answer before: whoever gave it may have died before this.
    notice = AnswerNotice(turn_id, request_id, (standing or answer).digest)
    try:
        await client.temporal.get_workflow_handle(client.workflow_id(lane)).signal(ANSWER_REQUEST, notice)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            if await store.record(lane, turn_id) is not None:
                return  # it has gone on with this answer, and ended
            raise ServiceUnavailable(
                f"workflow {client.workflow_id(lane)!r} is not open, so turn {turn_id!r} does not go on. Cancel the "
                "turn, and submit it again under a new id"
            ) from None
        raise ServiceUnavailable(
            f"the answer is kept, and Temporal did not hear of it: {error.message} ({error.status.name}). Give the "
            "same answer again"
        ) from error
    if standing is not None and standing != answer:
        raise AlreadyAnswered(
            f"request {request_id} of turn {turn_id!r} was answered before ({standing.kind}): the first answer counts"
        )
