#!lua flags=allow-oom
-- aside: moves a whole key out of the way.
--
-- KEYS  the key, its new name
-- ARGV  the type that it was seen to have, 1 when it was seen to go by itself after a time else 0
-- Returns moved; gone when it is not what was seen; taken when there is a key of the new name

if redis.call('TYPE', KEYS[1]).ok ~= ARGV[1] or (redis.call('PTTL', KEYS[1]) >= 0) ~= (ARGV[2] == '1') then
  return 'gone'
end
return redis.call('RENAMENX', KEYS[1], KEYS[2]) == 1 and 'moved' or 'taken'
