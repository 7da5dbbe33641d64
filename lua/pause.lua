#!lua flags=allow-oom
-- pause: lets claims leave a queue alone, also one that has no job yet. What is held is recalled by another step.
--
-- KEYS  the globals
-- ARGV  queue
-- Returns 1 when it was not paused before, else 0
--- @include globals

return redis.call('SADD', PAUSED, ARGV[1])
