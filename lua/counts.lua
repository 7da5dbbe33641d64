#!lua flags=no-writes,allow-oom
-- counts: what is in some lanes now.
--
-- KEYS  the globals, then seven for each lane (see includes/lanes.lua)
-- ARGV  lanes
-- Returns { now_ms, stale, orphans, quarantined, then for each lane: waiting, ready, held, earliest due_ms or '', and
--       of its queue: completed, cancelled, dead, enqueued, completed and failed ever, dead letters dropped ever, leases, 1 when
--       it is paused else 0 }
--
-- Held jobs are scheduled to everybody but their runner; they are told from running ones only while there are
-- few leases, because that reads them all.
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include lanes

local LEASES_READ_MAX = 1000
local lanes = lanes_read(1)
local held = {}
if redis.call('HLEN', RUNNING) <= LEASES_READ_MAX then
  for _, text in ipairs(redis.call('HVALS', RUNNING)) do
    local lease = lease_parse('', text)
    if lease and tonumber(lease.due) > NOW_MS then
      local name = lease.queue .. ':' .. lease.kind
      held[name] = (held[name] or 0) + 1
    end
  end
end

local reply = {
  digits(NOW_MS), redis.call('HGET', META, 'stale') or '0', redis.call('ZCARD', ORPHANS), redis.call('ZCARD', DIRT),
}
local function add(value)
  reply[#reply + 1] = value
end
for _, lane in ipairs(lanes) do
  local waiting, ready, head = 0, 0, nil
  for part = 1, 4 do
    local jobs = redis.call('ZCARD', lane[part])
    if jobs > 0 then
      waiting = waiting + jobs
      ready = ready + redis.call('ZCOUNT', lane[part], '-inf', digits(NOW_MS))
      local due = tonumber(redis.call('ZRANGE', lane[part], 0, 0, 'WITHSCORES')[2])
      head = head and math.min(head, due) or due
    end
  end
  add(waiting)
  add(ready)
  add(held[lane.name] or 0)
  add(head and digits(head) or '')
  for part = 5, 7 do
    add(redis.call('ZCARD', lane[part]))
  end
  local queue = lane.queue
  local totals = redis.call('HMGET', TOTALS, queue .. ':enqueued', queue .. ':completed', queue .. ':failed',
    queue .. ':dropped', queue .. ':running')
  for i = 1, 5 do
    add(totals[i] or '0')
  end
  add(redis.call('SISMEMBER', PAUSED, queue))
end
return reply
