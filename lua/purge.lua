#!lua flags=allow-oom
-- purge: deletes jobs that wait in a queue, up to a bound. Their ids are free.
--
-- KEYS  the globals, then seven for each lane of the queue (see includes/lanes.lua)
-- ARGV  most jobs, most bytes of records to read; lanes
-- Returns how many were deleted; fewer than were allowed does not mean that none is left, 0 does
--- @include globals
--- @include clock
--- @include stage
--- @include lease
--- @include member
--- @include record
--- @include lanes
--- @include finish

local record_max = tonumber(redis.call('HGET', META, 'record_max') or '0')
local left = math.min(tonumber(ARGV[1]), math.max(1, math.floor(tonumber(ARGV[2]) / math.max(record_max, 1))))
local lanes = lanes_read(3)
local purged = 0

local function purge(lane, key)
  local rids = {}
  for _, member in ipairs(redis.call('ZRANGE', key, 0, left - 1)) do
    local rid = member_parse(member)
    zrem(key, member)
    purged, left = purged + 1, left - 1
    if rid then
      rids[#rids + 1] = rid
      hdel(JOBS, rid)
      hdel(PAST, rid)
      drop_logs(rid)
    end
  end
  for i, text in ipairs(hmget(JOBS, rids)) do
    local record = text and record_parse(rids[i], text)
    if record then
      drop_id(lane.queue, record.id, rids[i])
    end
  end
end

for _, lane in ipairs(lanes) do
  for part = 1, 4 do
    if left > 0 then
      purge(lane, lane[part])
    end
  end
end
flush()
return purged
