-- The end of a job: its place among the finished, retention (rule 14), and what goes with a record.
--
-- A finished index `done` has score = end of the job in ms, so it lists newest first whatever the ages. Its
-- member is `rid:bytes:expire_ms`, and for a job with an explicit id `:due_ms:forget_ms:id` behind it,
-- so that pruning reads no record.
--- @include past
local DONE = { c = 5, x = 6, d = 7 }
local AGES = ':age'
local ID_COST, PAST_COST = 200, 128

local function done_member(past, rid, id)
  local member = rid .. ':' .. past.bytes .. ':' .. past.expire
  if id ~= '' then
    member = member .. ':' .. past.due .. ':' .. past.forget .. ':' .. id
  end
  return member
end

local function done_parse(member)
  local rid, bytes, expire, at = string.match(member, '^(%d+):(%d+):(%d+)()')
  if not rid then
    return nil
  end
  local due, forget, id = string.match(member, '^:(%d+):(%d+):(.*)$', at)
  return { rid = rid, bytes = tonumber(bytes), expire = tonumber(expire), due = due, forget = forget, id = id or '' }
end

-- Stages the removal of a job's logs. The list of its attempts is under the record id itself, with its progress behind it.
local logs_kept = nil
local function drop_logs(rid)
  if logs_kept == nil then
    logs_kept = redis.call('HLEN', LOGS) > 0
  end
  local attempts = logs_kept and redis.call('HGET', LOGS, rid)
  if attempts then
    for attempt in string.gmatch(string.match(attempts, '^[^\n]*'), '%d+') do
      hdel(LOGS, rid .. ':' .. attempt)
    end
    hdel(LOGS, rid)
  end
end

