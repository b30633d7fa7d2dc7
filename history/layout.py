"""The names of a lane's keys in Redis, and the scripts that change them.

    <prefix>:lanes                          hash    lane id → [conversation, agent, contract]
    <prefix>:conversation:<digest>          hash    the same, for one conversation
    <prefix>:waiting                        zset    the same texts, of lanes that have or had a turn that waits for
                                                    requests, by when it began to
    <prefix>:{<lane id>}:head               hash    v version, e epoch, n length, d digest, t last turn, x extras (JSON)
                                                    and w, where on the stream the last turns ended
    <prefix>:{<lane id>}:epoch:<e>          list    entries, append-only; a checkpoint is a prefix of it
    <prefix>:{<lane id>}:turn:<turn id>     hash    an unfinished turn: its input and what it has staged (below)
    <prefix>:{<lane id>}:stage:<turn id>:<e> list   entries that the turn has staged for epoch e
    <prefix>:{<lane id>}:turns              hash    turn id → "<number>|<record>", for every turn that has ended
    <prefix>:{<lane id>}:spent              hash    what all ended turns have spent: r requests, t tool calls, i input
                                                    tokens; b the budget that the conversation was given last
    <prefix>:{<lane id>}:spent:<turn id>    hash    the same of a turn that has a budget, and each charge (below)
    <prefix>:{<lane id>}:archive            hash    reference → what was archived
    <prefix>:{<lane id>}:archive:<turn id>  hash    the same of an unfinished turn
    <prefix>:{<lane id>}:parts              hash    name → a large part of what is kept beside the history; those that
                                                    the head's extras name, and no others
    <prefix>:{<lane id>}:thread             list    messages of the text thread, where an adapter has a text window
    <prefix>:{<lane id>}:events             stream  what happens, live, and did in the last turns; trimmed
    <prefix>:{<lane id>}:waits              string  the turn that waits for requests, or did last
    <prefix>:{<lane id>}:open               set     the ids of turns that were submitted and have not ended
    <prefix>:{<lane id>}:owed:<turn id>     string  what a turn went by whose end its hooks were not told of yet
    <prefix>:{<lane id>}:wake               channel told the id of each new event, or when a turn ends `end:<turn id>`,
                                                    a line break and the turn's record as it is stored

Fields of an unfinished turn:

    in, p       its prompt, and the prompt's digest
    op          what the caller asked for beside the prompt, see `history.options`
    once        for a turn that keeps no history: for how many seconds after its end the lane's keys live on
    c:<client>  who has submitted it and was not refused
    th          its request is in the text thread
    b           when its first step began, in milliseconds since 1970
    se          the epoch that it stages for, once it has staged anything
    s<k>, m<k>  what step k staged when it was done, and between its model's answer and its end
    j<k>:<call> the journal of step k's tool call
    a<k>        the latest attempt at step k that has begun, where it is not the first
    h:<hook>    what a hook has decided
    f<k>:<n>    how attempt n at step k failed
    w<k>        the ids of the requests that step k ended waiting for, as JSON
    q:<id>      a request
    r:<id>      the answer to it
    k:<name>    a large part of what is to be kept beside the history, and is not among the lane's parts yet

A turn that waits has no time to live, however long that takes, and neither have those that are open then: they may be
behind it. With its next write a turn has one again.

Charges are fields `r:<step>:<attempt>:<n>` with the input tokens of a model request, reserved first and then measured,
and `t:<step>:<call>` for a tool call. They are summed up in r, t and i as they are made.

Every key of a lane has the same hash tag, so a script touches one slot of a cluster. Each transition is one script: it
checks its fence (the turn has not ended, the head's version is the turn's base, no later attempt has begun) and then
writes all or nothing. A script answers a list whose first item says what happened, one of the `Answer` values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from laneway.history.lanes import LaneKey

__all__ = [
    "ABORT",
    "ANSWER",
    "COMMIT",
    "DECIDE",
    "DROP_HISTORY",
    "DROP_INPUT",
    "EXPIRE_HISTORY",
    "FENCE",
    "FORGET_WAITING",
    "KEEP",
    "LOAD",
    "NOTE",
    "PUT_INPUT",
    "SEED",
    "STAGE",
    "STRICT",
    "Answer",
    "LaneNames",
    "conversation_name",
]


class Answer(StrEnum):
    """What a script says happened."""

    OK = "ok"
    ENDED = "ended"
    """The turn has ended; its record follows."""
    STALE = "stale"
    """The head has moved since the turn began; its version follows."""
    REPLACED = "replaced"
    """A later attempt at the step has begun; its number follows."""
    EXISTS = "exists"
    """The field was staged before; what it holds follows."""
    CONFLICT = "conflict"
    """The turn id holds another prompt."""
    OVER = "over"
    """A budget forbids it; scope, dimension, limit and what is consumed follow."""
    UNKNOWN = "unknown"
    """The turn has no such request."""
    DAMAGED = "damaged"
    """The epoch's list is not as long as the head says; its length follows."""
    MISSING = "missing"
    """A part that the head is to name is nowhere; its name follows."""


