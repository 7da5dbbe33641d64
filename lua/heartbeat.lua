#!lua flags=allow-oom
-- heartbeat: shows that a session is alive, and looks around.
--
-- KEYS  the globals, then for each lane its due indexes: high, normal, low, suspects
-- ARGV  session, what its runner says of itself (`name \31 JSON`), the session's beat as it was told last (0 if never), then the queue
--       of each lane
-- Returns { now_us, beat, beat before this call or '', a number of the sequence, the store's name or '',
--       { session, `beat beat_ms \31 info` or '', ... }, { record id, `token action`, ... }, the earliest due_ms in these lanes or '',
--       how many leases there are, how many lanes are listed }: every session that is registered or holds a lease, and this
--       session's recalls. Lanes of paused queues are left out, and indexes that are none are passed over, as a claim does.
--
-- A beat counts up while its session is registered, here and with each claim that takes jobs: a runner that finds it lower than
-- it was told knows that the store has gone back in time; and while it is lower it does not count up, so that a lost answer hides nothing. A first one is the time, so that an entry deleted by hand does
-- not come back with a beat that somebody has seen. The number of the sequence tells the same of a store that has lost the session, too.
--- @include globals
--- @include clock
--- @include stage

local ARGS, RECALLS_STEP = 3, 5000
local session, info, told = ARGV[1], ARGV[2], tonumber(ARGV[3])

local old = redis.call('HGET', SESSIONS, session)
local before = old and tonumber(string.match(old, '^(%d+) '))
local beat = NOW_MS
if before then
  beat = before < told and before or before + 1
end
local number = sequence_read() + 1
hset(SESSIONS, session, digits(beat) .. ' ' .. digits(NOW_MS) .. '\31' .. info)
flush()
redis.call('SET', SEQ, digits(number))

local sessions = redis.call('HGETALL', SESSIONS)
local known = {}
for i = 1, #sessions, 2 do
  known[sessions[i]] = true
end
for _, holder in ipairs(redis.call('HKEYS', HOLDERS)) do
  if not known[holder] then
    sessions[#sessions + 1] = holder
    sessions[#sessions + 1] = ''
  end
end

local recalls = {}
if redis.call('HLEN', RECALLS) > 0 then
  local all = redis.call('HSCAN', RECALLS, '0', 'COUNT', RECALLS_STEP)[2]
  for i = 1, #all, 2 do
    local owner, rest = string.match(all[i + 1], '^(%S+) (.*)$')
    if owner == session then
      recalls[#recalls + 1] = all[i]
      recalls[#recalls + 1] = rest
    end
  end
end

-- All that follows comes after the first write. Foreign data stops claims and lists, which say so: here it is passed over.
local next_due, listed = nil, redis.pcall('SCARD', LANES)
local paused = #ARGV > ARGS and redis.pcall('SMISMEMBER', PAUSED, unpack(ARGV, ARGS + 1)) or {}
for i = 1, #ARGV - ARGS do
  for part = 1, paused[i] == 1 and 0 or 4 do
    local found = redis.pcall('ZRANGE', KEYS[GLOBALS + 4 * (i - 1) + part], 0, 0, 'WITHSCORES')
    local head = not found.err and tonumber(found[2])
    if head and (not next_due or head < next_due) then
      next_due = head
    end
  end
end
return { NOW_US, digits(beat), before and digits(before) or '', digits(number), redis.call('HGET', META, 'store_id') or '',
  sessions, recalls, next_due and digits(math.max(next_due, 0)) or '', redis.call('HLEN', RUNNING),
  type(listed) == 'number' and listed or 0 }
