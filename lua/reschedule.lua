#!lua flags=allow-oom
-- reschedule: changes the due time of a job that waits; it keeps its place in the order.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  bytes_max, lanes, due time ('+<ms>' from now or '@<ms since 1970>'), then lane and record id
-- Returns { done, asked, notfound, or the state that does not allow it }
-- Errors HOURHAND_INVALID: more than 100 years ahead
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include record
--- @include past
--- @include lanes
--- @include waiting
--- @include job

local DELAY_MAX = 3155760000000
local lanes, _, at = lanes_read(2)
local sign, ms = string.match(ARGV[at], '^([+@])(%d+)$')
local due = sign == '+' and NOW_MS + tonumber(ms) or math.max(tonumber(ms), NOW_MS)
if due > NOW_MS + DELAY_MAX then
  return { err = 'HOURHAND_INVALID due time ' .. digits(due) .. ' ms: expected at most 100 years ahead' }
end

local answers = each_job(at + 1, tonumber(ARGV[1]), lanes, function(job, lane)
  if job_is_held(job) then
    job_recall(job, 'r')
    return 'asked'
  elseif job.letter ~= 'w' then
    return job_state(job)
  end
  zrem(lane[job.part], job.member)
  job.past.due = digits(due)
  past_note(job.past, 'rescheduled')
  hset(PAST, job.rid, past_text(job.past))
  wait_in(lane[job.part], lane.name, job.past.due, member_long(job.past.order, job.rid, job.past.attempt, job.past.crashes))
  return 'done'
end)
flush()
publish_heads()
publish_recalls()
return answers
