#!lua flags=allow-oom
-- resume: lets claims take from a queue again, and tells runners what waits there.
--
-- KEYS  the globals, then seven for each lane of the queue (see includes/lanes.lua)
-- ARGV  queue, lanes
-- Returns 1 when it was paused, else 0
--- @include globals
--- @include lanes

local lanes = lanes_read(2)
local signals = {}
for _, lane in ipairs(lanes) do
  for part = 1, 4 do
    local head = redis.call('ZRANGE', lane[part], 0, 0, 'WITHSCORES')
    if head[2] then
      signals[#signals + 1] = 'due ' .. lane.name .. ' ' .. head[2]
    end
  end
end
local was_paused = redis.call('SREM', PAUSED, ARGV[1])
for _, signal in ipairs(signals) do
  redis.pcall('PUBLISH', WAKE, signal)
end
return was_paused
