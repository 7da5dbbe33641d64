#!lua flags=no-writes,allow-oom
-- export: everything about some jobs, for another store.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  bytes_max, lanes, then lane and record id for each job
-- Returns { now_us, then for each job: record, past, lease, recall, name of the runner that has the lease, the end of a
--       finished job in ms, progress (see log.lua), each '' where there is none, and { attempt, log, ... } }; stops behind the job that takes the
--       reply over bytes_max, so it may answer for fewer than were asked for.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include record
--- @include past
--- @include lanes
--- @include finish
--- @include job

local bytes_max = tonumber(ARGV[1])
local lanes, _, first = lanes_read(2)

local function logs_of(rid)
  local logs = {}
  local attempts, progress = string.match(redis.call('HGET', LOGS, rid) or '', '^([^\n]*)\n?(.*)$')
  for attempt in string.gmatch(attempts, '%d+') do
    local text = redis.call('HGET', LOGS, rid .. ':' .. attempt)
    if text then
      logs[#logs + 1], logs[#logs + 2] = attempt, text
    end
  end
  return logs, progress
end

local function ended(rid, lane)
  local job = lane and job_load(rid)
  local part = job and DONE[job.letter]
  return part and redis.call('ZSCORE', lane[part], done_member(job.past, rid, job.id)) or ''
end

local reply, bytes = { NOW_US }, 0
for i = first, #ARGV, 2 do
  local lane, rid, n = lanes[tonumber(ARGV[i])], ARGV[i + 1], #reply
  local lease = redis.call('HGET', RUNNING, rid) or ''
  local logs, progress = logs_of(rid)
  local session = lease ~= '' and redis.call('HGET', SESSIONS, string.match(lease, '^%S*'))
  reply[n + 1] = redis.call('HGET', JOBS, rid) or ''
  reply[n + 2] = redis.call('HGET', PAST, rid) or ''
  reply[n + 3] = lease
  reply[n + 4] = redis.call('HGET', RECALLS, rid) or ''
  reply[n + 5] = session and string.match(session, '^[^\31]*\31([^\31]*)') or ''
  reply[n + 6] = ended(rid, lane)
  reply[n + 7] = progress
  reply[n + 8] = logs
  bytes = bytes + #reply[n + 1] + #reply[n + 2]
  for _, part in ipairs(logs) do
    bytes = bytes + #part
  end
  if bytes > bytes_max then
    break
  end
end
return reply
