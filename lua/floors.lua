#!lua flags=allow-oom
-- floors: numbers that must not be below what is in use already, and are raised when they are.
--
-- KEYS  the globals, then the quarantine
-- ARGV  1 to mend else 0, the largest order in use, the largest record in bytes
-- Returns for each finding: check, place, message, what was done or ''
--
-- Record ids are the sequence's: were it behind, a new job would take the place of an old one.
--- @include globals
--- @include clock
--- @include stage
--- @include finding

local order, bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local sequence = redis.call('GET', SEQ)
local raised = not (sequence and tonumber(sequence) and tonumber(sequence) >= order) and order > 0
if raised then
  found('sequence', 'seq', (sequence or 'nothing') .. ' is behind the last order in use, ' .. digits(order), 'raised to it')
end
local record_max = redis.call('HGET', META, 'record_max') or '0'
if not (tonumber(record_max) and tonumber(record_max) >= bytes) then
  hset(META, 'record_max', digits(bytes))
  found('counter', 'meta record_max', record_max .. ' is less than a record of ' .. digits(bytes) .. ' bytes', 'raised to it')
end
if MENDS and #findings > 0 then
  flush()
  if raised then
    redis.call('SET', SEQ, digits(order))
  end
end
return findings
