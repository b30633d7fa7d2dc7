"""The scripts of `RedisSaver`, one for each question. What they have in common is in `langgraph_lua`."""

from __future__ import annotations

from laneway.langgraph_lua import COMMON, STORE, Script

__all__ = [
    "COMMIT_STAGE",
    "DELETE",
    "DROP_STAGE",
    "DUMP",
    "FETCH",
    "GET",
    "PROMOTE_FUNCTION",
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
-- Not Lua's own comparison, which follows the server's locale.
local function later(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end
local row = find(to_rows)
if staged then
  local settled = find(rows)
  if settled and (not row or (id == '' and later(
      string.sub(settled, 1, row_record(settled) - 1), string.sub(row, 1, row_record(row) - 1)))) then
    row = settled
  end
end
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
local found = redis.call('ZREVRANGEBYLEX', rows, unpack(bounds))
if staged then
  for _, member in ipairs(redis.call('ZREVRANGEBYLEX', to_rows, unpack(bounds))) do found[#found + 1] = member end
end
return found
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
replace(to_rows, ARGV[at], ARGV[at] .. ARGV[at + 1])
store(from)
touch()
return {'ok', is_new and 1 or 0}
""",
    fenced=True,
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
  if ARGV[i + 1] == '1' or not (with_prefix(to_writes, prefix)[1] or with_prefix(writes, prefix)[1]) then
    replace(to_writes, prefix, prefix .. ARGV[i + 2])
    any = true
  end
end
if any then store(parts_from) end
touch()
return {'ok'}
""",
    fenced=True,
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

_PROMOTE = """
for _, member in ipairs(redis.call('ZRANGE', to_rows, 0, -1)) do
  replace(rows, string.sub(member, 1, row_record(member) - 1), member)
end
for _, member in ipairs(redis.call('ZRANGE', to_writes, 0, -1)) do
  replace(writes, string.sub(member, 1, write_record(member) - 1), member)
end
local stored = redis.call('HGETALL', to_parts)
for from = 1, #stored, 1000 do
  redis.call('HSET', parts, unpack(stored, from, math.min(from + 999, #stored)))
end
redis.call('UNLINK', to_rows, to_parts, to_writes)
"""

# For a script of someone else's that makes a stage the thread's together with a change of its own. The function takes
# the keys of the thread and of the stage (`ThreadKeys.all` of either), which the script declares.
PROMOTE_FUNCTION = f"""
local function promote_graph(KEYS)
local ARGV = {{'0', '0'}}
{COMMON}{_PROMOTE}
end
"""

# ARGV: the thread's own time to live, or 0.
COMMIT_STAGE = Script(
    _PROMOTE
    + """
if tonumber(ARGV[at]) > 0 then
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[at]) end
end
return {'ok'}
""",
    fenced=True,
)

DROP_STAGE = Script(
    """
if staged then redis.call('UNLINK', to_rows, to_parts, to_writes) end
return {'ok'}
""",
    fenced=True,
    prologue="#!lua flags=allow-oom\n",
)
