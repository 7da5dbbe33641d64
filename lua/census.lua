#!lua flags=no-writes,allow-oom
-- census: the jobs, and the places that they have.
--
-- KEYS  the globals, then indexes
-- Returns { records, leases and entries of these indexes, lanes }
--- @include globals

local places = redis.call('HLEN', RUNNING)
for i = GLOBALS + 1, #KEYS do
  places = places + redis.call('ZCARD', KEYS[i])
end
return { redis.call('HLEN', JOBS), places, redis.call('SCARD', LANES) }
