#!lua flags=allow-oom
-- identity: the store's name, made at its first use.
--
-- KEYS  the globals
-- ARGV  the name that it gets if it has none
-- Returns the name
--- @include globals

redis.call('HSETNX', META, 'store_id', ARGV[1])
return redis.call('HGET', META, 'store_id')
