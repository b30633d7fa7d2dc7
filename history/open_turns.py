"""Turns that have not ended: what a step begins from, and what it writes apart from the head."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from laneway.errors import CheckpointCorrupt, CheckpointLost
from laneway.history import layout
from laneway.history.checkpoints import DIGEST_BYTES, CheckpointRef, StoredEntry, decode_entries, encode_entries
from laneway.history.heads import Fence, LoadedTurn, checked_entries, lost, pairs_of, read_head
from laneway.history.lanes import LaneKey
from laneway.history.link import StoreLink
from laneway.history.records import EventKind, LaneEvent
from laneway.history.requests import Answer, StoredRequest
from laneway.history.scripts import FENCE, PRESENT, STRICT

__all__ = ["OpenTurns"]

_MAX_SHOWN_CHARS: Final = 4000
"""A longer payload of a request is not repeated on the stream."""

# ARGV 8, 9: the epoch and the length that the caller holds decoded. 10: milliseconds since 1970. 11: the event that
# says the turn began, 12: the one that says this attempt began, empty for none. Says 'ok', head, turn, first index of
# the entries, the entries, the staged entries, the lane's parts, the turns that are open.
LOAD = (
    STRICT
    + FENCE
    + """
if redis.call('EXISTS', turn) == 1 then
  if attempt > begun then redis.call('HSET', turn, 'a' .. step, attempt) end
  if redis.call('HSETNX', turn, 'b', ARGV[10]) == 1 then say(ARGV[11]) end
  if attempt > 1 and ARGV[12] ~= '' then say(ARGV[12]) end
end
local heads = redis.call('HGETALL', head)
local fields = redis.call('HGETALL', turn)
local epoch = redis.call('HGET', head, 'e') or '0'
local length = tonumber(redis.call('HGET', head, 'n') or '0')
local first = 0
if epoch == ARGV[8] and tonumber(ARGV[9]) <= length then first = tonumber(ARGV[9]) end
local entries = {}
if first < length then entries = redis.call('LRANGE', base .. 'epoch:' .. epoch, first, length - 1) end
local staged = redis.call('HGET', turn, 'se')
local stage = {}
if staged then stage = redis.call('LRANGE', base .. 'stage:' .. id .. ':' .. staged, 0, -1) end
local open = redis.call('SMEMBERS', base .. 'open')
return {'ok', heads, fields, first, entries, stage, redis.call('HGETALL', base .. 'parts'), open}
"""
)

# ARGV 8: field. 9: value. 10: the epoch staged for. 11: how many fields follow that are written with it, name and value
# in turn, then how many events; each of their values. The rest: encoded entries. First write wins. Where more fields
# are written, they are those of requests, and the turn waits: for them it is kept without an end.
STAGE = (
    STRICT
    + FENCE
    + """
