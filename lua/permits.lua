#!lua flags=no-writes,allow-oom
-- permits: what the user who asks may not do, of what the store's scripts and calls do.
--
-- KEYS  none: nothing is read, and a user who may not use our keys must be told so too
-- ARGV  a key of ours, the channel of wake-ups, then commands that take a key, '', commands that take none, '', commands that take
--       the channel
-- Returns those that are refused, in their order

local refused, part = {}, 1
-- Twice: one of them takes two keys, and a word more disturbs none.
local first = { { ARGV[1], ARGV[1] }, {}, { ARGV[2] } }
for i = 3, #ARGV do
  if ARGV[i] == '' then
    part = part + 1
  else
    -- A server that does not know the command, or cannot tell, refuses nothing here: the call itself will show it.
    local known, permitted = pcall(redis.acl_check_cmd, ARGV[i], unpack(first[part]))
    if known and not permitted then
      refused[#refused + 1] = ARGV[i]
    end
  end
end
return refused
