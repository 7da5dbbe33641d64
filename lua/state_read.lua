#!lua flags=no-writes,allow-oom
-- state_read: entries of a bucket at one moment, and what the bucket holds.
--
-- KEYS  the globals, then the bucket's entries
-- ARGV  the bucket, then keys
-- Returns { entries, bytes, then for each key: its `version value`, or nothing }
--- @include globals
--- @include clock
--- @include stage
--- @include state

local keys = {}
for i = 2, #ARGV do
  keys[i - 1] = ARGV[i]
end
local entries, bytes = holding_read(ARGV[1])
local reply = { digits(entries), digits(bytes) }
for i, text in ipairs(hmget(KEYS[GLOBALS + 1], keys)) do
  reply[i + 2] = text or ''
end
return reply