def conversation_name(prefix: str, conversation: str) -> str:
    """The name of a conversation's index of lanes."""
    return f"{prefix}:conversation:{blake2b(conversation.encode(), digest_size=12).hexdigest()}"


@dataclass(frozen=True)
class LaneNames:
    """The names of one lane's keys."""

    base: str

    @classmethod
    def of(cls, prefix: str, lane: LaneKey) -> LaneNames:
        """The names of `lane`'s keys, where every key begins with `prefix`."""
        return cls(f"{prefix}:{{{lane.lane_id}}}:")

    @property
    def head(self) -> str:
        """The committed state."""
        return self.base + "head"

    @property
    def turns(self) -> str:
        """The records of turns that have ended."""
        return self.base + "turns"

    @property
    def events(self) -> str:
        """The stream."""
        return self.base + "events"

    @property
    def waits(self) -> str:
        """The turn that waits for requests, or did last."""
        return self.base + "waits"

    @property
    def wake(self) -> str:
        """The channel."""
        return self.base + "wake"

    @property
    def archive(self) -> str:
        """What turns that committed have archived."""
        return self.base + "archive"

    def archive_of(self, turn_id: str) -> str:
        """What an unfinished turn has archived."""
        return f"{self.base}archive:{turn_id}"

    @property
    def parts(self) -> str:
        """Large parts of what is kept beside the history."""
        return self.base + "parts"

    @property
    def thread(self) -> str:
        """The text thread."""
        return self.base + "thread"

    @property
    def spent(self) -> str:
        """What all ended turns have spent."""
        return self.base + "spent"

    def spent_of(self, turn_id: str) -> str:
        """What an unfinished turn has spent, where it has a budget."""
        return f"{self.base}spent:{turn_id}"

    def epoch(self, epoch: int) -> str:
        """The entries of a cache epoch."""
        return f"{self.base}epoch:{epoch}"

    def owed(self, turn_id: str) -> str:
        """What a turn went by whose end its hooks were not told of yet."""
        return f"{self.base}owed:{turn_id}"

    def turn(self, turn_id: str) -> str:
        """An unfinished turn."""
        return f"{self.base}turn:{turn_id}"

    def stage(self, turn_id: str, epoch: int) -> str:
        """The entries that a turn has staged for an epoch."""
        return f"{self.base}stage:{turn_id}:{epoch}"


# With this line a script is refused as a whole where memory is full; without it, one whose first write frees memory
# would go on.
STRICT = "#!lua\n"

# KEYS are head, turn, turns, events everywhere; ARGV begins with base name, turn id, step, attempt, head version
# (empty where the caller does not know it yet), the stream's greatest length and of how many turns it keeps what
# happened ("1000/4"), stage's time to live in seconds.
FENCE = """
local head, turn, turns, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, id, step, attempt, version = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local maxlen, turns_on_stream = string.match(ARGV[6], '^(%d+)/(%d+)$')
local ttl = ARGV[7]
local ended = redis.call('HGET', turns, id)
if ended then return {'ended', ended} end
local now_at = redis.call('HGET', head, 'v') or '0'
if version ~= '' and now_at ~= version then return {'stale', now_at} end
local begun = tonumber(redis.call('HGET', turn, 'a' .. step) or '1')
if begun > attempt then return {'replaced', begun} end
local function say(event, word)
  local entry = redis.call('XADD', events, 'MAXLEN', '~', maxlen, '*', 'e', event)
  redis.call('PUBLISH', base .. 'wake', word or entry)
  return entry
end
local function push(key, first)
  for from = first, #ARGV, 1000 do
    redis.call('RPUSH', key, unpack(ARGV, from, math.min(from + 999, #ARGV)))
  end
end
"""

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
    "#!lua flags=allow-oom\n"
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

