#!lua flags=allow-oom
-- examine: looks at jobs, entries of indexes and leases, each as it is at this moment, and mends what is wrong.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua), then the quarantine
-- ARGV  1 to mend else 0; lanes; then four for each thing to look at:
--         `entry`, lane, part of the lane (1 to 7), member
--         `lease`, lane or 0 when the caller cannot read it, record id, the lease as the caller saw it
--         `record`, lane or 0 when the caller cannot read it, record id, the record up to its payload as the caller saw it
-- Returns for each finding: check, place, message, what was done or ''
--
-- A job's place follows from its record, its past and whether it has a lease. An entry elsewhere is taken out, and a
-- job that is nowhere is put into its place: both here, so that no claim sees it twice.
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
--- @include job
--- @include finding

local PER_ITEM, DUE_PARTS = 4, 4
local lanes, _, first = lanes_read(2)
local PREFIX = #SEQ - 3
local listed, unlisted, held_by = {}, {}, {}

local function key_name(key)
  return string.sub(key, PREFIX + 1)
end

local function label(job)
  local id = job.id ~= '' and job.id or (string.gsub(job.rid, '^0+', '')) .. '-' .. (job.suffix or '')
  return 'job ' .. id .. ' of queue ' .. job.queue
end

-- The index, member and due time of a job that no session has; a finished one's end is known by its entry alone.
local function place_of(job, lane)
  if job.letter == 'w' then
    return lane[job.part], job.member, job.due
  end
  return lane[DONE[job.letter]], done_member(job.past, job.rid, job.id), nil
end

-- Stages a job's entry, unless it is there.
local function put_back(job, lane, ended)
  local key, member, due = place_of(job, lane)
  if redis.call('ZSCORE', key, member) then
    return
  elseif due then
    wait_in(key, lane.name, digits(due), member)
  else
    zadd(key, ended or NOW_TEXT, member)
  end
end

-- True when what has happened to a job can be read, or nothing has.
local function past_is_sound(job)
  return job.readable and (job.letter == 'w' or DONE[job.letter] ~= nil)
end

local ASIDE = { [ORPHANS] = 'moved to the orphans', [DIRT] = 'moved to the dirt' }

local function entry_out(lane, part, member, score, where)
  local key = lane[part]
  zrem(key, member)
  local lane_name = part <= DUE_PARTS and lane.queue .. ':' .. lane.kind or key_name(key)
  zadd(where, NOW_TEXT, lane_name .. ' ' .. score .. ' ' .. member)
  return ASIDE[where]
end

-- Stages a job with its past into the quarantine: not to be run, for nobody knows whether it has ended.
local function job_aside(job, check, message)
  for what, key in pairs({ jobs = JOBS, past = PAST }) do
    local text = redis.call('HGET', key, job.rid)
    if text then
      set_aside(key, what, job.rid, text)
    end
  end
  found(check, label(job) .. ', record ' .. job.rid, message, 'set aside')
end

local function examine_entry(lane, part, member)
  local key = lane[part]
  local score = redis.call('ZSCORE', key, member)
  if not score then
    return
  end
  local place, waits = 'entry ' .. member .. ' of ' .. key_name(key), part <= DUE_PARTS
  local entry = not waits and done_parse(member) or nil
  local rid = waits and member_parse(member) or entry and #entry.rid == 14 and entry.rid
  if not rid then
    return found('wrong-entry', place, "it is no job's", entry_out(lane, part, member, score, DIRT))
  end
  local job = job_load(rid)
  if not job then
    local why = redis.call('HEXISTS', JOBS, rid) == 1 and 'the record of its job cannot be read' or 'its job has no record'
    if entry then
      hincr(SIZES, lane.queue .. ':' .. string.sub(key, -1), -entry.bytes)
    end
    return found('orphan-entry', place, why, entry_out(lane, part, member, score, ORPHANS))
  end
  if job.leased then
    return found('wrong-entry', place, label(job) .. ' is in the hand of a runner', entry_out(lane, part, member, score, ORPHANS))
  elseif not past_is_sound(job) then
    entry_out(lane, part, member, score, ORPHANS)
    return job_aside(job, 'bad-past', 'what has happened to it cannot be read')
  end
  local here = job.queue == lane.queue and (job.kind == lane.kind or (not waits and job.letter ~= 'w'))
  local right, right_member, due = nil, nil, nil
  if here then
    right, right_member, due = place_of(job, lane)
  end
  if right ~= key or right_member ~= member then
    local mended = entry_out(lane, part, member, score, ORPHANS)
    if here then
      put_back(job, lane, not waits and job.letter ~= 'w' and score or nil)
    end
    return found('wrong-entry', place, 'it is not the place of ' .. label(job), mended)
  elseif due and tonumber(score) ~= due then
    local message = label(job) .. ' is due at ' .. digits(due) .. ' and waits for ' .. score
    wait_in(key, lane.name, digits(due), member)
    return found('wrong-entry', place, message, 'it waits for ' .. digits(due))
  end
