#!lua flags=allow-oom
-- offer: takes back the jobs that a runner has in its hand, after this store has lost data.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  lanes; then for each job: lane, record id, session, token, attempt, max_attempts, crashes, due_ms, id, enqueued_ms,
--       priority (h n l), its record up to its id, its record from behind its id
-- Returns for each job: kept, restored or taken; record id
--
-- A job is the same when its queue, kind, id and time of enqueue are: numbers are given out again by a store that has gone back. One
-- that waits, and that nobody has tried since, is leased again. One of which nothing is known is made again, under its number if that is
-- free; the sequence goes on behind it. What has ended or is another's stays as it is.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include record
--- @include past
--- @include lanes
--- @include job

local PER_JOB = 13
local lanes, _, first = lanes_read(1)
local before = sequence_read()
local sequence, record_max = before, tonumber(redis.call('HGET', META, 'record_max') or '0')
local reply, used, leased, taken_ids, known_lanes = {}, {}, {}, {}, {}
-- A foreign value under this must show before the first write.
redis.call('SCARD', LANES)

local function read_offer(i)
  local offer = {
    lane = lanes[tonumber(ARGV[i])], rid = ARGV[i + 1], session = ARGV[i + 2], token = ARGV[i + 3], attempt = tonumber(ARGV[i + 4]),
    max = tonumber(ARGV[i + 5]), crashes = tonumber(ARGV[i + 6]), due = ARGV[i + 7], id = ARGV[i + 8], enqueued = tonumber(ARGV[i + 9]),
    priority = ARGV[i + 10], head = ARGV[i + 11], rest = ARGV[i + 12],
  }
  offer.owner = offer.session .. ' ' .. offer.token .. ' '
  offer.field = offer.lane.queue .. '/' .. offer.id
  return offer
end

-- Record id and random part of an id that looks as if the store had made it.
local function made_id(id)
  local number, suffix = string.match(id, '^([1-9]%d*)%-(%w%w%w%w%w)$')
  if number and #number <= 14 then
    return string.rep('0', 14 - #number) .. number, suffix
  end
end

-- The job with this record id, if it has the id that was offered; and whether it is the job that was.
local function with_id(offer, rid)
  local job = rid and job_load(rid)
  if not job or job.queue ~= offer.lane.queue then
    return nil, false
  end
  local id = job.id ~= '' and job.id or (string.gsub(rid, '^0+', '')) .. '-' .. job.suffix
  if id ~= offer.id then
    return nil, false
  end
  return job, job.kind == offer.lane.kind and job.enqueued == offer.enqueued
end

-- The job that was offered, or nothing and whether its id is in other use.
local function find(offer)
  local job, same = with_id(offer, offer.rid)
  local value = not same and redis.call('HGET', IDS, offer.field)
  if value then
    local forget = string.match(value, '^~%a %d+ (%d+)$')
    if forget and tonumber(forget) > NOW_MS then
      return nil, true
    elseif not forget then
      job, same = with_id(offer, value)
    end
  elseif not same then
    job, same = with_id(offer, (made_id(offer.id)))
  end
  return same and job or nil, job ~= nil
end

local function lease(offer, rid, order, member, record_bytes, id)
  leased[rid] = offer.owner
  hset(RUNNING, rid, offer.owner .. offer.attempt .. ' ' .. offer.max .. ' ' .. offer.crashes .. ' ' .. offer.due .. ' ' .. order .. ' '
    .. NOW_TEXT .. ' ' .. member .. ' ' .. offer.lane.words .. ' ' .. offer.priority .. ' ' .. record_bytes .. ' ' .. id)
  hincr(HOLDERS, offer.session, 1)
  hincr(TOTALS, offer.lane.queue .. ':running', 1)
  return 'restored', rid
end

local function next_number()
  sequence = sequence + 1
  return string.format('%014.0f', sequence)
end

-- A record id for a job that is made again, and its place in the order.
local function numbers_for(rid)
  local free = not used[rid] and redis.call('HEXISTS', JOBS, rid) == 0 and redis.call('HEXISTS', PAST, rid) == 0
    and redis.call('HEXISTS', RUNNING, rid) == 0
  if not free then
    local number = next_number()
    return number, number
  elseif tonumber(rid) > before then
    sequence = math.max(sequence, tonumber(rid))
    return rid, rid
  end
  -- Another job may have this place: numbers are places, too.
  return rid, next_number()
end

local function make(offer)
  local rid, order = numbers_for(offer.rid)
  used[rid], used[order] = true, true
  local number, suffix = made_id(offer.id)
  local own = number == rid
  local record = offer.head .. (own and '\30' .. suffix or offer.id) .. offer.rest
  hset(JOBS, rid, record)
  record_max = math.max(record_max, #record)
  taken_ids[offer.field] = true
  if not own then
    hset(IDS, offer.field, rid)
    if number then
      hset(META, 'lookalikes', '1')
    end
  end
  local past = past_fresh(offer.max, offer.crashes, offer.due, order)
  past.attempt = offer.attempt - 1
  past_note(past, 'restored', '', '', 'the store had lost it')
  hset(PAST, rid, past_text(past))
  hincr(TOTALS, offer.lane.queue .. ':enqueued', 1)
  known_lanes[offer.lane.name] = true
  return lease(offer, rid, order, member_long(order, rid, past.attempt, past.crashes), #record, own and '' or offer.id)
end

local function take(offer)
  local owner = leased[offer.rid] or redis.call('HGET', RUNNING, offer.rid)
  if owner and string.sub(owner, 1, #offer.owner) == offer.owner then
    return 'kept', offer.rid
  end
  local job, other = find(offer)
  if job and leased[job.rid] then
    return leased[job.rid] == offer.owner and 'kept' or 'taken', job.rid
  elseif not job then
    if other or taken_ids[offer.field] then
      return 'taken', ''
    end
    return make(offer)
  elseif job.lease then
    return job.lease.session .. ' ' .. job.lease.token .. ' ' == offer.owner and 'kept' or 'taken', job.rid
  elseif job.leased or not job.readable or job.letter ~= 'w' or job.past.attempt >= offer.attempt or job.past.crashes > offer.crashes then
    return 'taken', ''
  end
  zrem(offer.lane[job.part], job.member)
  return lease(offer, job.rid, job.past.order, job.member, job.record_bytes, job.id)
end

for i = first, #ARGV, PER_JOB do
  local answer, rid = take(read_offer(i))
  reply[#reply + 1], reply[#reply + 2] = answer, rid
end
hset(META, 'record_max', digits(record_max))
flush()
if sequence > before then
  redis.call('SET', SEQ, digits(sequence))
end
for lane in pairs(known_lanes) do
  redis.call('SADD', LANES, lane)
end
return reply
