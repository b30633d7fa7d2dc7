"""How the scripts begin that change a lane's keys. Each of them is beside the method that runs it.

Every key of a lane has the same hash tag, so a script touches one slot of a cluster. Each transition is one script: it
checks its fence (the turn has not ended, the head's version is the turn's base, no later attempt has begun) and then
writes all or nothing. A script answers a list whose first item says what happened, one of the `Answer` values.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FENCE", "FREEING", "PRESENT", "STRICT"]

STRICT: Final = "#!lua\n"
"""With this line a script is refused as a whole where memory is full; without it, one whose first write frees memory
would go on."""

FREEING: Final = "#!lua flags=allow-oom\n"
"""With this line a script runs where memory is full too: for those that free more than they take."""

FENCE: Final = """
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
"""How a script of a turn goes on.

KEYS are head, turn, turns, events; ARGV begins with base name, turn id, step, attempt, head version (empty where the
caller does not know it yet), the stream's greatest length and of how many turns it keeps what happened ("1000/4"), and
the stage's time to live in seconds.
"""

PRESENT: Final = """
if redis.call('HEXISTS', turn, 'p') == 0 then return {'stale', 'gone'} end"""
"""After the fence: refuses a turn whose prompt is gone, so that nothing is kept that would never be dropped."""
