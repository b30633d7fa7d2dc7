"""What the scripts of `RedisSaver` have in common: how they see a thread and its stage, and how they follow references.

A script is atomic, declares every key that it touches, and touches the keys of one thread and one stage of it only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1

__all__ = ["COMMON", "STORE", "Script"]


@dataclass(frozen=True)
class Script:
    """A script; `fenced` ones check a stage's fence before they write."""

    body: str
    fenced: bool = False
    prologue: str = ""
    _texts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]], compare=False, repr=False)

    def text(self, fence: str = "") -> tuple[str, str]:
        """The script with a fence's source, and its SHA-1."""
        known = self._texts.get(fence)
        if known is None:
            guard = _FENCE.replace("-- fence --", fence) if self.fenced else ""
            text = self.prologue + COMMON + guard + self.body
            known = text, sha1(text.encode(), usedforsecurity=False).hexdigest()
            if len(self._texts) < 32:
                self._texts[fence] = known
        return known


# KEYS 1 to 3 are the thread's rows, parts and writes; 4 to 6 those that are written: its stage's, or the same again.
# ARGV 1 is the time to live of what is written, in milliseconds, or 0. 2 is the number of the fence's arguments.
COMMON = """
local rows, parts, writes, to_rows, to_parts, to_writes = unpack(KEYS, 1, 6)
local staged = rows ~= to_rows
local at = 3 + tonumber(ARGV[2])
local function touch()
  if tonumber(ARGV[1]) > 0 then
    for i = 4, 6 do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
  end
end
local function with_prefix(key, prefix)
  return redis.call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\\255')
end
local function replace(key, prefix, member)
  redis.call('ZREMRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. '\\255')
  redis.call('ZADD', key, 0, member)
end
-- Where the record begins in the member of a checkpoint, and in that of a write.
local function row_record(member)
  local first = string.find(member, '\\0', 1, true)
  return string.find(member, '\\0', first + 1, true) + 1
end
local function write_record(member)
  local from = row_record(member)
  local upto = string.sub(member, from, from) == 'u' and from + 16 or string.find(member, '\\0', from, true)
  return upto + 5
end
local function each_reference(record, from, visit)
  local a, b, c = string.byte(record, from + 1, from + 3)
  for i = 0, a * 65536 + b * 256 + c - 1 do
    visit(string.sub(record, from + 4 + i * 16, from + 19 + i * 16))
  end
end
-- Everything that can be reached from what was asked for: {digest, record, digest, record, ...}.
local seen, front, found = {}, {}, {}
local function want(digest)
  if not seen[digest] then seen[digest] = true; front[#front + 1] = digest end
end
local function follow(keep)
  while #front > 0 do
    local asked = front
    front = {}
    for from = 1, #asked, 1000 do
      local upto = math.min(from + 999, #asked)
      local got = redis.call('HMGET', to_parts, unpack(asked, from, upto))
      for i = from, upto do
        local record = got[i - from + 1]
        if not record and staged then record = redis.call('HGET', parts, asked[i]) end
        if record then
          if keep then found[#found + 1] = asked[i]; found[#found + 1] = record end
          each_reference(record, 1, want)
        end
      end
    end
  end
  return found
end
local function writes_of(prefix)
  local all = with_prefix(writes, prefix)
  if staged then
    for _, member in ipairs(with_prefix(to_writes, prefix)) do all[#all + 1] = member end
  end
  for _, member in ipairs(all) do each_reference(member, write_record(member), want) end
  return all
end
"""

_FENCE = """
local function fence(KEYS, ARGV)
-- fence --
end
local refused = fence({unpack(KEYS, 7)}, {unpack(ARGV, 3, at - 1)})
if refused then return {'refused', refused} end
"""

STORE = """
local function is_stored(digest)
  return redis.call('HEXISTS', to_parts, digest) == 1 or (staged and redis.call('HEXISTS', parts, digest) == 1)
end
-- ARGV from an index on: the number of digests that must be there, these; returns the index after them.
local function absent(from)
  local missing = {'missing'}
  for i = from + 1, from + tonumber(ARGV[from]) do
    if not is_stored(ARGV[i]) then missing[#missing + 1] = ARGV[i] end
  end
  return from + tonumber(ARGV[from]) + 1, missing
end
local function store(from)
  for i = from, #ARGV, 2 do
    if not (staged and redis.call('HEXISTS', parts, ARGV[i]) == 1) then
      redis.call('HSETNX', to_parts, ARGV[i], ARGV[i + 1])
    end
  end
end
"""
