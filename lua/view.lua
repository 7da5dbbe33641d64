#!lua flags=no-writes,allow-oom
-- view: everything about some jobs.
--
-- KEYS  the globals
-- ARGV  bytes_max, then record ids
-- Returns { now_ms, then for each job: record, past, lease, name of the runner that has the lease, progress (see log.lua) }, each ''
--       where there is none; stops behind the job that takes the reply over bytes_max, so it may answer for
--       fewer than were asked for.
--- @include globals
--- @include clock

local reply, bytes = { digits(NOW_MS) }, 0
local bytes_max, logged = tonumber(ARGV[1]), redis.call('HLEN', LOGS) > 0
for i = 2, #ARGV do
  local n = #reply
  reply[n + 1] = redis.call('HGET', JOBS, ARGV[i]) or ''
  reply[n + 2] = redis.call('HGET', PAST, ARGV[i]) or ''
  local lease = redis.call('HGET', RUNNING, ARGV[i]) or ''
  local session = lease ~= '' and redis.call('HGET', SESSIONS, string.match(lease, '^%S*'))
  reply[n + 3] = lease
  reply[n + 4] = session and string.match(session, '^[^\31]*\31([^\31]*)') or ''
  reply[n + 5] = logged and string.match(redis.call('HGET', LOGS, ARGV[i]) or '', '\n(.*)$') or ''
  bytes = bytes + #reply[n + 1] + #reply[n + 2]
  if bytes > bytes_max then
    break
  end
end
return reply
