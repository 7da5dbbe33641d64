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
-- written by that very lease is done again. What was cancelled while it ran does not come back.
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
if ARGV[1] ~= '' then
  local answered = redis.call('GET', once)
  if answered then
    return answered
  end
end
local lanes, _, at = lanes_read(3)
local policies = {}
for i = 1, tonumber(ARGV[at]) do
  policies[i] = policy_read(at + 1 + 5 * (i - 1))
end
local first = at + 5 * #policies + 1

-- The leases, and the past of each job that has one.
local rids = {}
for i = first, #ARGV, PER_ITEM do
  rids[#rids + 1] = ARGV[i + 1]
end
local leases = hmget(RUNNING, rids)
local seen, items, pasts_wanted = {}, {}, {}
for n, rid in ipairs(rids) do
  local i = first + PER_ITEM * (n - 1)
  local lease = leases[n] and lease_parse(rid, leases[n])
  local lane = lanes[tonumber(ARGV[i])]
  local valid = lease and lease.session == ARGV[i + 2] and lease.token == ARGV[i + 3]
  if valid and (lease.queue ~= lane.queue or lease.kind ~= lane.kind) then
    error({ err = 'HOURHAND_INVALID ' .. (n - 1) .. ' settlement of another lane: expected ' .. lease.queue .. ':' .. lease.kind })
  end
  if valid and not seen[rid] then
    items[n] = lease
    seen[rid] = lease.session .. ' ' .. lease.token
    if #lease.member > 14 then
      pasts_wanted[#pasts_wanted + 1] = rid
    end
  else
    pasts_wanted[#pasts_wanted + 1] = rid
  end
end
local pasts = {}
for n, text in ipairs(hmget(PAST, pasts_wanted)) do
  pasts[pasts_wanted[n]] = text and past_parse(text)
end

local function fresh(lease)
  return { state = 'w', attempt = 0, max = lease.max, crashes = 0, due = lease.due, order = lease.order, bytes = 0,
    expire = '0', forget = '0', session = '-', token = '0', events = 0, result = '', tail = '' }
end

local recalls = redis.call('HLEN', RECALLS) > 0
local answers, stale, volatile, held_by = {}, 0, false, {}
local JOB_ENDS = { c = true, d = true, x = true }

local function settle(lease, lane, i)
  local op, event = ARGV[i + 4], ARGV[i + 7]
  local past = pasts[lease.rid] or fresh(lease)
  past.session, past.token, past.max = lease.session, lease.token, lease.max
  past.attempt, past.due = lease.attempt, lease.due
  local kind = string.sub(event, 1, 1)
  if kind == 'R' then
    past_event(past, 'R' .. lease.attempt .. '\31' .. string.sub(event, 2))
  elseif kind == 'E' then
    past_event(past, 'E' .. lease.attempt .. '\31' .. NOW_US .. '\31' .. string.sub(event, 2))
  end
  if recalls then
    local recall = redis.call('HGET', RECALLS, lease.rid)
    if recall then
      hdel(RECALLS, lease.rid)
      if not JOB_ENDS[op] and recall == lease.session .. ' ' .. lease.token .. ' c' then
        op = 'x'
        past_event(past, 'E' .. lease.attempt .. '\31' .. NOW_US .. '\31cancelled\31\31\31')
      end
    end
  end
  hdel(RUNNING, lease.rid)
  hincr(TOTALS, lease.queue .. ':running', -1)
  hincr(HOLDERS, lease.session, -1)
  held_by[lease.session] = true
  if op == 'r' or op == 'd' then
    hincr(TOTALS, lease.queue .. ':failed', 1)
  end
  if JOB_ENDS[op] then
    past.result = op == 'c' and ARGV[i + 8] or ''
    if op == 'c' then
      hincr(TOTALS, lease.queue .. ':completed', 1)
    end
    if not finish(lane, lease, past, op, policies[tonumber(ARGV[i + 6])]) then
      volatile = true
    end
    return
  end
  if op == 's' or op == 'l' then
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

for n, rid in ipairs(rids) do
  local i = first + PER_ITEM * (n - 1)
  local past, lease = pasts[rid], ARGV[i + 2] .. ' ' .. ARGV[i + 3]
  if items[n] then
    settle(items[n], lanes[tonumber(ARGV[i])], i)
    answers[n] = 'D'
  elseif seen[rid] == lease or (past and past.session .. ' ' .. past.token == lease) then
    answers[n] = 'D'
  else
    answers[n] = 'S'
    stale = stale + 1
  end
end
if stale > 0 then
  hincr(META, 'stale', stale)
end
flush()
drop_empty_holders(held_by)
retain()
publish_heads()
local answer = table.concat(answers)
if volatile and ARGV[1] ~= '' then
  redis.call('SET', once, answer, 'EX', ARGV[2])
end
return answer
