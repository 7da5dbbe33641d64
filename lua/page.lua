#!lua flags=no-writes,allow-oom
-- page: entries of one index behind a position, which is a score and member and not a rank: so a listing
-- misses nothing that stays where it is, whatever is added or removed meanwhile.
--
-- KEYS  an index
-- ARGV  asc or desc, score and member of the position ('' and '' is the beginning), how many
-- Returns member, score, member, score, ...

local key, descending, score, member, count = KEYS[1], ARGV[1] == 'desc', ARGV[2], ARGV[3], tonumber(ARGV[4])

-- The first rank whose entry is not before the position; with `behind`, that is after it.
local function rank(behind)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call('ZRANGE', key, middle, middle)[1]
    if there < member or (behind and there == member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

if not descending then
  local from = score == '' and 0 or rank(true)
  return redis.call('ZRANGE', key, from, from + count - 1, 'WITHSCORES')
end
local behind = score == '' and redis.call('ZCARD', key) or rank(false)
if behind == 0 then
  return {}
end
local ascending = redis.call('ZRANGE', key, math.max(0, behind - count), behind - 1, 'WITHSCORES')
local reply = {}
for i = #ascending - 1, 1, -2 do
  reply[#reply + 1] = ascending[i]
  reply[#reply + 1] = ascending[i + 1]
end
return reply
