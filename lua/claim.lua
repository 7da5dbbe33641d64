#!lua flags=allow-oom
-- claim: takes due jobs of some lanes under leases of one session.
--
-- KEYS  the globals, then for each lane its due indexes: high, normal, low, suspects
-- ARGV  session, first token, due_max, ahead_max, look_ahead_ms, suspect (1 or 0), bytes_max,
--       then for each lane: queue, kind, max_attempts for jobs that do not say
-- Returns { now_us, next due_ms or '', damaged, then for each job: record id, record, attempt,
--       max_attempts, crashes, due_ms }, in the order in which they should start, those that are due first.
--
-- Removes exactly what it returns (rule 5). Strict by priority over all lanes; within a priority the lanes share
-- alike. Records of more than bytes_max in all are cut; a larger one travels alone (rule 6).
-- A member that is none of ours or has a due time of 0 or below goes to the dirt, one without a
-- record to the orphans.
--- @include globals
--- @include clock
--- @include stage
--- @include member

local ARGS, PER_LANE, SET_ASIDE_MAX = 7, 3, 10000
local session, first_token = ARGV[1], tonumber(ARGV[2])
local due_max, ahead_max, look_ahead_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local suspect, bytes_max = ARGV[6] == '1', tonumber(ARGV[7])

local lanes, queues = {}, {}
for i = 1, (#ARGV - ARGS) / PER_LANE do
  local at = ARGS + PER_LANE * (i - 1)
  local queue, kind = ARGV[at + 1], ARGV[at + 2]
  local lane = { queue = queue, kind = kind, max = ARGV[at + 3] }
  for part = 1, 4 do
    lane[part] = KEYS[GLOBALS + 4 * (i - 1) + part]
  end
  lanes[i], queues[i] = lane, queue
end
if #lanes == 0 then
  return { NOW_US, '', '0' }
end
local open_lanes = {}
for i, paused in ipairs(redis.call('SMISMEMBER', PAUSED, unpack(queues))) do
  if paused == 0 then
    open_lanes[#open_lanes + 1] = lanes[i]
  end
end

-- Up to `want` entries between two due times from one part of all lanes, in turns.
local function fair(part, from, to, want, into)
  local lists, open, got = {}, open_lanes, 0
  while got < want and #open > 0 do
    local share, still = math.ceil((want - got) / #open), {}
    for _, lane in ipairs(open) do
      local ask = math.min(share, want - got)
      if ask > 0 then
        local list = lists[lane] or {}
        lists[lane] = list
        local found = redis.call('ZRANGEBYSCORE', lane[part], from, to, 'WITHSCORES', 'LIMIT', #list, ask)
        for i = 1, #found, 2 do
          list[#list + 1] = { lane = lane, key = lane[part], member = found[i], due = found[i + 1] }
        end
        got = got + #found / 2
        if #found == 2 * ask then
          still[#still + 1] = lane
        end
      end
    end
    open = still
  end
  local turn, more = 1, got > 0
  while more do
    more = false
    for _, lane in ipairs(open_lanes) do
      local entry = lists[lane] and lists[lane][turn]
      if entry then
        into[#into + 1] = entry
        more = true
      end
    end
    turn = turn + 1
  end
  return got
end

local found, damaged, suspected = {}, 0, false
local left = due_max
if suspect and left > 0 then
  local got = fair(4, '-inf', digits(NOW_MS), 1, found)
  suspected = got > 0
  left = left - got
end
for part = 1, 3 do
  left = left - fair(part, '-inf', digits(NOW_MS), left, found)
end
left = ahead_max
for part = 1, 3 do
  left = left - fair(part, '(' .. digits(NOW_MS), digits(NOW_MS + look_ahead_ms), left, found)
end

-- An entry that is not a job's: out of the index, kept for people to look at.
local function set_aside(entry, where)
  damaged = damaged + 1
  zrem(entry.key, entry.member)
  zadd(where, digits(NOW_MS), entry.lane.queue .. ':' .. entry.lane.kind .. ' ' .. entry.due .. ' ' .. entry.member)
end

local record_max = tonumber(redis.call('HGET', META, 'record_max') or '0')
local bounded = #found * record_max > bytes_max
local wanted, rids, bytes = {}, {}, 0
for _, entry in ipairs(found) do
  local rid, attempt, crashes = member_parse(entry.member)
  if not rid or tonumber(entry.due) <= 0 then
    set_aside(entry, DIRT)
  else
    bytes = bytes + (bounded and redis.call('HSTRLEN', JOBS, rid) or 0)
    if bytes > bytes_max and #wanted > 0 then
      break
    end
    entry.rid, entry.attempt, entry.crashes = rid, attempt, crashes
    wanted[#wanted + 1], rids[#rids + 1] = entry, rid
  end
end

local reply = { NOW_US, '', '0' }
local records = hmget(JOBS, rids)
local claimed, token = 0, first_token
for i, entry in ipairs(wanted) do
  local record = records[i]
  local max, id, priority = nil, nil, nil
  if record then
    max, id, priority = string.match(record, '^(%d*)\31[^\31]*\31[^\31]*\31([^\31]*)\31%w+\31%w*\31p?([hl]?)')
  end
  if not max then
    set_aside(entry, ORPHANS)
  else
    local lane, rid, attempt = entry.lane, entry.rid, entry.attempt + 1
    max = max == '' and lane.max or max
    zrem(entry.key, entry.member)
    hset(RUNNING, rid, session .. ' ' .. digits(token) .. ' ' .. attempt .. ' ' .. max .. ' ' .. entry.crashes .. ' '
      .. digits(NOW_MS) .. ' ' .. entry.due .. ' ' .. entry.member .. ' ' .. lane.queue .. ' ' .. lane.kind .. ' '
      .. (priority == '' and 'n' or priority) .. ' ' .. #record .. ' '
      .. (string.sub(id, 1, 1) == '\30' and '' or id))
    hincr(TOTALS, lane.queue .. ':running', 1)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = rid, record, attempt
    reply[n + 4], reply[n + 5], reply[n + 6] = max, entry.crashes, entry.due
    claimed, token = claimed + 1, token + 1
  end
end
if claimed > 0 then
  hincr(HOLDERS, session, claimed)
end
flush()
if damaged > 0 then
  redis.call('ZREMRANGEBYRANK', ORPHANS, 0, -SET_ASIDE_MAX - 1)
  redis.call('ZREMRANGEBYRANK', DIRT, 0, -SET_ASIDE_MAX - 1)
end

local next_due = nil
for _, lane in ipairs(open_lanes) do
  for part = 1, (suspect and not suspected) and 4 or 3 do
    local head = tonumber(redis.call('ZRANGE', lane[part], 0, 0, 'WITHSCORES')[2])
    if head and (not next_due or head < next_due) then
      next_due = head
    end
  end
end
reply[2] = next_due and digits(next_due) or ''
reply[3] = digits(damaged)
return reply
