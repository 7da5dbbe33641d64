#!lua flags=allow-oom
-- delete: removes jobs that no runner has, with their logs. The id of one that had finished is remembered
-- as if retention had removed it; that of another is free.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  bytes_max, lanes, bytes of remembered ids, then lane and record id for each job
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
local remembered = 0

local answers = each_job(at + 1, tonumber(ARGV[1]), lanes, function(job, lane)
  if job_is_held(job) then
    job_recall(job, 'r')
    return 'asked'
  elseif job.lease then
    return 'running'
  end
  if job.letter == 'w' then
    zrem(lane[job.part], job.member)
    hdel(JOBS, job.rid)
    hdel(PAST, job.rid)
    drop_logs(job.rid)
    drop_id(job.queue, job.id, job.rid)
    return 'done'
  end
  local member = done_member(job.past, job.rid, job.id)
  remembered = remembered + drop_done(lane[DONE[job.letter]], job.queue, job.letter, member, done_parse(member))
  return 'done'
end)
flush()
if remembered > 0 then
  trim_memory(tonumber(ARGV[at]), remembered)
  flush()
end
publish_recalls()
return answers
