#!lua
-- import: takes things from another store, all or none; what is there already is left alone.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua), which become known; then the entries of buckets
-- ARGV  name of the source, its last number; lanes; then for each thing its letter and
--         j: lane, record, place, id, state (w c x d), attempt, crashes, due_ms, priority (h n l), the record as
--            enqueue.lua has it, the past (see includes/past.lua) before the place and after it, both '' for none, and for a finished
--            job end, bytes, expire_ms, forget_ms; then how many logs, and attempt and text of each
--         i: queue, id, state, due_ms, forget_ms
--         q: queue, 1 when it is paused else 0, jobs enqueued and completed, attempts failed, dead letters dropped
--         s: bucket, the place of its entries in KEYS, key, version, value
--         e: nothing: everything up to the last number was copied
-- Returns for each thing: copied, there, or before when an earlier copy that came to its end had brought it
-- Errors Redis itself refuses with OOM when it is at its memory limit.
--
-- The source's numbers are set behind this store's own, all by the same distance. `meta` remembers under `from:<source>` up to
-- which number everything was copied, and for each stretch of numbers its last one and the distance; and under
-- `from:<source>:<queue>` the totals that were added.
--- @include globals
--- @include clock
--- @include stage
--- @include member
--- @include record
--- @include past
--- @include lanes
--- @include waiting
--- @include finish
--- @include state

local source, last = ARGV[1], tonumber(ARGV[2])
local lanes, _, at = lanes_read(3)
local MARK = 'from:' .. source
local sequence = sequence_read()
local before = sequence
local reply, paused, taken = {}, {}, {}
local record_max = tonumber(redis.call('HGET', META, 'record_max') or '0')
-- A foreign value under these must show before the first write.
redis.call('SCARD', LANES)
redis.call('SCARD', PAUSED)

