#!lua flags=allow-oom
-- reclaim: takes leases from sessions that the caller knows to be lost.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  lanes; retention of dead letters, then of cancelled jobs, five arguments each; then for each lease: lane, record
--       id, session, token
-- Returns { ready, dead, cancelled, stale }, counts.
--
-- A job that ran gets a crash on its record, and goes back to its place or, at the third crash or
-- without an attempt left, to the dead letters. One that was only held (its due time is ahead)
-- is given back unharmed. One that somebody wanted cancelled is cancelled.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include past
--- @include lanes
--- @include waiting
--- @include finish

local CRASHES_MAX, PER_ITEM = 3, 4
local lanes, _, at = lanes_read(1)
local dead_policy, cancelled_policy = policy_read(at), policy_read(at + 5)
local first = at + 10

local rids = {}
for i = first, #ARGV, PER_ITEM do
  rids[#rids + 1] = ARGV[i + 1]
end
local leases, pasts, recalls = hmget(RUNNING, rids), hmget(PAST, rids), hmget(RECALLS, rids)
local runners = {}

-- The runner's name, for the job's history.
local function runner_of(session)
  if not runners[session] then
    local known = redis.call('HGET', SESSIONS, session)
    runners[session] = known and string.match(known, '^[^\31]*\31([^\31]*)') or ''
  end
  return runners[session]
end

local ready, dead, cancelled, stale, held_by, seen = 0, 0, 0, 0, {}, {}

local function reclaim(lease, lane, past, recall)
  hdel(RUNNING, lease.rid)
  hdel(RECALLS, lease.rid)
  hincr(TOTALS, lease.queue .. ':running', -1)
  hincr(HOLDERS, lease.session, -1)
  held_by[lease.session] = true
  past = past or past_fresh(lease.max, lease.crashes, lease.due, lease.order)
  past.session, past.token, past.max, past.due = '-', '0', lease.max, lease.due
  local started = tonumber(lease.due) <= NOW_MS
  if started then
    past.attempt, past.crashes = lease.attempt, lease.crashes + 1
    past_note(past, 'reclaimed', runner_of(lease.session), 'lost', 'its runner went away')
    hincr(TOTALS, lease.queue .. ':failed', 1)
  end
  if recall == lease.session .. ' ' .. lease.token .. ' c' then
    past_note(past, 'cancelled')
    finish(lane, lease, past, 'x', cancelled_policy)
    cancelled = cancelled + 1
  elseif started and (past.crashes >= CRASHES_MAX or past.attempt >= lease.max) then
    local why = past.crashes >= CRASHES_MAX and past.crashes .. ' runners went away while they had it'
      or 'its runner went away in its last attempt'
    past_note(past, 'dead', '', 'lost', why)
    finish(lane, lease, past, 'd', dead_policy)
    dead = dead + 1
  else
    hset(PAST, lease.rid, past_text(past))
    wait_in(lane[part_of(lease.priority, past.crashes)], lane.name, past.due,
      member_long(past.order, lease.rid, past.attempt, past.crashes))
    ready = ready + 1
  end
end

for n, rid in ipairs(rids) do
  local i = first + PER_ITEM * (n - 1)
  local lease = leases[n] and lease_parse(rid, leases[n])
  local lane = lanes[tonumber(ARGV[i])]
  if lease and not seen[rid] and lease.session == ARGV[i + 2] and lease.token == ARGV[i + 3]
    and lease.queue == lane.queue and lease.kind == lane.kind then
    seen[rid] = true
    reclaim(lease, lane, pasts[n] and past_parse(pasts[n]), recalls[n])
  else
    stale = stale + 1
  end
end
finish_counts()
flush()
drop_empty_holders(held_by)
retain()
publish_heads()
return { ready, dead, cancelled, stale }
