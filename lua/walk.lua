#!lua flags=no-writes,allow-oom
-- walk: one step over a hash whose values may be large, without sending them.
--
-- KEYS  the hash
-- ARGV  cursor ('0' at first), about how many entries, `records` or `names`
-- Returns { next cursor ('0' at the end), then for each entry: its field, and for records its size in bytes and
--       its value up to the payload, of one that is no record the first 100 bytes }

local HEAD = '^' .. string.rep('[^\31]*\31', 7) .. '()'
local step = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local reply, records = { step[1] }, ARGV[3] == 'records'
for i = 1, #step[2], 2 do
  local n, value = #reply, step[2][i + 1]
  reply[n + 1] = step[2][i]
  if records then
    reply[n + 2], reply[n + 3] = #value, string.sub(value, 1, (string.match(value, HEAD) or 101) - 1)
  end
end
return reply
