-- Staged writes. A script reads and decides first and stages what it wants to write; `flush` then
-- checks the type of every key that it is about to touch, and only after that writes. So a foreign
-- value under one of our names, or an error on the way, leaves everything as it was (rule 7).
local CHUNK = 1000
local staged, stages = {}, {}

local function stage(key, type)
  local found = staged[key]
  if not found then
    found = { key = key, type = type, del = {}, set = {}, add = {} }
    staged[key] = found
    stages[#stages + 1] = found
  end
  return found
end

local function hset(key, field, value)
  local set = stage(key, 'hash').set
  set[#set + 1] = field
  set[#set + 1] = value
end

local function hdel(key, field)
  local del = stage(key, 'hash').del
  del[#del + 1] = field
end

local function hincr(key, field, number)
  local add = stage(key, 'hash').add
  add[field] = (add[field] or 0) + number
end

local function zadd(key, score, member)
  local set = stage(key, 'zset').set
  set[#set + 1] = score
  set[#set + 1] = member
end

local function zrem(key, member)
  local del = stage(key, 'zset').del
  del[#del + 1] = member
end

local function chunked(command, key, list)
  for from = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

local function expect(type_of_key, key)
  local answer = redis.pcall(type_of_key == 'hash' and 'HLEN' or 'ZCARD', key)
  if type(answer) == 'table' and answer.err then
    error({ err = 'HOURHAND_WRONGTYPE ' .. key .. ' is not ours: expected a ' .. type_of_key })
  end
end

-- The last number that was given to anything.
local function sequence_read()
  local text = redis.pcall('GET', SEQ)
  local sequence = tonumber(type(text) == 'table' and 'none' or text or '0')
  if not sequence then
    error({ err = 'HOURHAND_WRONGTYPE ' .. SEQ .. ' is not ours: expected a number' })
  end
  return sequence
end

-- The globals are looked at once: what comes after the first write may touch any of them.
local globals_checked = false
local function flush()
  if not globals_checked then
    for _, key in ipairs({ JOBS, PAST, RUNNING, RECALLS, IDS, TOTALS, SIZES, SESSIONS, HOLDERS, LOGS, META }) do
      expect('hash', key)
    end
    for _, key in ipairs({ MEMORY, ORPHANS, DIRT }) do
      expect('zset', key)
    end
    globals_checked = true
  end
  for _, s in ipairs(stages) do
    if s.type == 'zset' then
      expect('zset', s.key)
    end
  end
  for _, s in ipairs(stages) do
    if s.first then
      redis.call('ZREMRANGEBYRANK', s.key, 0, s.first - 1)
    end
    chunked(s.type == 'hash' and 'HDEL' or 'ZREM', s.key, s.del)
    chunked(s.type == 'hash' and 'HSET' or 'ZADD', s.key, s.set)
    for field, number in pairs(s.add) do
      redis.call('HINCRBY', s.key, field, string.format('%.0f', number))
    end
  end
  staged, stages = {}, {}
end

-- HMGET of any number of fields, in the order asked for.
local function hmget(key, fields)
  local values = {}
  for from = 1, #fields, CHUNK do
    local part = redis.call('HMGET', key, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
    for i = 1, #part do
      values[from + i - 1] = part[i]
    end
  end
  return values
end
