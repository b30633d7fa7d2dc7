"""How turns end: the head moves to what a turn has staged, or all of that is dropped. And what is left of them then."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from laneway.history.checkpoints import CheckpointRef, StoredEntry, encode_entries
from laneway.history.heads import LATEST, Fence, TurnEnded, lost, part_names
from laneway.history.inputs import FORGOTTEN_AFTER
from laneway.history.lanes import LaneKey
from laneway.history.layout import Answer
from laneway.history.link import StoreLink, decoded
from laneway.history.records import TERMINAL, EventKind, LaneEvent, TurnRecord
from laneway.history.scripts import FENCE, FREEING, STRICT
from laneway.history.threads import ThreadMessage

__all__ = ["Endings"]

_MAX_TOLD_BYTES: Final = 64 * 1024
"""A larger answer is read by who waits for it, and not told with the turn's end to all that listen to the lane."""

# What a turn has spent, as its record says (from ARGV `at` on: requests, tool calls, input tokens) or as it was
# charged, which counts failures too, goes to the lane's account.
_SPENT = """
local function count_spent(at)
  local mine, all = base .. 'spent:' .. id, base .. 'spent'
  for offset, name in ipairs({'r', 't', 'i'}) do
    local charged = tonumber(redis.call('HGET', mine, name) or '0')
    redis.call('HINCRBY', all, name, math.max(charged, tonumber(ARGV[at + offset - 1])))
  end
  redis.call('UNLINK', mine)
end
"""

# A turn that keeps no history: with its end the lane's keys are given their time.
_FORGET = """
local once = redis.call('HGET', turn, 'once')
local function forget(epoch)
  if not once then return end
  for _, name in ipairs({'head', 'turns', 'events', 'spent', 'thread', 'archive', 'parts', 'epoch:' .. epoch}) do
    redis.call('EXPIRE', base .. name, once)
  end
end
"""

# ARGV 8: base epoch. 9: base length. 10: new epoch. 11: new length. 12: new digest. 13: extras. 14: record. 15: event.
# 16: seconds that a replaced epoch is kept. 17, 18, 19: what the turn spent. 20: the answer for the text
# thread, empty for none. 21: how many events come before the one that ends the turn. 22: the messages that the turn has
# taken in, as JSON: for each its turn id, the event that ends it and its record. 23: how large the last entry may be to
# be told to who waits, with the turn's end; 0 where nobody needs it. 24: the names of the parts that are kept from now
# on, by spaces; all others go. Then come the events. The rest: encoded entries that were not staged before. Says 'ok'
# and the turn's number.
COMMIT = (
    STRICT
    + FENCE
    + _SPENT
    + _FORGET
    + """
local old, new = ARGV[8], ARGV[10]
local stage, epoch = base .. 'stage:' .. id .. ':' .. new, base .. 'epoch:' .. new
local staged = redis.call('LLEN', stage)
local kept = 0
if old == new then
  kept = redis.call('LLEN', epoch)
  if kept ~= tonumber(ARGV[9]) then return {'damaged', kept} end
end
local first = 25 + tonumber(ARGV[21])
local total = kept + staged + #ARGV - first + 1
if total ~= tonumber(ARGV[11]) then return {'damaged', total} end
local parts, wanted = base .. 'parts', {}
for name in string.gmatch(ARGV[24], '%S+') do
  wanted[name] = true
  if redis.call('HEXISTS', parts, name) == 0 and redis.call('HEXISTS', turn, 'k:' .. name) == 0 then
    return {'missing', name}
  end
end
for name in pairs(wanted) do
  local made = redis.call('HGET', turn, 'k:' .. name)
  if made then redis.call('HSET', parts, name, made) end
end
for _, name in ipairs(redis.call('HKEYS', parts)) do
  if not wanted[name] then redis.call('HDEL', parts, name) end
end
if old == new then
  for from = 0, staged - 1, 1000 do
    redis.call('RPUSH', epoch, unpack(redis.call('LRANGE', stage, from, from + 999)))
  end
  redis.call('UNLINK', stage)
else
  if staged > 0 then
    redis.call('RENAME', stage, epoch)
    redis.call('PERSIST', epoch)
  else
    redis.call('UNLINK', epoch)
  end
  redis.call('EXPIRE', base .. 'epoch:' .. old, ARGV[16])
end
-- Where the last step wrote the history anew, what was staged for the epoch before it is of no use.
local before = redis.call('HGET', turn, 'se')
if before and before ~= new then redis.call('UNLINK', base .. 'stage:' .. id .. ':' .. before) end
push(epoch, first)
if ARGV[20] ~= '' then redis.call('RPUSH', base .. 'thread', ARGV[20]) end
redis.call('HSET', head, 'v', tonumber(now_at) + 1, 'e', new, 'n', ARGV[11], 'd', ARGV[12], 't', id, 'x', ARGV[13])
local number = redis.call('HLEN', turns) + 1
redis.call('HSET', turns, id, number .. '|' .. ARGV[14])
count_spent(17)
local archived = base .. 'archive:' .. id
if redis.call('EXISTS', archived) == 1 then
  for _, reference in ipairs(redis.call('HKEYS', archived)) do
    redis.call('HSET', base .. 'archive', reference, redis.call('HGET', archived, reference))
  end
  redis.call('UNLINK', archived)
end
redis.call('UNLINK', turn)
redis.call('SREM', base .. 'open', id)
if redis.call('GET', base .. 'waits') == id then redis.call('UNLINK', base .. 'waits') end
for at = 25, first - 1 do say(ARGV[at]) end
local taken = {}
if ARGV[22] ~= '' then taken = cjson.decode(ARGV[22]) end
for _, one in ipairs(taken) do
  if redis.call('HEXISTS', turns, one[1]) == 0 then
    local record = (redis.call('HLEN', turns) + 1) .. '|' .. one[3]
    redis.call('HSET', turns, one[1], record)
    redis.call('UNLINK', base .. 'turn:' .. one[1])
    redis.call('SREM', base .. 'open', one[1])
    say(one[2], 'end:' .. one[1] .. '\\n' .. record)
  end
end
local word = 'end:' .. id .. '\\n' .. number .. '|' .. ARGV[14]
local longest = tonumber(ARGV[23])
if longest > 0 then
  local entry = redis.call('LINDEX', epoch, -1)
  if entry and #entry <= longest then word = word .. '\\n' .. entry end
end
local last = say(ARGV[15], word)
-- The events of older turns are let go: what they said is in the history.
local ends = redis.call('HGET', head, 'w')
ends = ends and (ends .. ' ' .. last) or last
local _, kept_turns = string.gsub(ends, '%S+', '')
if kept_turns > tonumber(turns_on_stream) then
  local oldest, rest = string.match(ends, '^(%S+) (.*)$')
  redis.call('XTRIM', events, 'MINID', oldest)
  ends = rest
end
redis.call('HSET', head, 'w', ends)
forget(new)
return {'ok', number}
"""
)