-- Stretches of the source's numbers.
local numbers = {}
for number in string.gmatch(redis.call('HGET', META, MARK) or '0', '%d+') do
  numbers[#numbers + 1] = tonumber(number)
end
local reached = #numbers > 1 and numbers[#numbers - 1] or 0
if last > reached then
  numbers[#numbers + 1], numbers[#numbers + 2] = last, sequence - reached
  sequence = sequence - reached + last
end

local function placed(number)
  for i = 2, #numbers, 2 do
    if number <= numbers[i] then
      return string.format('%014.0f', numbers[i + 1] + number)
    end
  end
end

local function note_lookalike(id)
  local generated, suffix = string.match(id, '^([1-9]%d*)%-(%w%w%w%w%w)$')
  if generated and #generated <= 14 then
    hset(META, 'lookalikes', '1')
    return string.rep('0', 14 - #generated) .. generated, suffix
  end
end

-- True when the queue has a job of this id, or remembers one.
local function is_taken(queue, id)
  local field = queue .. '/' .. id
  local value = redis.call('HGET', IDS, field)
  if taken[field] then
    return true
  elseif value then
    local forget = string.match(value, '^~%a %d+ (%d+)$')
    if forget then
      return tonumber(forget) > NOW_MS
    end
    return redis.call('HEXISTS', JOBS, value) == 1
  end
  local rid, suffix = note_lookalike(id)
  local text = rid and redis.call('HGET', JOBS, rid)
  local job = text and record_parse(rid, text)
  return job and job.queue == queue and job.suffix == suffix
end

local function take(queue, id, value)
  taken[queue .. '/' .. id] = true
  note_lookalike(id)
  hset(IDS, queue .. '/' .. id, value)
end

local function take_logs(rid, progress, from, count)
  local attempts = {}
  for i = 1, count do
    attempts[i] = ARGV[from + 2 * i - 2]
    hset(LOGS, rid .. ':' .. attempts[i], ARGV[from + 2 * i - 1])
  end
  if count > 0 then
    hset(LOGS, rid, table.concat(attempts, ' ') .. (progress ~= '' and '\n' .. progress or ''))
  end
end

local function import_job(i)
  local lane, number, order, id = lanes[tonumber(ARGV[i])], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3]
  if is_taken(lane.queue, id) then
    return 'there'
  elseif math.max(number, order) <= numbers[1] then
    return 'before'
  end
  local rid, place = placed(number), placed(order)
  local state, attempt, crashes, due, record = ARGV[i + 4], ARGV[i + 5], tonumber(ARGV[i + 6]), ARGV[i + 7], ARGV[i + 9]
  hset(JOBS, rid, record)
  record_max = math.max(record_max, #record)
  take(lane.queue, id, rid)
  if ARGV[i + 10] ~= '' then
    hset(PAST, rid, ARGV[i + 10] .. ' ' .. place .. ' ' .. ARGV[i + 11])
  end
  take_logs(rid, ARGV[i + 16], i + 18, tonumber(ARGV[i + 17]))
  if state == 'w' then
    local member = ARGV[i + 10] == '' and rid or member_long(place, rid, attempt, crashes)
    wait_in(lane[part_of(ARGV[i + 8], crashes)], lane.name, due, member)
    return 'copied'
  end
  local past = { bytes = ARGV[i + 13], expire = ARGV[i + 14], forget = ARGV[i + 15], due = due }
  zadd(lane[DONE[state]], ARGV[i + 12], done_member(past, rid, id))
  hincr(SIZES, lane.queue .. ':' .. state, tonumber(past.bytes))
  -- Their ages are those of the source's settings: no one age is known of this index any more.
  hset(SIZES, lane.queue .. ':' .. state .. AGES, 'm')
  return 'copied'
end

local function import_id(i)
  local queue, id, forget = ARGV[i], ARGV[i + 1], ARGV[i + 4]
  if tonumber(forget) <= NOW_MS or is_taken(queue, id) then
    return 'there'
  end
  local field = queue .. '/' .. id
  take(queue, id, '~' .. ARGV[i + 2] .. ' ' .. ARGV[i + 3] .. ' ' .. forget)
  if not redis.call('ZSCORE', MEMORY, field) then
    hincr(META, 'id_bytes', 2 * #field + ID_COST)
  end
  zadd(MEMORY, forget, field)
  return 'copied'
end

local function import_queue(i)
  local queue, names = ARGV[i], { 'enqueued', 'completed', 'failed', 'dropped' }
  local mark = MARK .. ':' .. queue
  local known, added = redis.call('HGET', META, mark), {}
  for total in string.gmatch(known or '', '%d+') do
    added[#added + 1] = tonumber(total)
  end
  for n, name in ipairs(names) do
    local total = tonumber(ARGV[i + 1 + n])
    if total > (added[n] or 0) then
      hincr(TOTALS, queue .. ':' .. name, total - (added[n] or 0))
    end
    added[n] = digits(math.max(total, added[n] or 0))
  end
  hset(META, mark, table.concat(added, ' '))
  if not known and ARGV[i + 1] == '1' then
    paused[#paused + 1] = queue
  end
  return known and 'there' or 'copied'
end

-- Its version is a number of the source, and so tells whether an earlier copy had brought it.
local buckets = {}
local function import_state(i)
  local name, key, field, version = ARGV[i], KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], tonumber(ARGV[i + 3])
  if not buckets[name] then
    expect('hash', key)
    expect('hash', HOLDINGS)
    buckets[name] = { bucket = bucket_open(name, key), taken = {} }
  end
  local bucket = buckets[name]
  if bucket.taken[field] or redis.call('HEXISTS', key, field) == 1 then
    return 'there'
  elseif version <= numbers[1] then
    return 'before'
  end
  bucket.taken[field] = true
  bucket_put(bucket.bucket, field, nil, digits(tonumber(placed(version))), ARGV[i + 4])
  return 'copied'
end

while at <= #ARGV do
  local letter, answer = ARGV[at], nil
  if letter == 'j' then
    answer = import_job(at + 1)
    at = at + 19 + 2 * tonumber(ARGV[at + 18])
  elseif letter == 'i' then
    answer, at = import_id(at + 1), at + 6
  elseif letter == 'q' then
    answer, at = import_queue(at + 1), at + 7
  elseif letter == 's' then
    answer, at = import_state(at + 1), at + 6
  else
    numbers[1], answer, at = math.max(numbers[1], last), 'copied', at + 1
  end
  reply[#reply + 1] = answer
end

for _, opened in pairs(buckets) do
  bucket_close(opened.bucket)
end
for i, number in ipairs(numbers) do
  numbers[i] = digits(number)
end
hset(META, MARK, table.concat(numbers, ' '))
hset(META, 'record_max', digits(record_max))
flush()
if sequence > before then
  redis.call('SET', SEQ, digits(sequence))
end
for _, lane in ipairs(lanes) do
  redis.call('SADD', LANES, lane.name)
end
for _, queue in ipairs(paused) do
  redis.call('SADD', PAUSED, queue)
end
publish_heads()
return reply
