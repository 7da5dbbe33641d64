#!lua flags=allow-oom
-- commit: writes completions together with what their runs did through the host (rule 12): new jobs, and changes of state.
--
-- KEYS  the globals; seven for each lane (see includes/lanes.lua); the due indexes high, normal and low of each lane of
--       the new jobs; each bucket's entries; the once key
-- ARGV  seconds for which the answer is kept; lanes; lanes of the new jobs, as lanes; how many buckets, and their names;
--       count of policies and five arguments each (see includes/finish.lua); count of classes, and for each what its new jobs
--       share: lane, priority (1 to 3), due time (`+ms` or `@ms`), the record up to the id and from behind the times to the
--       payload (see enqueue.lua), 1 when their ids look generated; then for each completion: lane, record id, session, token, policy,
--       its event and the one of a conflict (as settle.lua has them), result, bucket or 0; how many reads, and key and version of each; how
--       many changes, and key, letter (s set, d delete, a add) and value of each; how many new jobs, and class, id and payload of each
-- Returns a string with one character a completion: D done, S stale, C conflict.
-- Errors HOURHAND_INVALID: another lane than the job has, a new job due more than 100 years ahead, foreign data where a new job or a
-- change of state would go: what one run did is at fault then, and not the store. Nothing is written.
--
-- Each completion is decided and written before the next. In a conflict nothing of the effects is written, and the job is where it was,
-- its attempt unspent; its past says so to a repeat of the call. From its second conflict in a row on a job waits, longer each time: else
-- many on one key would do each other's work again for ever. A new job whose id exists, or is remembered, is left as it is.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include record
--- @include past
--- @include lanes
--- @include waiting
--- @include finish
--- @include state