# ARGV 8: record. 9: event. 10, 11, 12: what the turn spent. Runs out of memory limits: it frees more than it takes.
# Says 'ok' and the turn's number.
ABORT = (
    FREEING
    + FENCE
    + _SPENT
    + _FORGET
    + """
local staged = redis.call('HGET', turn, 'se')
if staged then redis.call('UNLINK', base .. 'stage:' .. id .. ':' .. staged) end
count_spent(10)
redis.call('UNLINK', base .. 'archive:' .. id)
redis.call('UNLINK', turn)
redis.call('SREM', base .. 'open', id)
if redis.call('GET', base .. 'waits') == id then redis.call('UNLINK', base .. 'waits') end
local number = redis.call('HLEN', turns) + 1
redis.call('HSET', turns, id, number .. '|' .. ARGV[8])
say(ARGV[9], 'end:' .. id .. '\\n' .. number .. '|' .. ARGV[8])
forget('0')
return {'ok', number}
"""
)


class Endings:
    """The ends of all turns. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._commit: Any = link.script(COMMIT)
        self._abort: Any = link.script(ABORT)

    async def commit(
        self,
        fence: Fence,
        *,
        base: CheckpointRef,
        after: CheckpointRef,
        entries: Sequence[StoredEntry],
        extras: Mapping[str, object],
        record: TurnRecord,
        reply: str | None = None,
        events: Sequence[LaneEvent] = (),
    ) -> TurnRecord:
        """Move the head to what the turn has staged, and to `entries` after that. On disk when this returns.

        Args:
            fence: who commits.
            base: the head that the turn began from.
            after: the checkpoint that the staged entries lead to; `base` where there are none.
            entries: what follows it, not staged before.
            extras: see `Head.extras`. Parts that it names are the lane's from now on, and no others.
            record: how the turn ended, without number and checkpoint.
            reply: the assistant's message, for the text thread.
            events: said before the one that ends the turn.

        Returns:
            the record as it is stored.

        Raises:
            TurnEnded, StaleTurn: as for every write.
            CheckpointLost: the committed entries are not as many as the head says, or a part is missing.
        """
        encoded, digest = encode_entries(entries, after=after.digest)
        tip = CheckpointRef(after.epoch, after.length + len(encoded), digest)
        record = replace(record, checkpoint=tip)
        arguments: tuple[bytes | str | int, ...] = (
            base.epoch,
            base.length,
            tip.epoch,
            tip.length,
            tip.digest,
            json.dumps(extras, separators=(",", ":")),
            record.to_json(),
            LaneEvent(EventKind.TURN_COMMITTED, fence.turn_id, fence.step, fence.attempt).to_json(),
            self._link.stage_ttl,
            *_spent(record),
            "" if reply is None else ThreadMessage("assistant", reply).to_json(),
            len(events),
            _taken(record),
            _MAX_TOLD_BYTES if record.output_in_history else 0,
            " ".join(part_names(extras)),
            *(event.to_json() for event in events),
            *encoded,
        )
        answer, number = await self._link.run(self._commit, fence, *arguments, on_disk=True)
        if answer == Answer.DAMAGED:
            raise lost(base, f"its list of entries leads to {number} where {tip.length} were expected")
        if answer == Answer.MISSING:
            raise lost(base, f"part {decoded(number)} of what is kept beside it is gone")
        return replace(record, number=number)

    async def abort(self, fence: Fence, record: TurnRecord, *, decided: bool = False) -> TurnRecord:
        """Drop what the turn has staged, whole, and keep how it ended.

        Args:
            fence: who aborts; its version is not looked at.
            record: how the turn ended, without number.
            decided: it is the workflow that ends the turn, and not an attempt whose step failed.

        Returns:
            the record as it is stored: another one where the turn had ended before.

        Raises:
            StaleTurn: a later attempt at the step has begun; it decides how the turn ends.
        """
        data: dict[str, object] = {}
        if record.error_type is not None:
            data = {"error": record.error_type, "message": record.error_message}
        event = LaneEvent(TERMINAL[record.outcome], fence.turn_id, fence.step, fence.attempt, data)
        try:
            _, number = await self._link.run(
                self._abort,
                replace(fence, version=None, attempt=LATEST if decided else fence.attempt),
                record.to_json(),
                event.to_json(),
                *_spent(record),
                on_disk=True,
            )
        except TurnEnded as ended:
            return ended.record
        return replace(record, number=number)

    async def owe(self, lane: LaneKey, turn_id: str, options: bytes) -> None:
        """Note, before a turn ends, that its hooks are to be told of its end; `options` are what it went by."""
        link, name = self._link, self._link.names(lane).owed(turn_id)
        await link.outlast(lambda: link.redis.set(name, options, ex=link.stage_ttl))

    async def owed(self, lane: LaneKey, turn_id: str) -> bytes | None:
        """What a turn went by whose end its hooks were not told of yet; None where they were, or there are none."""
        options: bytes | None = await self._link.ask(self._link.redis.get(self._link.names(lane).owed(turn_id)))
        return options

    async def settle(self, lane: LaneKey, turn_id: str) -> None:
        """Note that they were told."""
        await self._link.ask(self._link.redis.unlink(self._link.names(lane).owed(turn_id)))

    async def forget(self, lane: LaneKey, record: TurnRecord) -> None:
        """Drop what a turn without history left behind, but for the bare fact that it has ended.

        That stays for a while, so that an attempt that was given up on, and wakes, writes nothing.
        """
        names, epoch = self._link.names(lane), 0 if record.checkpoint is None else record.checkpoint.epoch
        bare = replace(record, output=None, error_message=None, attempts=())
        async with self._link.redis.pipeline(transaction=True) as pipe:
            pipe.unlink(
                names.head,
                names.events,
                names.turn(record.turn_id),
                names.epoch(epoch),
                names.spent,
                names.thread,
                names.archive,
                names.parts,
            )
            pipe.hset(names.turns, record.turn_id, b"%d|%s" % (record.number, bare.to_json()))
            pipe.expire(names.turns, FORGOTTEN_AFTER)
            await self._link.ask(pipe.execute())


def _spent(record: TurnRecord) -> tuple[int, int, int]:
    usage = record.usage
    return usage.requests, usage.tool_calls, usage.input_tokens


def _taken(record: TurnRecord) -> str:
    """The messages that a turn has taken in, as the commit's script reads them."""
    if not record.tally.steered:
        return ""
    said = {"into": record.turn_id}
    return json.dumps(
        [
            [
                one.turn_id,
                LaneEvent(EventKind.TURN_COMMITTED, one.turn_id, data=said).to_json().decode(),
                one.to_json().decode(),
            ]
            for one in record.steered()
        ]
    )
