-- Putting jobs into their lanes' due indexes, and telling runners when that makes one claimable earlier.
local heads = {}

-- Stages a job for index `key` of a lane, and remembers the earliest for `publish_heads`.
local function wait_in(key, lane, due, member)
  zadd(key, due, member)
  local head = heads[key]
  local number = tonumber(due)
  if not head then
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    heads[key] = { lane = lane, before = tonumber(first[2]), due = number }
  elseif number < head.due then
    head.due = number
  end
end

-- Call after `flush`. A job behind the head wakes nobody: runners know when the head is due.
local function publish_heads()
  for _, head in pairs(heads) do
    if not head.before or head.due < head.before then
      redis.pcall('PUBLISH', WAKE, 'due ' .. head.lane .. ' ' .. string.format('%.0f', head.due))
    end
  end
  heads = {}
end
