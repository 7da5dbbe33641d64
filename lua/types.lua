#!lua flags=no-writes,allow-oom
-- types: what some keys hold.
--
-- KEYS  the keys
-- Returns for each: its type, and 1 when it goes by itself after a time else 0

local reply = {}
for i, key in ipairs(KEYS) do
  reply[2 * i - 1] = redis.call('TYPE', key).ok
  reply[2 * i] = redis.call('PTTL', key) >= 0 and 1 or 0
end
return reply
