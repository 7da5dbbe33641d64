#!lua flags=allow-oom
-- prune: removes finished jobs and remembered ids whose time is over, up to a bound.
--
-- KEYS  the globals, then three for each queue: done completed, cancelled, dead
-- ARGV  most jobs to remove, bytes of remembered ids, then the queues
-- Returns { jobs, ids, 1 when the bound was reached else 0, in how many ms there will be something to remove (0: maybe now) or '',
--       then for each queue how many dead letters limits have ever dropped }
--
-- A finished index is in the order of the jobs' ends, so the oldest go first. Where jobs of different retention share an
-- index, one that stays longer may be in front of one that goes: then a sweep walks through, a step a call. Where it takes more than
-- one, nobody knows when the first is to go.
--- @include globals
--- @include clock
--- @include stage
--- @include finish

local SWEEP, NEVER = 200, 9000000000000000
local limit, memory_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local LETTERS = { 'c', 'x', 'd' }
local jobs, remembered, next_end = 0, 0, NEVER

local function drop(key, queue, state, member, entry)
  jobs = jobs + 1
  if entry then
    remembered = remembered + drop_done(key, queue, state, member, entry)
  else
    zrem(key, member)
  end
end

local function sweep(key, queue, state)
  local field = queue .. ':' .. state .. ':at'
  local at = tonumber(redis.call('HGET', SIZES, field) or '0')
  local members, gone = redis.call('ZRANGE', key, at, at + SWEEP - 1), 0
  for _, member in ipairs(members) do
    local entry = done_parse(member)
    if not entry or entry.expire <= NOW_MS then
      drop(key, queue, state, member, entry)
      gone = gone + 1
    else
      next_end = math.min(next_end, entry.expire)
    end
  end
  if at > 0 or #members == SWEEP then
    next_end = NOW_MS
  end
  hset(SIZES, field, #members < SWEEP and '0' or digits(at + #members - gone))
end

local function prune(key, queue, state)
  local gone = 0
  for _, member in ipairs(redis.call('ZRANGE', key, 0, limit - jobs - 1)) do
    local entry = done_parse(member)
    if entry and entry.expire > NOW_MS then
      next_end = math.min(next_end, entry.expire)
      break
    end
    drop(key, queue, state, member, entry)
    gone = gone + 1
  end
  if redis.call('HGET', SIZES, queue .. ':' .. state .. AGES) == 'm' then
    if gone == 0 then
      sweep(key, queue, state)
    else
      next_end = NOW_MS
    end
  end
end

for i = 3, #ARGV do
  for part = 1, 3 do
    if jobs < limit then
      prune(KEYS[GLOBALS + 3 * (i - 3) + part], ARGV[i], LETTERS[part])
    end
  end
end
flush()

local ids = 0
for _, field in ipairs(redis.call('ZRANGEBYSCORE', MEMORY, '-inf', digits(NOW_MS), 'LIMIT', 0, limit)) do
  ids = ids + 1
  zrem(MEMORY, field)
  hincr(META, 'id_bytes', -(2 * #field + ID_COST))
  local value = redis.call('HGET', IDS, field)
  if value and string.sub(value, 1, 1) == '~' then
    hdel(IDS, field)
  end
end
flush()
trim_memory(memory_bytes, remembered + 100)
flush()
next_end = math.min(next_end, tonumber(redis.call('ZRANGE', MEMORY, 0, 0, 'WITHSCORES')[2]) or NEVER)
if jobs >= limit or ids >= limit or tonumber(redis.call('HGET', META, 'id_bytes') or '0') > memory_bytes then
  next_end = NOW_MS
end
local again = next_end < NEVER and digits(math.max(next_end - NOW_MS, 0)) or ''
local reply = { jobs, ids, (jobs >= limit or ids >= limit) and 1 or 0, again }
for i = 3, #ARGV do
  reply[#reply + 1] = redis.call('HGET', TOTALS, ARGV[i] .. ':dropped') or '0'
end
return reply
