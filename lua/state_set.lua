#!lua
-- state_set: sets an entry of a bucket, whatever is there.
--
-- KEYS  the globals, then the bucket's entries
-- ARGV  the bucket, the key, the value
-- Returns its version
-- Errors Redis itself refuses with OOM when it is at its memory limit.
--- @include globals
--- @include clock
--- @include stage
--- @include state

local key, field = KEYS[GLOBALS + 1], ARGV[2]
expect('hash', key)
expect('hash', HOLDINGS)
local version = digits(sequence_read() + 1)
local bucket = bucket_open(ARGV[1], key)
bucket_put(bucket, field, redis.call('HGET', key, field), version, ARGV[3])
bucket_close(bucket)
flush()
redis.call('SET', SEQ, version)
return version
