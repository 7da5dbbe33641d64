#!lua flags=allow-oom
-- recall: one step over the leases that asks runners to give back what they hold of a queue.
--
-- KEYS  the globals
-- ARGV  queue, cursor ('0' at first), about how many leases to look at
-- Returns { next cursor ('0' at the end), how many held jobs there were }
--- @include globals
--- @include clock
--- @include stage
--- @include lease

local queue = ARGV[1]
local step = redis.call('HSCAN', RUNNING, ARGV[2], 'COUNT', ARGV[3])
local held, sessions = 0, {}
for i = 1, #step[2], 2 do
  local lease = lease_parse(step[2][i], step[2][i + 1])
  if lease and lease.queue == queue and tonumber(lease.due) > NOW_MS then
    held = held + 1
    if not redis.call('HGET', RECALLS, lease.rid) then
      hset(RECALLS, lease.rid, lease.session .. ' ' .. lease.token .. ' r')
      sessions[lease.session] = true
    end
  end
end
flush()
for session in pairs(sessions) do
  redis.pcall('PUBLISH', WAKE, 'recall ' .. session)
end
return { step[1], held }