# ARGV 8, 9: the epoch and the length that the caller holds decoded. 10: milliseconds since 1970. 11: the event that
# says the turn began, 12: the one that says this attempt began. Says 'ok', head, turn, first index of the entries, the
# entries, the staged entries, the lane's parts.
LOAD = (
    STRICT
    + FENCE
    + """
if redis.call('EXISTS', turn) == 1 then
  if attempt > begun then redis.call('HSET', turn, 'a' .. step, attempt) end
  if redis.call('HSETNX', turn, 'b', ARGV[10]) == 1 then say(ARGV[11]) end
  if attempt > 1 then say(ARGV[12]) end
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
return {'ok', heads, fields, first, entries, stage, redis.call('HGETALL', base .. 'parts')}
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
    + """
if redis.call('HEXISTS', turn, 'p') == 0 then return {'stale', 'gone'} end
for at = 8, #ARGV, 2 do redis.call('HSETNX', turn, 'k:' .. ARGV[at], ARGV[at + 1]) end
return {'ok'}
"""
)

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
    "#!lua flags=allow-oom\n"
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

# ARGV 8: how many fields follow, name and value in turn. The rest: events. Of each field the first write wins. Says
# 'ok' and, field by field, what it held before.
NOTE = (
    STRICT
    + FENCE
    + """
if redis.call('HEXISTS', turn, 'p') == 0 then return {'stale', 'gone'} end
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

# KEYS: the index of lanes that wait. ARGV 1: a lane. 2: since when, as it was read.
FORGET_WAITING = (
    STRICT
    + """
local since = redis.call('ZSCORE', KEYS[1], ARGV[1])
if since and tonumber(since) == tonumber(ARGV[2]) then return redis.call('ZREM', KEYS[1], ARGV[1]) end
return 0
"""
)

# KEYS: a lane's head, the epoch's list, its turns, its parts, its archive. ARGV: v, e, n, d, t and x of the head, how
# many parts there are and how much is archived, the name and the content of each in turn, then encoded entries. A lane
# that has a history stays as it is, and so does one that had a turn: what that wrote may have been dropped.
SEED = (
    STRICT
    + """
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[4], KEYS[5])
local archived = 9 + 2 * tonumber(ARGV[7])
local first = archived + 2 * tonumber(ARGV[8])
for at = 9, archived - 2, 2 do redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
for at = archived, first - 2, 2 do redis.call('HSET', KEYS[5], ARGV[at], ARGV[at + 1]) end
for from = first, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'e', ARGV[2], 'n', ARGV[3], 'd', ARGV[4], 't', ARGV[5], 'x', ARGV[6])
return 1
"""
)

# KEYS: a lane's head. ARGV 1: base name. 2: for how many seconds what its turns did is kept.
DROP_HISTORY = (
    "#!lua flags=allow-oom\n"
    """
local epoch = redis.call('HGET', KEYS[1], 'e')
if epoch then redis.call('UNLINK', ARGV[1] .. 'epoch:' .. epoch) end
redis.call('UNLINK', KEYS[1])
for _, name in ipairs({'archive', 'thread', 'parts'}) do redis.call('UNLINK', ARGV[1] .. name) end
for _, name in ipairs({'turns', 'events', 'spent'}) do redis.call('EXPIRE', ARGV[1] .. name, ARGV[2]) end
return 1
"""
)

# KEYS: a lane's head. ARGV 1: base name. 2: for how many seconds all of it is kept from now on. One that has less to
# live keeps that.
EXPIRE_HISTORY = (
    "#!lua flags=allow-oom\n"
    """
local epoch = redis.call('HGET', KEYS[1], 'e')
local names = {'archive', 'thread', 'parts', 'turns', 'events', 'spent'}
if epoch then names[#names + 1] = 'epoch:' .. epoch end
for _, name in ipairs(names) do redis.call('EXPIRE', ARGV[1] .. name, ARGV[2], 'NX') end
redis.call('EXPIRE', KEYS[1], ARGV[2], 'NX')
return 1
"""
)