-- Stages what becomes of an explicit id when the record goes: remembered until `forget`, or free.
local function drop_id(queue, id, rid, state, due, forget)
  if id == '' then
    return 0
  end
  local field = queue .. '/' .. id
  if redis.call('HGET', IDS, field) ~= rid then
    return 0
  end
  if state and tonumber(forget) > NOW_MS then
    hset(IDS, field, '~' .. state .. ' ' .. due .. ' ' .. forget)
    -- An older job of this id may still be listed there.
    if not redis.call('ZSCORE', MEMORY, field) then
      hincr(META, 'id_bytes', 2 * #field + ID_COST)
    end
    zadd(MEMORY, forget, field)
    return 1
  end
  hdel(IDS, field)
  return 0
end

-- Stages the removal of one entry of a finished index with all that belongs to it.
local function drop_done(key, queue, state, member, entry)
  zrem(key, member)
  hdel(JOBS, entry.rid)
  hdel(PAST, entry.rid)
  hincr(SIZES, queue .. ':' .. state, -entry.bytes)
  drop_logs(entry.rid)
  return drop_id(queue, entry.id, entry.rid, state, entry.due or '0', entry.forget or '0')
end

-- What one call adds to one finished index.
local finished = {}
local function finish_batch(key, queue, state, policy)
  local batch = finished[key]
  if not batch then
    batch = { key = key, queue = queue, state = state, added = 0, bytes = 0, ids = 0, dropped = 0, age = policy.age or -1, stage = stage(key, 'zset').set }
    finished[key] = batch
  end
  batch.policy = policy
  if (policy.age or -1) ~= batch.age then
    batch.age = 'm'
  end
  return batch
end

-- Stages a job's end. `job` has rid, queue, id, record_bytes; `past` its attempt, max and so on;
-- `policy` age, count, bytes, memory_age, memory_bytes. Returns false when it is not kept at all.
local function finish(lane, job, past, state, policy)
  past.state, past.expire, past.forget = state, policy.expire, policy.forget
  past.bytes = job.record_bytes + #past.tail + #past.result + PAST_COST
  local batch = finish_batch(lane[DONE[state]], job.queue, state, policy)
  if policy.nothing then
    if state == 'd' and policy.age ~= 0 then
      batch.dropped = batch.dropped + 1
    end
    hdel(JOBS, job.rid)
    hdel(PAST, job.rid)
    drop_logs(job.rid)
    batch.ids = batch.ids + drop_id(job.queue, job.id, job.rid, state, past.due, past.forget)
    return false
  end
  batch.added, batch.bytes = batch.added + 1, batch.bytes + past.bytes
  zadd(batch.key, NOW_TEXT, done_member(past, job.rid, job.id))
  hset(PAST, job.rid, past_text(past))
  return true
end

-- Dead letters that a limit in number or bytes took before their age was over are counted for ever: nobody has seen to them.
local function count_dropped(batch)
  if batch.dropped > 0 then
    hincr(TOTALS, batch.queue .. ':dropped', batch.dropped)
    batch.dropped = 0
  end
end

-- Call before `flush`, once all jobs are finished.
local function finish_counts()
  for _, batch in pairs(finished) do
    if batch.bytes > 0 then
      hincr(SIZES, batch.queue .. ':' .. batch.state, batch.bytes)
    end
    count_dropped(batch)
  end
end

-- Stages the removal of remembered ids, the oldest first, that are over the limit in bytes.
local function trim_memory(bytes_max, added)
  local bytes = tonumber(redis.call('HGET', META, 'id_bytes') or '0')
  if bytes <= bytes_max then
    return
  end
  for _, field in ipairs(redis.call('ZRANGE', MEMORY, 0, 2 * added + 9)) do
    if bytes <= bytes_max then
      break
    end
    bytes = bytes - (2 * #field + ID_COST)
    zrem(MEMORY, field)
    hincr(META, 'id_bytes', -(2 * #field + ID_COST))
    local value = redis.call('HGET', IDS, field)
    if value and string.sub(value, 1, 1) == '~' then
      hdel(IDS, field)
    end
  end
end

-- Stages what takes a finished index back to its limits: the oldest go. At most twice what was added and
-- a few more, so that the cost is that of the settle; the rest is for prune.
local function trim_done(batch)
  local policy, name = batch.policy, batch.queue .. ':' .. batch.state
  local age = redis.call('HGET', SIZES, name .. AGES)
  if age ~= 'm' and age ~= tostring(batch.age) then
    hset(SIZES, name .. AGES, age and 'm' or tostring(batch.age))
  end
  local over = policy.count and redis.call('ZCARD', batch.key) - policy.count or 0
  local bytes = tonumber(redis.call('HGET', SIZES, name) or '0')
  local bytes_max = policy.bytes or math.huge
  if over <= 0 and bytes <= bytes_max then
    return
  end
  local dropped, gone = 0, 0
  local jobs, pasts, match = stage(JOBS, 'hash').del, stage(PAST, 'hash').del, string.match
  local n = #jobs
  for _, member in ipairs(redis.call('ZRANGE', batch.key, 0, math.min(2 * batch.added + 9, CHUNK - 1))) do
    if over <= 0 and bytes <= bytes_max then
      break
    end
    local rid, size, expire, rest = match(member, '^(%d+):(%d+):(%d+)(:?)')
    size = tonumber(size) or 0
    if batch.state == 'd' and rid and tonumber(expire) > NOW_MS then
      batch.dropped = batch.dropped + 1
    end
    bytes, dropped, over, gone = bytes - size, dropped + size, over - 1, gone + 1
    if rid then
      n = n + 1
      jobs[n], pasts[#pasts + 1] = rid, rid
      drop_logs(rid)
    end
    if rest == ':' then
      local entry = done_parse(member)
      batch.ids = batch.ids + drop_id(batch.queue, entry.id, rid, batch.state, entry.due or '0', entry.forget or '0')
    end
  end
  -- The oldest, all that leave the index in this step.
  stage(batch.key, 'zset').first = gone > 0 and gone or nil
  hincr(SIZES, name, -dropped)
  count_dropped(batch)
end

-- Call after `flush`: keeps the finished indexes that were added to, and the memory of ids, within their limits.
local function retain()
  local remembered, memory_bytes = 0, math.huge
  for _, batch in pairs(finished) do
    if batch.added > 0 then
      trim_done(batch)
    end
    remembered = remembered + batch.ids
    memory_bytes = math.min(memory_bytes, batch.policy.memory_bytes)
  end
  flush()
  if remembered > 0 then
    trim_memory(memory_bytes, remembered)
    flush()
  end
  finished = {}
end

-- A policy from five arguments; an empty one is no limit.
local function policy_read(at)
  local policy = {
    age = tonumber(ARGV[at]), count = tonumber(ARGV[at + 1]), bytes = tonumber(ARGV[at + 2]),
    memory_age = tonumber(ARGV[at + 3]), memory_bytes = tonumber(ARGV[at + 4]),
  }
  policy.nothing = policy.age == 0 or policy.count == 0 or policy.bytes == 0
  policy.expire = policy.age and digits(NOW_MS + policy.age) or '9000000000000000'
  policy.forget = digits(NOW_MS + policy.memory_age)
  return policy
end
