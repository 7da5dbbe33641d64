#!lua flags=no-writes,allow-oom
-- page: the next entries of some indexes together, behind a position, which is a score and member and not a
-- rank: so a listing misses nothing that stays where it is, whatever is added or removed meanwhile.
--
-- KEYS  the indexes
-- ARGV  asc or desc, score and member of the position ('' and '' is the beginning), how many
-- Returns 1 when there are more behind them else 0, then member, score, member, score, ... in order
--
-- Reads little more than it returns: a few of each index at first, twice as many of one whenever it runs out.

local descending, score, member, count = ARGV[1] == 'desc', ARGV[2], ARGV[3], tonumber(ARGV[4])

-- The first rank of an index whose entry is not before the position; with `behind`, that is after it.
local function rank(key, behind)
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

-- One index as it is read: entries from rank `next` on are not in `list` yet; `head` and `due` are its
-- first entry that was not returned.
local function show(index)
  index.head, index.due = index.list[index.place], tonumber(index.list[index.place + 1])
  return index.head ~= nil
end

local function fetch(index)
  local first, last = index.next, index.next + index.chunk - 1
  index.list = descending and redis.call('ZRANGE', index.key, first, last, 'REV', 'WITHSCORES')
    or redis.call('ZRANGE', index.key, first, last, 'WITHSCORES')
  index.next, index.place, index.chunk = last + 1, 1, math.min(2 * index.chunk, count + 1)
  return show(index)
end

-- False at the end of the index.
local function advance(index)
  index.place = index.place + 2
  return show(index) or (index.next < index.size and fetch(index))
end

local function before(a, b)
  if descending then
    a, b = b, a
  end
  return a.due < b.due or (a.due == b.due and a.head < b.head)
end

-- A heap of the indexes: the one with the next entry is the first.
local heap = {}
local function sink(at)
  while true do
    local least = at
    for child = 2 * at, 2 * at + 1 do
      if heap[child] and before(heap[child], heap[least]) then
        least = child
      end
    end
    if least == at then
      return
    end
    heap[at], heap[least] = heap[least], heap[at]
    at = least
  end
end

local waiting = {}
for _, key in ipairs(KEYS) do
  local size = redis.call('ZCARD', key)
  local next = 0
  if size > 0 and score ~= '' then
    next = descending and size - rank(key, false) or rank(key, true)
  end
  if next < size then
    waiting[#waiting + 1] = { key = key, size = size, next = next }
  end
end
for _, index in ipairs(waiting) do
  index.chunk = math.max(1, math.ceil(count / #waiting))
  fetch(index)
  heap[#heap + 1] = index
end
for at = math.floor(#heap / 2), 1, -1 do
  sink(at)
end

local reply = { 0 }
while heap[1] and #reply < 2 * count do
  local index = heap[1]
  reply[#reply + 1] = index.head
  reply[#reply + 1] = index.list[index.place + 1]
  if not advance(index) then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  sink(1)
end
reply[1] = heap[1] and 1 or 0
return reply
