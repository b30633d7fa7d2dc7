"""`laneway lanes` and `laneway cancel`, and how a lane is found where there is no application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.cli.failures import NotFound
from laneway.cli.output import note, table, write, write_json
from laneway.cli.places import locate, open_client, open_store
from laneway.errors import InvalidInput, ServiceUnavailable

if TYPE_CHECKING:
    from laneway.activities.agents import Agents
    from laneway.client import LanewayClient
    from laneway.history.heads import Head
    from laneway.history.lanes import LaneKey
    from laneway.history.store import HistoryStore
    from laneway.turns import CancelOutcome

__all__ = ["cancel_turn", "check_lane", "choose_lane", "find_lanes", "list_lanes", "newest"]

# Enough to keep one connection busy, and not so many that a thousand lanes ask for a thousand connections.
_AT_ONCE = 50


async def list_lanes(conversation: str | None, *, data_dir: Path, as_json: bool) -> None:
    """Write all lanes, or those of one conversation."""
    from laneway.history.lanes import check_name

    if conversation is not None:
        check_name(conversation, what="the conversation id")
    async with open_store(await locate(data_dir)) as store:
        lanes = await store.index.lanes(conversation)
        heads: list[Head] = []
        for first in range(0, len(lanes), _AT_ONCE):
            heads += await asyncio.gather(*(store.head(lane) for lane in lanes[first : first + _AT_ONCE]))
    if as_json:
        write_json({"lanes": [_lane_json(store, lane, head) for lane, head in zip(lanes, heads, strict=True)]})
        return
    if not lanes:
        note("no lanes yet" if conversation is None else f"conversation {conversation!r} has no lanes")
        return
    table(
        ("conversation", "agent", "contract", "turns", "messages", "epoch", "last turn"),
        [
            (
                lane.conversation,
                lane.agent,
                lane.contract,
                str(head.version),
                str(head.checkpoint.length),
                str(head.checkpoint.epoch),
                head.turn_id or "-",
            )
            for lane, head in zip(lanes, heads, strict=True)
        ],
        right=("turns", "messages", "epoch"),
    )


def _lane_json(store: HistoryStore, lane: LaneKey, head: Head) -> dict[str, object]:
    return {
        "conversation": lane.conversation,
        "agent": lane.agent,
        "contract": lane.contract,
        "workflow_id": store.workflow_id(lane),
        "version": head.version,
        "epoch": head.checkpoint.epoch,
        "length": head.checkpoint.length,
        "last_turn": head.turn_id,
    }


async def cancel_turn(
    conversation: str, agent: str, turn_id: str, *, timeout: float, data_dir: Path, as_json: bool
) -> int:
    """Stop a turn, wait until it has ended, and say how it did."""
    from laneway.activities.agents import Agents
    from laneway.history.lanes import check_name

    check_lane(conversation, agent)
    check_name(turn_id, what="the turn id")
    if timeout <= 0:
        raise InvalidInput(f"the timeout is {timeout:g} s: give a positive one")
    async with open_client(Agents({}), await locate(data_dir)) as client:
        lane = await _lane_of(client, conversation, agent, turn_id)
        try:
            async with asyncio.timeout(timeout):
                outcome = await client.turn(lane, turn_id).cancel()
        except TimeoutError:
            raise ServiceUnavailable(
                f"turn {turn_id!r} was told to stop, and has not ended in {timeout:g} s; start a worker "
                "(`laneway worker APP`), and it ends as cancelled"
            ) from None
    if outcome == "unknown":
        raise _no_turn(conversation, agent, turn_id)
    if as_json:
        write_json({"turn_id": turn_id, "outcome": outcome, "contract": lane.contract})
    else:
        write(f"turn {turn_id} {_ENDED[outcome]}\n")
    return 0 if outcome == "cancelled" else 1


_ENDED: Mapping[CancelOutcome, str] = {
    "cancelled": "was cancelled; its lane is as it was before it",
    "already_committed": "had been committed already: nothing was cancelled",
    "already_failed": "had failed already: nothing was cancelled",
}


async def _lane_of(client: LanewayClient, conversation: str, agent: str, turn_id: str) -> LaneKey:
    """The lane that has a turn, among those of all contracts."""
    for lane in await find_lanes(client.store, conversation, agent):
        if await client.store.turns.is_pending(lane, turn_id) or await client.store.record(lane, turn_id) is not None:
            return lane
    raise _no_turn(conversation, agent, turn_id)


def _no_turn(conversation: str, agent: str, turn_id: str) -> NotFound:
    return NotFound(
        f"conversation {conversation!r} with agent {agent!r} has no turn {turn_id!r}; "
        f"`laneway show {conversation} {agent}` lists its turns"
    )


def check_lane(conversation: str, agent: str) -> None:
    """Make sure that a conversation's id and an agent's name can be such, before anything is connected.

    Raises:
        InvalidInput: one cannot.
    """
    from laneway.history.lanes import check_name

    check_name(conversation, what="the conversation id")
    check_name(agent, what="the agent's name")


async def find_lanes(store: HistoryStore, conversation: str, agent: str) -> Sequence[LaneKey]:
    """The lanes of a conversation with an agent: one for each contract that the agent has had.

    Raises:
        NotFound: there is none.
    """
    in_conversation = await store.index.lanes(conversation)
    lanes = [lane for lane in in_conversation if lane.agent == agent]
    if not lanes:
        others = sorted({lane.agent for lane in in_conversation})
        there = f"it has talked with {', '.join(map(repr, others))}" if others else "`laneway lanes` lists all"
        raise NotFound(f"there is no lane of conversation {conversation!r} with agent {agent!r}; {there}")
    return lanes


async def choose_lane(
    store: HistoryStore, lanes: Sequence[LaneKey], agents: Agents | None, contract: str | None
) -> LaneKey:
    """The lane of a contract, or of the agent's contract in an application, or the one that changed last.

    Raises:
        InvalidInput: `contract` does not name one of them.
        NotFound: none is of the application's contract.
    """
    if contract is not None:
        found = [lane for lane in lanes if lane.contract.startswith(contract)]
        if len(found) != 1:
            known = ", ".join(lane.contract for lane in lanes)
            which = "several contracts that begin" if found else "no contract that begins"
            raise InvalidInput(f"the lane has {which} with {contract!r}; it has {known}")
        return found[0]
    if agents is not None:
        lane = agents.lane(lanes[0].conversation, lanes[0].agent)
        if lane not in lanes:
            known = ", ".join(other.contract for other in lanes)
            raise NotFound(
                f"agent {lane.agent!r} has contract {lane.contract} in this APP, and conversation "
                f"{lane.conversation!r} has lanes under {known} only; choose one with --contract"
            )
        return lane
    return await newest(store, lanes)


async def newest(store: HistoryStore, lanes: Sequence[LaneKey]) -> LaneKey:
    """The lane on which something happened last."""
    if len(lanes) == 1:
        return lanes[0]
    latest = [await _last_change(store, lane) for lane in lanes]
    return lanes[max(range(len(lanes)), key=lambda index: latest[index])]


async def _last_change(store: HistoryStore, lane: LaneKey) -> int:
    """When the lane's newest event was, in milliseconds since 1970; 0 where there was none."""
    last = "0-0"
    while events := await store.events(lane, after=last):
        last = events[-1].event_id
    return int(last.partition("-")[0])