local DELAY_MAX, CONFLICTED = 3155760000000, '\30'
-- The wait doubles from the second conflict in a row to the eleventh: 20 ms to 10 s, and up to as much again.
local CONFLICTS_COUNTED, CONFLICT_MS, SPREAD = 10, 10, 7919
local PER_JOB, PER_CLASS = 3, 6
local once = KEYS[#KEYS]
local answered = redis.call('GET', once)
if answered then
  return answered
end

-- What the arguments say.
local lanes, _, at = lanes_read(2)
local key_at = GLOBALS + 7 * #lanes
local places, buckets, policies = {}, {}, {}
for i = 1, tonumber(ARGV[at]) do
  local queue, kind = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  places[i] = { queue = queue, name = queue .. ':' .. kind, KEYS[key_at + 1], KEYS[key_at + 2], KEYS[key_at + 3] }
  key_at = key_at + 3
end
at = at + 1 + 2 * #places
for i = 1, tonumber(ARGV[at]) do
  buckets[i] = { name = ARGV[at + i], key = KEYS[key_at + i] }
end
at = at + 1 + #buckets
for i = 1, tonumber(ARGV[at]) do
  policies[i] = policy_read(at + 1 + 5 * (i - 1))
end
at = at + 1 + 5 * #policies
local function base36(number)
  local text = ''
  while number > 0 do
    local digit = number % 36
    text = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', digit + 1, digit + 1) .. text
    number = (number - digit) / 36
  end
  return text
end

-- By their number as text, so that a new job's is found as it comes.
local classes, class_count = {}, tonumber(ARGV[at])
for i = 1, class_count do
  local from = at + 1 + PER_CLASS * (i - 1)
  local sign, ms = string.match(ARGV[from + 2], '^([+@])(%d+)$')
  local due = sign == '+' and NOW_MS + tonumber(ms) or math.max(tonumber(ms), NOW_MS)
  if due > NOW_MS + DELAY_MAX then
    return { err = 'HOURHAND_INVALID a job to enqueue: due time ' .. digits(due) .. ' ms: expected at most 100 years ahead' }
  end
  local place = places[tonumber(ARGV[from])]
  classes[tostring(i)] = {
    place = place, key = place[tonumber(ARGV[from + 1])], due = due, due_text = digits(due), before = ARGV[from + 3],
    after = '\31' .. base36(NOW_MS) .. '\31' .. base36(due - NOW_MS) .. ARGV[from + 4], generated = ARGV[from + 5] == '1',
    prefix = place.queue .. '/',
  }
end
at = at + 1 + PER_CLASS * class_count

local completions = {}
while at <= #ARGV do
  local item = {
    lane = lanes[tonumber(ARGV[at])], rid = ARGV[at + 1], session = ARGV[at + 2], token = ARGV[at + 3],
    policy = policies[tonumber(ARGV[at + 4])], event = ARGV[at + 5], conflict = ARGV[at + 6], result = ARGV[at + 7],
    bucket = buckets[tonumber(ARGV[at + 8])],
  }
  item.reads, item.reads_at = tonumber(ARGV[at + 9]), at + 10
  at = item.reads_at + 2 * item.reads
  item.changes, item.changes_at = tonumber(ARGV[at]), at + 1
  at = item.changes_at + 3 * item.changes
  item.jobs, item.jobs_at = tonumber(ARGV[at]), at + 1
  at = item.jobs_at + PER_JOB * item.jobs
  completions[#completions + 1] = item
end

-- A lease that holds, by its own session and token.
local function lease_of(item)
  local text = redis.call('HGET', RUNNING, item.rid)
  local lease = text and lease_parse(item.rid, text)
  return lease and lease.session == item.session and lease.token == item.token and lease
end

-- All that may be refused is refused before the first write.
for n, item in ipairs(completions) do
  local lease = lease_of(item)
  if lease and (lease.queue ~= item.lane.queue or lease.kind ~= item.lane.kind) then
    return { err = 'HOURHAND_INVALID settlement ' .. (n - 1) .. ' of another lane than its job has' }
  end
end
local lanes_known = redis.pcall('SCARD', LANES)
if type(lanes_known) == 'table' then
  return { err = 'HOURHAND_WRONGTYPE ' .. LANES .. ' is not ours: expected a set' }
end
-- As `expect`, where one run's effects go: the caller writes that one without them, and all others as they are.
local function expect_room(type_of_key, key)
  local answer = redis.pcall(type_of_key == 'hash' and 'HLEN' or 'ZCARD', key)
  if type(answer) == 'table' and answer.err then
    error({ err = 'HOURHAND_INVALID ' .. key .. ' is not ours: expected a ' .. type_of_key })
  end
end
expect('zset', BUCKETS)
expect('hash', HOLDINGS)
for _, bucket in ipairs(buckets) do
  expect_room('hash', bucket.key)
end
for _, lane in ipairs(lanes) do
  for part = 1, 7 do
    expect('zset', lane[part])
  end
end
for _, place in ipairs(places) do
  for part = 1, 3 do
    expect_room('zset', place[part])
  end
end
local sequence = sequence_read()

local function entries_of(bucket, from, step, count)
  local keys = {}
  for i = 1, count do
    keys[i] = ARGV[from + step * (i - 1)]
  end
  return hmget(bucket.key, keys)
end

-- What a completion makes of its bucket: for each change the new value, false for none; or nil and why it cannot.
local function judge(item)
  if not item.bucket then
    return {}
  end
  for i, text in ipairs(entries_of(item.bucket, item.reads_at, 2, item.reads)) do
    local key, version = ARGV[item.reads_at + 2 * (i - 1)], ARGV[item.reads_at + 2 * (i - 1) + 1]
    if (entry_parse(text) or '0') ~= version then
      return nil, 'state had changed since it was read: ' .. key .. ' of bucket ' .. item.bucket.name
    end
  end
  local values = {}
  item.old = entries_of(item.bucket, item.changes_at, 3, item.changes)
  for i, text in ipairs(item.old) do
    local from = item.changes_at + 3 * (i - 1)
    local letter, value = ARGV[from + 1], ARGV[from + 2]
    values[i] = letter == 's' and value or false
    if letter == 'a' then
      local _, before = entry_parse(text)
      -- One that cannot be read counts as none: else it would be in the way for ever.
      values[i] = add_exactly(before or '0', value)
      if not values[i] then
        return nil, 'state had changed and cannot grow by ' .. value .. ': ' .. ARGV[from] .. ' of bucket ' .. item.bucket.name
      end
    end
  end
  return values
end

local function change(item, values)
  if #values == 0 then
    return
  end
  sequence = sequence + 1
  local bucket, version = bucket_open(item.bucket.name, item.bucket.key), digits(sequence)
  for i, value in ipairs(values) do
    bucket_put(bucket, ARGV[item.changes_at + 3 * (i - 1)], item.old[i], version, value or nil)
  end
  bucket_close(bucket)
end

-- Whether an id is a job's or remembered. `value` is what the index of ids has under it.
local function is_taken(value, class, id)
  if value then
    local forget = string.match(value, '^~%a %d+ (%d+)$')
    if forget then
      return tonumber(forget) > NOW_MS
    end
    return redis.call('HEXISTS', JOBS, value) == 1
  elseif not class.generated then
    return false
  end
  local sequence_text, suffix = string.match(id, '^(%d+)%-(.*)$')
  local rid = string.rep('0', 14 - #sequence_text) .. sequence_text
  local text = redis.call('HGET', JOBS, rid)
  local job = text and record_parse(rid, text)
  return job and job.queue == class.place.queue and job.suffix == suffix
end

-- Stages the new jobs of a completion, in their order.
local function enqueue(item)
  if item.jobs == 0 then
    return
  end
  local first, fields, taken = item.jobs_at, {}, {}
  for i = 1, item.jobs do
    local from = first + PER_JOB * (i - 1)
    fields[i] = classes[ARGV[from]].prefix .. ARGV[from + 1]
  end
  local ids = hmget(IDS, fields)
  local jobs_set, ids_set = stage(JOBS, 'hash').set, stage(IDS, 'hash').set
  local largest, lookalikes, indexes, n, m = 0, false, {}, #jobs_set, #ids_set
  for i = 1, item.jobs do
    local from, field = first + PER_JOB * (i - 1), fields[i]
    local class, id = classes[ARGV[from]], ARGV[from + 1]
    if not taken[field] and not ((ids[i] or class.generated) and is_taken(ids[i], class, id)) then
      taken[field], sequence = true, sequence + 1
      local rid = string.format('%014.0f', sequence)
      local record = class.before .. id .. class.after .. ARGV[from + 2]
      jobs_set[n + 1], jobs_set[n + 2], n = rid, record, n + 2
      ids_set[m + 1], ids_set[m + 2], m = field, rid, m + 2
      if #record > largest then
        largest = #record
      end
      local place, index = class.place, indexes[class.key]
      place.new = (place.new or 0) + 1
      lookalikes = lookalikes or class.generated
      if index then
        local at_set = index.count
        index.set[at_set + 1], index.set[at_set + 2], index.count = class.due_text, rid, at_set + 2
        if class.due < index.head.due then
          index.head.due = class.due
        end
      else
        -- The first one goes the way of all jobs, so that runners hear of it.
        wait_in(class.key, place.name, class.due_text, rid)
        local set = stage(class.key, 'zset').set
        indexes[class.key] = { set = set, count = #set, head = heads[class.key] }
      end
    end
  end
  if largest > tonumber(redis.call('HGET', META, 'record_max') or '0') then
    hset(META, 'record_max', digits(largest))
  end
  if lookalikes then
    hset(META, 'lookalikes', '1')
  end
  for _, place in ipairs(places) do
    if place.new then
      hincr(TOTALS, place.queue .. ':enqueued', place.new)
    end
  end
end

local function event_of(attempt, event)
  local kind = string.sub(event, 1, 1)
  return kind .. attempt .. '\31' .. (kind == 'E' and NOW_US .. '\31' or '') .. string.sub(event, 2)
end

-- Stages the end of a job, or its way back. Returns false when nothing of the job will tell of it.
local function settle(item, lease, why)
  local text, recall = redis.call('HGET', PAST, item.rid), redis.call('HGET', RECALLS, item.rid)
  local past = text and past_parse(text) or past_fresh(lease.max, lease.crashes, lease.due, lease.order)
  local conflicts = why and #string.match(past.session, '^' .. CONFLICTED .. '*') or 0
  local marks = why and string.rep(CONFLICTED, math.min(conflicts, CONFLICTS_COUNTED) + 1) or ''
  past.session, past.token, past.max = marks .. lease.session, lease.token, lease.max
  past.attempt, past.crashes, past.due = lease.attempt, lease.crashes, lease.due
  past_event(past, event_of(lease.attempt, why and item.conflict .. why or item.event))
  hdel(RUNNING, lease.rid)
  if recall then
    hdel(RECALLS, lease.rid)
  end
  hincr(TOTALS, lease.queue .. ':running', -1)
  hincr(HOLDERS, lease.session, -1)
  if not why then
    hincr(TOTALS, lease.queue .. ':completed', 1)
    past.result = item.result
    return finish(item.lane, lease, past, 'c', item.policy)
  elseif recall == lease.session .. ' ' .. lease.token .. ' c' then
    past_note(past, 'cancelled')
    return finish(item.lane, lease, past, 'x', item.policy)
  end
  past.attempt, past.state = lease.attempt - 1, 'w'
  if conflicts > 0 then
    local ms = CONFLICT_MS * 2 ^ math.min(conflicts, CONFLICTS_COUNTED)
    past.due = digits(NOW_MS + ms + tonumber(lease.token) % ms * SPREAD % ms)
  end
  hset(PAST, lease.rid, past_text(past))
  wait_in(item.lane[part_of(lease.priority, lease.crashes)], item.lane.name, past.due,
    member_long(past.order, lease.rid, past.attempt, past.crashes))
  return true
end

-- What an earlier call has made of a completion whose lease is gone.
local function known(item)
  local text = redis.call('HGET', PAST, item.rid)
  local past = text and past_parse(text)
  if past and past.token == item.token then
    if past.session == item.session then
      return 'D'
    elseif string.match(past.session, '^' .. CONFLICTED .. '+(.*)$') == item.session then
      return 'C'
    end
  end
  return 'S'
end

-- Completions of this very call, by their leases: what is left of a job need not tell.
local answers, told, volatile, stale = {}, {}, false, 0
for n, item in ipairs(completions) do
  local lease, owner = lease_of(item), item.rid .. ' ' .. item.session .. ' ' .. item.token
  if not lease then
    answers[n] = told[owner] or known(item)
    stale = stale + (answers[n] == 'S' and 1 or 0)
  else
    local values, why = judge(item)
    if values then
      enqueue(item)
      change(item, values)
    end
    if not settle(item, lease, why) then
      volatile = true
    end
    answers[n] = values and 'D' or 'C'
    told[owner] = answers[n]
    finish_counts()
    flush()
    redis.call('SET', SEQ, digits(sequence))
    for _, place in ipairs(places) do
      if place.new then
        redis.call('SADD', LANES, place.name)
        place.new = nil
      end
    end
    drop_empty_holders({ [lease.session] = true })
    retain()
    publish_heads()
  end
end
if stale > 0 then
  hincr(META, 'stale', stale)
  flush()
end
local answer = table.concat(answers)
if volatile or stale > 0 then
  redis.call('SET', once, answer, 'EX', ARGV[1])
end
return answer
