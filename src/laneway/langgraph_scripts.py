"""The scripts of `RedisSaver`, one for each question. What they have in common is in `langgraph_lua`."""

from __future__ import annotations

from laneway.langgraph_lua import STORE, Script

__all__ = [
    "DELETE",
    "DUMP",
    "FETCH",
    "GET",
    "PUT",
    "PUT_WRITES",
    "RESTORE",
    "ROWS",
]


# ARGV: the namespace; the checkpoint id, or an empty one for the latest; 1 where only the row is wanted.
# Says {} or {row, writes, parts}.
GET = Script(
    """
local namespace, id, alone = ARGV[at], ARGV[at + 1], ARGV[at + 2]
local function find(key)
  if id ~= '' then return with_prefix(key, namespace .. '\\0' .. id .. '\\0')[1] end
  return redis.call('ZREVRANGEBYLEX', key, '(' .. namespace .. '\\1', '[' .. namespace .. '\\0', 'LIMIT', 0, 1)[1]
end
local row = find(rows)
if not row then return {} end
touch()
if alone == '1' then return {row, {}, {}} end
each_reference(row, row_record(row), want)
local pending = writes_of(string.sub(row, 1, row_record(row) - 1))
return {row, pending, follow(true)}
"""
)

# ARGV: bounds of a reversed range by bytes, the later one first; the greatest number.
ROWS = Script(
    """
local bounds = {ARGV[at], ARGV[at + 1], 'LIMIT', 0, ARGV[at + 2]}
return redis.call('ZREVRANGEBYLEX', rows, unpack(bounds))
"""
)

# ARGV: the number of prefixes of checkpoints; these; digests. Says {writes of each prefix, parts}.
FETCH = Script(
    """
local all = {}
for i = at + 1, at + tonumber(ARGV[at]) do all[#all + 1] = writes_of(ARGV[i]) end
for i = at + tonumber(ARGV[at]) + 1, #ARGV do want(ARGV[i]) end
return {all, follow(true)}
"""
)

# ARGV: the prefix of the checkpoint; its record; digests that must be there; new parts. Says {'ok', 1 if the thread is
# new}, or {'missing', digests}, when nothing was written.
PUT = Script(
    STORE
    + """
local from, missing = absent(at + 2)
if #missing > 1 then return missing end
local is_new = redis.call('EXISTS', rows) == 0
replace(rows, ARGV[at], ARGV[at] .. ARGV[at + 1])
store(from)
touch()
return {'ok', is_new and 1 or 0}
""",
)

# ARGV: the checkpoint's prefix with the task's name; digests that must be there; the number of writes; for each its
# index in four bytes, 1 if it replaces an earlier one, its record; new parts. Says {'ok'} or {'missing', digests}.
PUT_WRITES = Script(
    STORE
    + """
local from, missing = absent(at + 1)
if #missing > 1 then return missing end
local parts_from = from + 1 + 3 * tonumber(ARGV[from])
local any = false
for i = from + 1, parts_from - 1, 3 do
  local prefix = ARGV[at] .. ARGV[i]
  if ARGV[i + 1] == '1' or not with_prefix(writes, prefix)[1] then
    replace(writes, prefix, prefix .. ARGV[i + 2])
    any = true
  end
end
if any then store(parts_from) end
touch()
return {'ok'}
""",
)

# ARGV: prefixes of checkpoints. Deletes these with their writes, then every part that nothing refers to any more. Says
# how many checkpoints are left. It frees more than it takes, so it runs when memory is short.
DELETE = Script(
    """
for i = at, #ARGV do
  redis.call('ZREMRANGEBYLEX', rows, '[' .. ARGV[i], '(' .. ARGV[i] .. '\\255')
  redis.call('ZREMRANGEBYLEX', writes, '[' .. ARGV[i], '(' .. ARGV[i] .. '\\255')
end
local left = redis.call('ZRANGE', rows, 0, -1)
if #left == 0 then
  redis.call('UNLINK', rows, parts, writes)
  return 0
end
for _, member in ipairs(left) do each_reference(member, row_record(member), want) end
for _, member in ipairs(redis.call('ZRANGE', writes, 0, -1)) do each_reference(member, write_record(member), want) end
follow(false)
local unused = {}
for _, digest in ipairs(redis.call('HKEYS', parts)) do
  if not seen[digest] then unused[#unused + 1] = digest end
end
for from = 1, #unused, 1000 do
  redis.call('HDEL', parts, unpack(unused, from, math.min(from + 999, #unused)))
end
return #left
""",
    prologue="#!lua flags=allow-oom\n",
)

# Says {} or {time to live, dump of the rows, of the parts, of the writes}.
DUMP = Script(
    """
if redis.call('EXISTS', rows) == 0 then return {} end
local dumps = {math.max(redis.call('PTTL', rows), 0)}
for i = 1, 3 do dumps[i + 1] = redis.call('DUMP', KEYS[i]) or '' end
return dumps
"""
)

# ARGV: as DUMP says. Says 1, or 0 where the thread exists.
RESTORE = Script(
    """
if redis.call('EXISTS', rows, parts, writes) > 0 then return 0 end
for i = 1, 3 do
  if ARGV[at + i] ~= '' then redis.call('RESTORE', KEYS[i], ARGV[at], ARGV[at + i]) end
end
return 1
"""
)
