#!lua flags=allow-oom
-- settle: writes what became of claimed jobs.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua), then the once key
-- ARGV  once token, its seconds; lanes; count of policies and five arguments each (see
--       includes/finish.lua); then for each settlement: lane, record id, session, token, op, delay_ms, policy, event,
--       result. op: c completed, r retry, d dead, s snoozed, l released, x cancelled. event is
--       empty, or `R` or `E` and what follows its attempt (and, for E, its time).
-- Returns a string with one character a settlement: D done, S stale.
--
-- A settlement counts only with the lease's own session and token (rule 2); one that is already
-- written by that very lease is done again. The answer is kept for a repeat where nothing else tells of the first
-- call: a job that is gone, a late settlement that is counted. What was cancelled while it ran does not come back.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include past
--- @include lanes
--- @include waiting
--- @include finish

local PER_ITEM = 9
local once = KEYS[#KEYS]
local answered = redis.call('GET', once)
if answered then
  return answered
end
local lanes, _, at = lanes_read(3)
local policies = {}
for i = 1, tonumber(ARGV[at]) do
  policies[i] = policy_read(at + 1 + 5 * (i - 1))
end
local first = at + 5 * #policies + 1

local rids = {}
for i = first, #ARGV, PER_ITEM do
  rids[#rids + 1] = ARGV[i + 1]
end
local leases = hmget(RUNNING, rids)
local recalls = redis.call('HLEN', RECALLS) > 0
local JOB_ENDS = { c = true, d = true, x = true }
local answers, owners, stale, volatile, held_by = {}, {}, 0, false, {}

-- What is the same for each settlement with a valid lease.
local function count(lane, session, op)
  lane.running = lane.running + 1
  if op == 'c' then
    lane.completed = (lane.completed or 0) + 1
  elseif op == 'r' or op == 'd' then
    lane.failed = (lane.failed or 0) + 1
  end
  held_by[session] = (held_by[session] or 0) + 1
end

local function event_of(attempt, event)
  local kind = string.sub(event, 1, 1)
  return kind .. attempt .. '\31' .. (kind == 'E' and NOW_US .. '\31' or '') .. string.sub(event, 2)
end

local function settle(lane, i, lease, past)
  local op = ARGV[i + 4]
  past = past or past_fresh(lease.max, lease.crashes, lease.due, lease.order)
  past.session, past.token, past.max = lease.session, lease.token, lease.max
  past.attempt, past.crashes, past.due = lease.attempt, lease.crashes, lease.due
  if ARGV[i + 7] ~= '' then
    past_event(past, event_of(lease.attempt, ARGV[i + 7]))
  end
  local recall = recalls and redis.call('HGET', RECALLS, lease.rid)
  if recall then
    hdel(RECALLS, lease.rid)
    if not JOB_ENDS[op] and recall == lease.session .. ' ' .. lease.token .. ' c' then
      op = 'x'
      past_note(past, 'cancelled')
    end
  end
  hdel(RUNNING, lease.rid)
  count(lane, lease.session, ARGV[i + 4])
  if JOB_ENDS[op] then
    past.result = op == 'c' and ARGV[i + 8] or ''
    if not finish(lane, lease, past, op, policies[tonumber(ARGV[i + 6])]) then
      volatile = true
    end
    return
  end
  if op ~= 'r' then
    past.attempt = lease.attempt - 1
  end
  if op ~= 'l' then
    past.due = digits(NOW_MS + tonumber(ARGV[i + 5]))
  end
  past.state = 'w'
  hset(PAST, lease.rid, past_text(past))
  wait_in(lane[part_of(lease.priority, lease.crashes)], lane.name, past.due,
    member_long(past.order, lease.rid, past.attempt, past.crashes))
end

local pasts = hmget(PAST, rids)
for n, rid in ipairs(rids) do
  local i = first + PER_ITEM * (n - 1)
  local owner, text = ARGV[i + 2] .. ' ' .. ARGV[i + 3] .. ' ', leases[n]
  local valid = text and not owners[rid] and string.sub(text, 1, #owner) == owner
  local lease, past = valid and lease_parse(rid, text), pasts[n] and past_parse(pasts[n])
  local lane = lanes[tonumber(ARGV[i])]
  answers[n] = 'D'
  if lease then
    owners[rid] = owner
    if lease.queue ~= lane.queue or lease.kind ~= lane.kind then
      return { err = 'HOURHAND_INVALID settlement ' .. (n - 1) .. ' of another lane than its job has' }
    end
    settle(lane, i, lease, past)
  elseif owners[rid] ~= owner and not (past and past.session .. ' ' .. past.token .. ' ' == owner) then
    answers[n] = 'S'
    stale = stale + 1
  end
end

for _, lane in ipairs(lanes) do
  if lane.running > 0 then
    hincr(TOTALS, lane.queue .. ':running', -lane.running)
  end
  if lane.completed then
    hincr(TOTALS, lane.queue .. ':completed', lane.completed)
  end
  if lane.failed then
    hincr(TOTALS, lane.queue .. ':failed', lane.failed)
  end
end
for session, number in pairs(held_by) do
  hincr(HOLDERS, session, -number)
end
if stale > 0 then
  hincr(META, 'stale', stale)
end
finish_counts()
flush()
drop_empty_holders(held_by)
retain()
publish_heads()
local answer = table.concat(answers)
if volatile or stale > 0 then
  redis.call('SET', once, answer, 'EX', ARGV[2])
end
return answer
