#!lua flags=allow-oom
-- requeue: brings finished jobs back as new, and makes scheduled ones due now. Attempt and crashes
-- are reset, progress is gone; id, history and logs stay; they take a new place in the order.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  bytes_max, lanes, then lane and record id for each job
-- Returns for each job done, asked, notfound, or the state that does not allow it; may stop early (each_job)
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

local lanes, _, at = lanes_read(2)
local sequence = sequence_read()
local before = sequence

local answers = each_job(at, tonumber(ARGV[1]), lanes, function(job, lane)
  if job_is_held(job) then
    job_recall(job, 'r')
    return 'asked'
  elseif job.lease or (job.letter == 'w' and job.due <= NOW_MS) then
    return job_state(job)
  end
  local past = job.past
  if job.letter == 'w' then
    zrem(lane[job.part], job.member)
  else
    zrem(lane[DONE[job.letter]], done_member(past, job.rid, job.id))
    hincr(SIZES, job.queue .. ':' .. job.letter, -past.bytes)
  end
  sequence = sequence + 1
  past.state, past.attempt, past.crashes, past.result = 'w', 0, 0, ''
  past.due, past.order = digits(NOW_MS), string.format('%014.0f', sequence)
  past.bytes, past.expire, past.forget = 0, '0', '0'
  past_note(past, 'requeued')
  local logs = redis.call('HGET', LOGS, job.rid)
  if logs and string.find(logs, '\n', 1, true) then
    hset(LOGS, job.rid, string.match(logs, '^[^\n]*'))
  end
  hset(PAST, job.rid, past_text(past))
  wait_in(lane[part_of(job.priority, 0)], lane.name, past.due, member_long(past.order, job.rid, 0, 0))
  return 'done'
end)
flush()
if sequence > before then
  redis.call('SET', SEQ, digits(sequence))
end
publish_heads()
publish_recalls()
return answers
