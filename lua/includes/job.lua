-- A job as an operator's verb needs it: its record, past and lease, and where it waits.
local function job_load(rid)
  local text = redis.call('HGET', JOBS, rid)
  local job = text and record_parse(rid, text)
  if not job then
    return nil
  end
  job.record_bytes = #text
  local past, lease = redis.call('HGET', PAST, rid), redis.call('HGET', RUNNING, rid)
  job.past = past and past_parse(past)
  job.lease = lease and lease_parse(rid, lease)
  -- A lease or a past may be there and not be readable.
  job.leased, job.readable = lease and true or false, not past or job.past ~= nil
  job.letter = job.lease and 'r' or job.past and job.past.state or 'w'
  job.due = job.lease and tonumber(job.lease.due) or job.past and tonumber(job.past.due) or job.enqueued + job.delay
  job.member, job.part = rid, part_of(job.priority, 0)
  if job.past then
    job.member = member_long(job.past.order, rid, job.past.attempt, job.past.crashes)
    job.part = part_of(job.priority, job.past.crashes)
  else
    job.past = past_fresh(tonumber(job.max) or 0, 0, digits(job.due), rid)
  end
  return job
end

local STATES = { c = 'completed', x = 'cancelled', d = 'dead', r = 'running' }
local function job_state(job)
  if job.letter == 'w' then
    return job.due <= NOW_MS and 'ready' or 'scheduled'
  end
  return STATES[job.letter]
end

-- True for a job that a runner holds for its moment and has not started.
local function job_is_held(job)
  return job.lease and job.due > NOW_MS
end

-- Asks the runner that has the job to stop it (c) or, when it has not started, to give it back (r).
-- A wish to cancel is not weakened by a later one.
local recalled = {}
local function job_recall(job, action)
  local wish = job.lease.session .. ' ' .. job.lease.token .. ' '
  if action == 'c' or redis.call('HGET', RECALLS, job.rid) ~= wish .. 'c' then
    hset(RECALLS, job.rid, wish .. action)
  end
  recalled[job.lease.session] = true
end

-- Call after `flush`.
local function publish_recalls()
  for session in pairs(recalled) do
    redis.pcall('PUBLISH', WAKE, 'recall ' .. session)
  end
end

-- Answers `decide(job, lane)` for each `lane, record id` from ARGV[at] on, until more than `bytes_max` of
-- records were read: so the answer may be for fewer jobs than were asked for.
local function each_job(at, bytes_max, lanes, decide)
  local answers, bytes, seen = {}, 0, {}
  for i = at, #ARGV, 2 do
    local job = job_load(ARGV[i + 1])
    if not job or seen[job.rid] then
      answers[#answers + 1] = job and seen[job.rid] or 'notfound'
    else
      answers[#answers + 1] = decide(job, lanes[tonumber(ARGV[i])])
      seen[job.rid] = answers[#answers]
      bytes = bytes + job.record_bytes
    end
    if bytes > bytes_max then
      break
    end
  end
  return answers
end
