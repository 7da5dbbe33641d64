#!lua flags=allow-oom
-- complete: writes completions of jobs to which nothing else has happened. It does what settle.lua does, for the usual
-- case, of which the speed is that of all jobs: nothing is taken apart, and the caller has put together what it can.
--
-- KEYS  the globals, then for each class its queue's index of completed jobs
-- ARGV  count of classes, then for each class: queue, session, five arguments of a policy that keeps something (see
--       includes/finish.lua), count of its jobs, and for each job: record id; its lease as the claim returned it; of its
--       past what stands before its bytes, the bytes, and what stands behind `forget`; its due time and its explicit id, or two empty ones
-- Returns a string with one character a job, in that order: D done; ? not done, for it is not the usual case: settle.lua knows.
--
-- A job counts here when its lease is to the last byte what the claim wrote (rule 2), its member in the lease is its record id, so
-- that it has no past, and nobody recalls any job.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include finish

local PER_JOB = 7
local recalls = redis.call('HLEN', RECALLS) > 0
local answers, taken, held_by, queues = {}, {}, {}, {}
local running, pasts = stage(RUNNING, 'hash').del, stage(PAST, 'hash').set
local settled, written = 0, 0

local at = 2
for class = 1, tonumber(ARGV[1]) do
  local queue, session, policy, jobs = ARGV[at], ARGV[at + 1], policy_read(at + 2), tonumber(ARGV[at + 7])
  local first = at + 8
  at = first + PER_JOB * jobs
  local rids = {}
  for n = 1, jobs do
    rids[n] = ARGV[first + PER_JOB * (n - 1)]
  end
  local leases = recalls and {} or hmget(RUNNING, rids)
  local batch, before, total = nil, settled, 0
  local times, expire, forget = ' ' .. policy.expire .. ' ' .. policy.forget .. ' ', ':' .. policy.expire, ':' .. policy.forget .. ':'
  for n = 1, jobs do
    local i, rid = first + PER_JOB * (n - 1), rids[n]
    if leases[n] == ARGV[i + 1] and not taken[rid] then
      if not batch then
        batch = finish_batch(KEYS[GLOBALS + class], queue, 'c', policy)
      end
      local bytes, due, done = ARGV[i + 3], ARGV[i + 5], nil
      if due == '' then
        done = rid .. ':' .. bytes .. expire
      else
        done = rid .. ':' .. bytes .. expire .. ':' .. due .. forget .. ARGV[i + 6]
      end
      local set, listed = batch.stage, #batch.stage
      set[listed + 1], set[listed + 2] = NOW_TEXT, done
      pasts[written + 1], pasts[written + 2] = rid, ARGV[i + 2] .. bytes .. times .. ARGV[i + 4]
      settled, written, total = settled + 1, written + 2, total + bytes
      running[settled], taken[rid] = rid, true
      answers[#answers + 1] = 'D'
    else
      answers[#answers + 1] = '?'
    end
  end
  if batch then
    local done = settled - before
    batch.added, batch.bytes = batch.added + done, batch.bytes + total
    held_by[session] = (held_by[session] or 0) + done
    queues[queue] = (queues[queue] or 0) + done
  end
end

if settled > 0 then
  for queue, done in pairs(queues) do
    hincr(TOTALS, queue .. ':running', -done)
    hincr(TOTALS, queue .. ':completed', done)
  end
  for session, done in pairs(held_by) do
    hincr(HOLDERS, session, -done)
  end
  finish_counts()
  flush()
  drop_empty_holders(held_by)
  retain()
end
return table.concat(answers)
