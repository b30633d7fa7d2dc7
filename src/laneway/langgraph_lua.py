"""What the scripts of `RedisSaver` have in common: how they see a thread, and how they follow references.

A script is atomic, declares every key that it touches, and touches the keys of one thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1

__all__ = ["COMMON", "STORE", "Script"]


@dataclass(frozen=True)
class Script:
    """A script, by what it does; `prologue` is what must come first in its text."""

    body: str
    prologue: str = ""

    @cached_property
    def text(self) -> str:
        """The whole script."""
        return self.prologue + COMMON + self.body

    @cached_property
    def sha(self) -> str:
        """The SHA-1 that Redis knows it by."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# KEYS are the thread's rows, parts and writes. ARGV 1 is the time to live that it gets, in milliseconds, or 0; what a
# script says of its ARGV is about those from `at` on.
COMMON = """
local rows, parts, writes = unpack(KEYS)
local at = 2
local function touch()
  if tonumber(ARGV[1]) > 0 then
    for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
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
      local got = redis.call('HMGET', parts, unpack(asked, from, upto))
      for i = from, upto do
        local record = got[i - from + 1]
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
  for _, member in ipairs(all) do each_reference(member, write_record(member), want) end
  return all
end
"""

STORE = """
-- ARGV from an index on: the number of digests that must be there, these; returns the index after them.
local function absent(from)
  local missing = {'missing'}
  for i = from + 1, from + tonumber(ARGV[from]) do
    if redis.call('HEXISTS', parts, ARGV[i]) == 0 then missing[#missing + 1] = ARGV[i] end
  end
  return from + tonumber(ARGV[from]) + 1, missing
end
local function store(from)
  for i = from, #ARGV, 2 do redis.call('HSETNX', parts, ARGV[i], ARGV[i + 1]) end
end
"""
