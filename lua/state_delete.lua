#!lua flags=allow-oom
-- state_delete: deletes entries of a bucket: the one with the key, or some.
--
-- KEYS  the globals, then the bucket's entries
-- ARGV  the bucket, then the key; or '' and at most how many entries
-- Returns { how many it deleted, how many are left }
--- @include globals
--- @include clock
--- @include stage
--- @include state

local key = KEYS[GLOBALS + 1]
expect('hash', key)
expect('hash', HOLDINGS)
local bucket, deleted = bucket_open(ARGV[1], key), 0
local function delete(field, text)
  if text then
    bucket_put(bucket, field, text)
    deleted = deleted + 1
  end
end

if ARGV[2] ~= '' then
  delete(ARGV[2], redis.call('HGET', key, ARGV[2]))
else
  -- Where a hash is kept small it comes whole, whatever was asked for; it is small then.
  local cursor, seen = '0', {}
  repeat
    local step = redis.call('HSCAN', key, cursor, 'COUNT', ARGV[3])
    cursor = step[1]
    for i = 1, #step[2], 2 do
      if deleted < tonumber(ARGV[3]) and not seen[step[2][i]] then
        seen[step[2][i]] = true
        delete(step[2][i], step[2][i + 1])
      end
    end
  until cursor == '0' or deleted >= tonumber(ARGV[3])
end
local left = redis.call('HLEN', key) - deleted
bucket_close(bucket)
flush()
return { deleted, left }