local held = redis.call('HGET', turn, ARGV[8])
if held then return {'exists', held} end
if redis.call('HEXISTS', turn, 'p') == 0 then return {'stale', 'gone'} end
local field, value, epoch, fields = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local before = redis.call('HGET', turn, 'se')
local staged = before
local at = 12
for _ = 1, fields do
  redis.call('HSET', turn, ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, tonumber(ARGV[at]) do
  at = at + 1
  say(ARGV[at])
end
if epoch ~= '' then
  if before and before ~= epoch then redis.call('UNLINK', base .. 'stage:' .. id .. ':' .. before) end
  redis.call('HSET', turn, field, value, 'se', epoch)
  staged = epoch
  push(base .. 'stage:' .. id .. ':' .. epoch, at + 1)
else
  redis.call('HSET', turn, field, value)
end
local keys = {turn, base .. 'spent:' .. id, base .. 'archive:' .. id}
if staged then keys[4] = base .. 'stage:' .. id .. ':' .. staged end
for _, key in ipairs(keys) do
  if fields > 0 then redis.call('PERSIST', key) else redis.call('EXPIRE', key, ttl) end
end
if fields > 0 then
  redis.call('SET', base .. 'waits', id)
  for _, behind in ipairs(redis.call('SMEMBERS', base .. 'open')) do
    redis.call('PERSIST', base .. 'turn:' .. behind)
  end
end
return {'ok'}
"""
)

# ARGV 8...: names and parts in turn. The first part of a name stays: it is named after what it is.
KEEP = (
    STRICT
    + FENCE
    + PRESENT
    + """
for at = 8, #ARGV, 2 do redis.call('HSETNX', turn, 'k:' .. ARGV[at], ARGV[at + 1]) end
return {'ok'}
"""
)

# ARGV 8: field. 9: value. 10: the prompt from now on, empty for the one that there is. First write wins.
DECIDE = (
    STRICT
    + FENCE
    + """
local held = redis.call('HGET', turn, ARGV[8])
if held then return {'exists', held} end
if redis.call('HEXISTS', turn, 'p') == 0 then return {'stale', 'gone'} end
redis.call('HSET', turn, ARGV[8], ARGV[9])
if ARGV[10] ~= '' then redis.call('HSET', turn, 'in', ARGV[10]) end
return {'ok'}
"""
)

# ARGV 8: how many fields follow, name and value in turn. The rest: events. Of each field the first write wins. Says
# 'ok' and, field by field, what it held before.
NOTE = (
    STRICT
    + FENCE
    + PRESENT
    + """
local fields = tonumber(ARGV[8])
local held = {}
for at = 1, fields do
  local name = ARGV[7 + 2 * at]
  held[at] = redis.call('HGET', turn, name)
  if not held[at] then redis.call('HSET', turn, name, ARGV[8 + 2 * at]) end
end
for at = 9 + 2 * fields, #ARGV do say(ARGV[at]) end
if fields > 0 then
  local keys = {turn, base .. 'spent:' .. id, base .. 'archive:' .. id}
  local staged = redis.call('HGET', turn, 'se')
  if staged then keys[4] = base .. 'stage:' .. id .. ':' .. staged end
  for _, key in ipairs(keys) do redis.call('EXPIRE', key, ttl) end
end
return {'ok', held}
"""
)


class OpenTurns:
    """The unfinished turns of all lanes. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._load: Any = link.script(LOAD)
        self._stage: Any = link.script(STAGE)
        self._keep: Any = link.script(KEEP)
        self._decide: Any = link.script(DECIDE)
        self._note: Any = link.script(NOTE)

    async def load(
        self, fence: Fence, *, held: CheckpointRef, started: LaneEvent, retried: LaneEvent | None, now: float
    ) -> LoadedTurn:
        """Begin an attempt at a step: read everything that it needs, in one round trip.

        Args:
            fence: who begins; its version is not looked at.
            held: the checkpoint that the caller holds decoded, so that only what follows is read.
            started: published where no step of the turn began before.
            retried: published where this is not the step's first attempt; None for nothing.
            now: seconds since 1970.

        Raises:
            TurnEnded, StaleTurn: the turn has ended, or a later attempt has begun.
            CheckpointLost, CheckpointCorrupt: committed history is missing or altered.
        """
        _, heads, fields, first, entries, stage, parts, is_open = await self._link.run(
            self._load,
            replace(fence, version=None),
            held.epoch,
            held.length,
            round(now * 1000),
            started.to_json(),
            "" if retried is None else retried.to_json(),
        )
        head = read_head(pairs_of(heads), pairs_of(parts))
        base = head.checkpoint
        try:
            if first == base.length and first and base.digest != held.digest:
                raise lost(base, "the head names another last entry")
            decoded = checked_entries(entries, base, first=first, after=held.digest if first else "")
        except (CheckpointLost, CheckpointCorrupt):
            if not first:
                raise
            # What the caller holds is not of this history: it must be told of damage only for what is stored.
            first, entries = 0, await self._link.entries(fence.lane, base.epoch, 0, base.length)
            decoded = checked_entries(entries, base, first=0, after="")
        turn = pairs_of(fields)
        staged_epoch = int(turn.get("se", b"-1"))
        root = base if staged_epoch == base.epoch else CheckpointRef(max(staged_epoch, 0), 0, "")
        staged = decode_entries(stage, after=root.digest, epoch=root.epoch, first_index=root.length)
        tip = stage[-1][:DIGEST_BYTES].hex() if stage else root.digest
        checkpoint = CheckpointRef(root.epoch, root.length + len(stage), tip) if staged_epoch >= 0 else base
        return LoadedTurn(head, decoded, first, staged, checkpoint, turn, frozenset(map(bytes.decode, is_open)))

    async def stage(
        self,
        fence: Fence,
        name: str,
        value: bytes,
        *,
        entries: Sequence[StoredEntry] = (),
        after: CheckpointRef | None = None,
        requests: Sequence[StoredRequest] = (),
        events: Sequence[LaneEvent] = (),
        answers: Mapping[str, Answer] | None = None,
    ) -> tuple[bytes | None, CheckpointRef | None]:
        """Write apart from the head: a field of the turn, entries that follow `after`, and `events` on the stream.

        Where the turn is to wait for `requests`, it is kept without an end, and on disk when this returns. Those that
        are refused at once have their `answers`.

        Returns:
            what the field held before (then nothing was written: the first result wins) or None, and the checkpoint
            that the staged entries lead to.
        """
        encoded: list[bytes] = []
        tip = after
        if after is not None:
            encoded, digest = encode_entries(entries, after=after.digest)
            tip = CheckpointRef(after.epoch, after.length + len(encoded), digest)
        epoch = "" if after is None else after.epoch
        fields: list[bytes | str] = []
        for one in requests:
            fields += (f"q:{one.request.id}", one.to_json())
        if requests:
            fields += (f"w{fence.step}", json.dumps([one.request.id for one in requests]))
        for request, given in (answers or {}).items():
            fields += (f"r:{request}", given.to_json())
        said = [*(event.to_json() for event in events), *(_pending_event(fence, one) for one in requests)]
        arguments = (name, value, epoch, len(fields) // 2, *fields, len(said), *said, *encoded)
        answer, *rest = await self._link.run(self._stage, fence, *arguments, on_disk=bool(requests))
        if answer == layout.Answer.EXISTS:
            return cast("bytes", rest[0]), after
        return None, tip

    async def keep(self, fence: Fence, parts: Mapping[str, bytes]) -> None:
        """Keep large parts with an unfinished turn, so that what it stages and commits can name them.

        Args:
            fence: who keeps.
            parts: by name; a name stands for one content for ever.
        """
        if parts:
            await self._link.run(self._keep, fence, *(item for pair in parts.items() for item in pair))

    async def decide(self, fence: Fence, name: str, value: bytes, *, prompt: bytes | None = None) -> bytes | None:
        """Keep a decision about an unfinished turn, and the prompt that it leads to in place of the one there is.

        Returns:
            what was decided before (then nothing was written: the first decision stays) or None.
        """
        answer, *rest = await self._link.run(self._decide, fence, name, value, prompt or b"")
        return cast("bytes", rest[0]) if answer == layout.Answer.EXISTS else None

    async def note(
        self, fence: Fence, *, fields: Sequence[tuple[str, bytes]] = (), events: Sequence[LaneEvent] = ()
    ) -> list[bytes | None]:
        """Write fields of an unfinished turn, and say on the lane's stream what happens in it, in one round trip.

        Returns:
            for each field what it held before (then it still does: the first write wins) or None.
        """
        written = [part for field in fields for part in field]
        _, held = await self._link.run(self._note, fence, len(fields), *written, *(event.to_json() for event in events))
        return cast("list[bytes | None]", held)

    async def is_pending(self, lane: LaneKey, turn_id: str) -> bool:
        """Whether a turn of that id was submitted and has not ended."""
        return bool(await self._link.ask(self._link.redis.exists(self._link.names(lane).turn(turn_id))))

    async def unfinished(self, lane: LaneKey, turn_id: str) -> dict[str, bytes]:
        """What an unfinished turn has staged, by field, as `layout` describes them; empty where it has ended."""
        fields: dict[bytes, bytes] = await self._link.ask(
            self._link.redis.hgetall(self._link.names(lane).turn(turn_id))
        )
        return {name.decode(): value for name, value in fields.items()}

    async def field_names(self, lane: LaneKey, turn_id: str) -> list[str]:
        """The names of an unfinished turn's fields; none where it has ended."""
        names: list[bytes] = await self._link.ask(self._link.redis.hkeys(self._link.names(lane).turn(turn_id)))
        return [name.decode() for name in names]

    async def prompt(self, lane: LaneKey, turn_id: str) -> bytes | None:
        """An unfinished turn's prompt, or None."""
        prompt: bytes | None = await self._link.ask(self._link.redis.hget(self._link.names(lane).turn(turn_id), "in"))
        return prompt


def _pending_event(fence: Fence, stored: StoredRequest) -> bytes:
    request = stored.request
    data: dict[str, object] = {"request": request.id, "kind": request.kind, "name": request.name}
    if len(json.dumps(request.payload)) <= _MAX_SHOWN_CHARS:
        data["payload"] = request.payload
    if stored.child is not None:
        data["child"] = {"conversation": stored.child.lane.conversation, "agent": stored.child.lane.agent}
    return LaneEvent(EventKind.REQUEST_PENDING, fence.turn_id, fence.step, fence.attempt, data).to_json()
