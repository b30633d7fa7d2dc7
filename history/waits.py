"""What turns wait for: the requests of a turn, their answers, and the lanes that have such a turn."""

from __future__ import annotations

from typing import Any

from laneway.errors import UnknownRequest
from laneway.history import layout
from laneway.history.heads import LATEST, Fence
from laneway.history.lanes import LaneKey
from laneway.history.link import StoreLink
from laneway.history.records import EventKind, LaneEvent
from laneway.history.requests import Answer, StoredRequest, requests_of
from laneway.history.scripts import FENCE, STRICT

__all__ = ["Waits"]

# ARGV 8: the request. 9: the answer. 10: the event. First answer wins. Says 'ok', 'exists' and the answer that counts,
# or 'unknown'.
ANSWER = (
    STRICT
    + FENCE
    + """
if redis.call('HEXISTS', turn, 'q:' .. ARGV[8]) == 0 then return {'unknown'} end
local held = redis.call('HGET', turn, 'r:' .. ARGV[8])
if held then return {'exists', held} end
redis.call('HSET', turn, 'r:' .. ARGV[8], ARGV[9])
say(ARGV[10])
return {'ok'}
"""
)

# KEYS: the index of lanes that wait. ARGV 1: a lane. 2: since when, as it was read.
FORGET_WAITING = (
    STRICT
    + """
local since = redis.call('ZSCORE', KEYS[1], ARGV[1])
if since and tonumber(since) == tonumber(ARGV[2]) then return redis.call('ZREM', KEYS[1], ARGV[1]) end
return 0
"""
)


class Waits:
    """The requests of all turns that wait. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._answer: Any = link.script(ANSWER)
        self._forget: Any = link.script(FORGET_WAITING)

    async def answer(self, lane: LaneKey, turn_id: str, request: str, answer: Answer) -> Answer | None:
        """Keep the answer to a request that the turn waits for; the first one counts. On disk when this returns.

        Returns:
            None, or the answer that counts where one was kept before.

        Raises:
            UnknownRequest: the turn has no such request.
            TurnEnded: the turn has ended.
        """
        event = LaneEvent(
            EventKind.REQUEST_ANSWERED, turn_id, data={"request": request, "answer": answer.kind}
        ).to_json()
        said, *rest = await self._link.run(
            self._answer, Fence(lane, turn_id, attempt=LATEST), request, answer.to_json(), event, on_disk=True
        )
        if said == layout.Answer.UNKNOWN:
            raise UnknownRequest(
                f"turn {turn_id!r} has no request {request!r}: `laneway pending` lists what is waited for"
            )
        return Answer.from_json(rest[0]) if said == layout.Answer.EXISTS else None

    async def turn_of(self, lane: LaneKey) -> str | None:
        """The lane's turn that waits for requests, or that did and has not ended; None where there is none."""
        turn_id: bytes | None = await self._link.ask(self._link.redis.get(self._link.names(lane).waits))
        return None if turn_id is None else turn_id.decode()

    async def requests(self, lane: LaneKey, turn_id: str) -> list[tuple[StoredRequest, Answer | None]]:
        """What an unfinished turn has waited for, each with its answer, in the order in which it came."""
        name = self._link.names(lane).turn(turn_id)
        fields: list[bytes] = await self._link.ask(self._link.redis.hkeys(name))
        wanted = [field for field in fields if field[:1] == b"w" or field[:2] in (b"q:", b"r:")]
        if not wanted:
            return []
        values: list[bytes | None] = await self._link.ask(self._link.redis.hmget(name, wanted))
        return requests_of({k.decode(): v for k, v in zip(wanted, values, strict=True) if v is not None})

    async def enter(self, lane: LaneKey, *, now: float) -> None:
        """Enter a lane into the index of those that have a turn which waits for requests."""
        await self._link.ask(self._link.redis.zadd(f"{self._link.prefix}:waiting", {lane.to_json(): now}))

    async def lanes(self) -> list[tuple[LaneKey, float]]:
        """The lanes that have, or had, a turn that waits for requests, and since when."""
        found: list[tuple[bytes, float]] = await self._link.ask(
            self._link.redis.zrange(f"{self._link.prefix}:waiting", 0, -1, withscores=True)
        )
        return [(LaneKey.from_json(text), score) for text, score in found]

    async def leave(self, lane: LaneKey, since: float) -> None:
        """Take a lane out of that index, unless it was entered again."""
        await self._link.ask(self._forget([f"{self._link.prefix}:waiting"], [lane.to_json(), repr(since)]))
