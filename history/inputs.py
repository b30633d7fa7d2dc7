"""The prompts of turns, kept from before a turn is accepted until it ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from laneway.errors import TurnConflict
from laneway.history.heads import LATEST, Fence, TurnEnded
from laneway.history.lanes import LaneKey
from laneway.history.layout import Answer
from laneway.history.link import StoreLink, decoded
from laneway.history.records import TurnRecord
from laneway.history.scripts import FENCE, FREEING, STRICT

__all__ = ["DELEGATED", "FORGOTTEN_AFTER", "Inputs", "KeptInput"]

DELEGATED: Final = "delegation"
"""Who submits a turn that does another turn's work, in place of a client."""

FORGOTTEN_AFTER: Final = timedelta(minutes=10)
"""For how long what a turn without history leaves behind can be read; its caller drops most of it earlier."""

# ARGV 8: the prompt's digest. 9: the prompt. 10: who submits. 11: options, empty for none. 12: for a turn that keeps no
# history how long its keys live on, else empty. Says 'ok', 'exists' (the same prompt is there), 'conflict' or 'ended';
# and with the first two the id of the newest event.
PUT_INPUT = (
    STRICT
    + FENCE
    + """
local known = redis.call('HGET', turn, 'p')
if known and known ~= ARGV[8] then return {'conflict', known} end
local newest = redis.call('XREVRANGE', events, '+', '-', 'COUNT', 1)
local since = newest[1] and newest[1][1] or '0-0'
if not known then
  redis.call('HSET', turn, 'p', ARGV[8], 'in', ARGV[9])
  if ARGV[11] ~= '' then redis.call('HSET', turn, 'op', ARGV[11]) end
  if ARGV[12] ~= '' then redis.call('HSET', turn, 'once', ARGV[12]) end
end
redis.call('HSET', turn, 'c:' .. ARGV[10], '')
-- Behind a turn that waits, or as that turn, it may have to last for as long as that.
if redis.call('EXISTS', base .. 'waits') == 1 then redis.call('PERSIST', turn) else redis.call('EXPIRE', turn, ttl) end
redis.call('SADD', base .. 'open', id)
redis.call('EXPIRE', base .. 'open', ttl)
return {known and 'exists' or 'ok', since}
"""
)

# ARGV 8: who submitted, and was refused. Says 'ok', or 'exists' where the turn has begun or another's submit may have
# been accepted.
DROP_INPUT = (
    FREEING
    + FENCE
    + """
redis.call('HDEL', turn, 'c:' .. ARGV[8])
for _, field in ipairs(redis.call('HKEYS', turn)) do
  if field == 'b' or string.sub(field, 1, 2) == 'c:' then return {'exists'} end
end
redis.call('UNLINK', turn)
redis.call('SREM', base .. 'open', id)
return {'ok'}
"""
)


@dataclass(frozen=True)
class KeptInput:
    """What was found where a prompt is kept.

    Attributes:
        newest: the id of the lane's newest event.
        is_known: whether the same prompt was kept before, so that the turn may have been accepted.
    """

    newest: str
    is_known: bool


class Inputs:
    """The prompts of all turns. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._put: Any = link.script(PUT_INPUT)
        self._drop: Any = link.script(DROP_INPUT)

    async def put(
        self, lane: LaneKey, turn_id: str, *, digest: str, prompt: bytes, claim: str = "", options: str = ""
    ) -> TurnRecord | KeptInput:
        """Keep a turn's prompt until the turn ends.

        Args:
            lane, turn_id: whose.
            digest: names the prompt.
            prompt: as the adapter encoded it.
            claim: names the client among all that submit the turn; see `drop`.
            options: what the turn goes by, see `TurnOptions.to_json`; those of its first submit stay.

        Returns:
            what was found, or the turn's record where it has ended already with this prompt.

        Raises:
            TurnConflict: the turn id was used with another prompt.
        """
        once = int(FORGOTTEN_AFTER.total_seconds()) if lane.is_once else ""
        try:
            answer, *rest = await self._link.run(
                self._put, Fence(lane, turn_id, attempt=LATEST), digest, prompt, claim, options, once
            )
        except TurnEnded as ended:
            if ended.record.prompt_digest != digest:
                raise _conflict(turn_id) from None
            return ended.record
        if answer == Answer.CONFLICT:
            raise _conflict(turn_id)
        return KeptInput(decoded(rest[0]), is_known=answer == Answer.EXISTS)

    async def is_handed_out(self, lane: LaneKey, turn_id: str) -> bool:
        """Whether an unfinished turn does another turn's work, which may start it later."""
        name = self._link.names(lane).turn(turn_id)
        return bool(await self._link.ask(self._link.redis.hexists(name, f"c:{DELEGATED}")))

    async def drop(self, lane: LaneKey, turn_id: str, *, claim: str) -> None:
        """Forget the prompt of a turn that was not accepted, unless another client's submit of it may have been."""
        with suppress(TurnEnded):
            await self._link.run(self._drop, Fence(lane, turn_id, attempt=LATEST), claim)


def _conflict(turn_id: str) -> TurnConflict:
    return TurnConflict(f"turn id {turn_id!r} was used with another prompt: give this prompt an id of its own")