end

local function examine_lease(lane, rid, seen)
  local text = redis.call('HGET', RUNNING, rid)
  if not text or (not lane and text ~= seen) then
    return
  end
  local lease, job = lane and lease_parse(rid, text), job_load(rid)
  local check, message = nil, nil
  if not lease then
    check, message = 'bad-lease', 'it cannot be read'
  elseif not job then
    check, message = 'orphan-lease', 'its job has no record that can be read'
  elseif lease.queue ~= job.queue or lease.kind ~= job.kind then
    check, message = 'bad-lease', 'it is of another queue or kind than ' .. label(job)
  else
    return
  end
  set_aside(RUNNING, 'running', rid, text)
  if lease then
    hincr(TOTALS, lease.queue .. ':running', -1)
    hincr(HOLDERS, lease.session, -1)
    held_by[lease.session] = true
  end
  found(check, 'lease of ' .. rid, message, 'set aside')
end

-- An explicit id leads to its job and to no other. True when the job is not to be looked at further.
local function examine_id(job, lane)
  local field = job.queue .. '/' .. job.id
  local value = redis.call('HGET', IDS, field)
  if value == job.rid then
    return false
  end
  local other = value and redis.call('HGET', JOBS, value)
  other = other and record_parse(value, other)
  if not (other and other.queue == job.queue and other.id == job.id) then
    hset(IDS, field, job.rid)
    found('lost-id', label(job), 'its id does not lead to it', 'its id leads to it')
    return false
  elseif job.leased then
    found('double-id', label(job) .. ', record ' .. job.rid, 'another job has the same id, and a runner has this one', nil)
    return true
  end
  local key, member = place_of(job, lane)
  local score = redis.call('ZSCORE', key, member)
  if score then
    entry_out(lane, job.letter == 'w' and job.part or DONE[job.letter], member, score, ORPHANS)
  end
  job_aside(job, 'double-id', 'another job has the same id')
  return true
end

local function examine_record(lane, rid, seen)
  local text = redis.call('HGET', JOBS, rid)
  if not text then
    return
  end
  local job = lane and #rid == 14 and job_load(rid)
  if not job then
    if lane or string.sub(text, 1, #seen) == seen then
      set_aside(JOBS, 'jobs', rid, text)
      found('bad-record', 'record ' .. rid, 'it cannot be read', 'set aside')
    end
    return
  elseif job.queue ~= lane.queue or job.kind ~= lane.kind then
    return
  end
  if listed[lane] == nil then
    listed[lane] = redis.call('SISMEMBER', LANES, lane.name) == 1
    if not listed[lane] then
      unlisted[#unlisted + 1] = lane.name
      found('unlisted-lane', 'lane ' .. lane.name, 'it has jobs and no runner looks there', 'listed')
    end
  end
  if job.leased then
    if job.id ~= '' then
      examine_id(job, lane)
    end
    return
  elseif not past_is_sound(job) then
    return job_aside(job, 'bad-past', 'what has happened to it cannot be read')
  elseif job.id ~= '' and examine_id(job, lane) then
    return
  end
  local key, member = place_of(job, lane)
  if not redis.call('ZSCORE', key, member) then
    put_back(job, lane)
    local states = { w = 'waits', c = 'is completed', x = 'is cancelled', d = 'is dead' }
    found('lost-job', label(job), 'it ' .. states[job.letter] .. ' and is in no index', 'put back into its place')
  end
end

for at = first, #ARGV, PER_ITEM do
  local what, lane = ARGV[at], lanes[tonumber(ARGV[at + 1])]
  if what == 'entry' then
    examine_entry(lane, tonumber(ARGV[at + 2]), ARGV[at + 3])
  elseif what == 'lease' then
    examine_lease(lane, ARGV[at + 2], ARGV[at + 3])
  else
    examine_record(lane, ARGV[at + 2], ARGV[at + 3])
  end
end
if MENDS and #findings > 0 then
  expect('hash', QUARANTINE)
  flush()
  for _, name in ipairs(unlisted) do
    redis.call('SADD', LANES, name)
  end
  drop_empty_holders(held_by)
  publish_heads()
end
return findings
