#!lua flags=allow-oom
-- cancel: ends jobs that have not ended. A runner that has one is asked to stop it.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  bytes_max, lanes, retention in five arguments, then lane and record id for each job
-- Returns for each job done, asked, notfound, or the state that does not allow it; may stop early (each_job)
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

local lanes, _, at = lanes_read(2)
local policy = policy_read(at)

local answers = each_job(at + 5, tonumber(ARGV[1]), lanes, function(job, lane)
  if job.lease then
    job_recall(job, 'c')
    return 'asked'
  elseif job.letter == 'x' then
    return 'done'
  elseif job.letter ~= 'w' then
    return job_state(job)
  end
  zrem(lane[job.part], job.member)
  past_note(job.past, 'cancelled')
  finish(lane, job, job.past, 'x', policy)
  return 'done'
end)
finish_counts()
flush()
retain()
publish_recalls()
return answers
