#!lua flags=allow-oom
-- claim: takes due jobs of some lanes under leases of one session.
--
-- KEYS  the globals, then for each lane its due indexes: high, normal, low, suspects
-- ARGV  session, first token, due_max, ahead_max, look_ahead_ms, suspect (1 or 0), bytes_max, the session's beat as it was told last,
--       then for each lane: queue, kind, and of its kind `max_attempts`, or `max_attempts weight kind_max attempts_cap` where
--       that says more: attempts of jobs that do not say, turns (1), most jobs in this claim (-), most attempts of any job (-)
-- Returns { now_us, next due_ms or '', damaged, the session's beat or 0, then for each job: record id, record, lease (see
--       includes/lease.lua) }, in the order in which they should start, those that are due first.
--
-- Takes nothing for a session with a lower beat than it was told, or none: the store has gone back in time, or others took the session
-- for lost. What waits here may run in its hand. A claim that takes jobs is a beat: it shows when it is lost.
-- Removes exactly what it returns (rule 5). Strict by priority over all lanes; within a priority the kinds share
-- by their weights, and the lanes of a kind alike. Records of more than bytes_max in all are cut; a larger one travels alone (rule 6).
-- A member that is none of ours or has a due time of 0 or below goes to the dirt, one without a
-- record to the orphans. An index that is none is passed over, so that it stops no other lane.
--
-- What is done for each job is written for speed, which is that of all jobs: one concatenation, no pattern where a
-- comparison does, no table of its own.
--- @include globals
--- @include clock
--- @include stage
--- @include member

local ARGS, PER_LANE, SET_ASIDE_MAX = 8, 3, 10000
local session, first_token = ARGV[1], tonumber(ARGV[2])
local due_max, ahead_max, look_ahead_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local suspect, bytes_max, told = ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8])
local beat, said = string.match(redis.call('HGET', SESSIONS, session) or '', '^(%d+)( .*)$')
beat = tonumber(beat or '0')

local lanes, queues = {}, {}
for i = 1, (#ARGV - ARGS) / PER_LANE do
  local at = ARGS + PER_LANE * (i - 1)
  local queue, kind = ARGV[at + 1], ARGV[at + 2]
  local lane = {
    queue = queue, kind = kind, words = queue .. ' ' .. kind, max = ARGV[at + 3], claimed = 0,
    -- How a record begins that says nothing of its attempts.
    head = '\31' .. queue .. '\31' .. (kind == queue and '' or kind) .. '\31',
  }
  if string.find(lane.max, ' ', 1, true) then
    local max, turns, room, cap = string.match(lane.max, '^(%d+) (%d+) (%S+) (%S+)$')
    lane.max, lane.turns, lane.room, lane.cap = max, tonumber(turns), tonumber(room), tonumber(cap)
  end
  for part = 1, 4 do
    lane[part] = KEYS[GLOBALS + 4 * (i - 1) + part]
  end
  lanes[i], queues[i] = lane, queue
end
if #lanes == 0 or beat < told then
  return { NOW_US, '', '0', digits(beat) }
end
local open_lanes = {}
for i, paused in ipairs(redis.call('SMISMEMBER', PAUSED, unpack(queues))) do
  if paused == 0 then
    open_lanes[#open_lanes + 1] = lanes[i]
  end
end

-- Entries that may be claimed, in the order in which they should start; one entry is one place in each list.
local from_lane, from_part, members, dues = {}, {}, {}, {}
-- Of an index, by key: how many of its first entries are among them, while they are its first without a gap; else false.
local first_of = {}

-- The kinds of the open lanes, in the order of the request, with their lanes. `room` is nil where a kind has no bound.
local kinds, by_kind, weighted = {}, {}, false
for _, lane in ipairs(open_lanes) do
  local kind = by_kind[lane.kind]
  if not kind then
    kind = { lanes = {}, weight = lane.turns or 1, room = lane.room, most = lane.room, claimed = 0 }
    by_kind[lane.kind], kinds[#kinds + 1] = kind, kind
    weighted = weighted or kind.weight > 1
  end
  kind.lanes[#kind.lanes + 1], lane.of = lane, kind
end

local damaged, suspected, unreadable = 0, false, {}

-- Entries of an index; none, and counted once, when somebody put something else there.
local function entries(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if not found.err then
    return found
  elseif not string.find(found.err, 'WRONGTYPE', 1, true) then
    error(found)
  elseif not unreadable[key] then
    unreadable[key], damaged = true, damaged + 1
  end
  return {}
end

-- Shares `want` among `open`: `take(one, ask)` takes up to `ask` from one of them and returns how many it got. Returns
-- how many that are in all, and who may have more, those first that were not asked in the last round.
local function share_out(open, want, take)
  local got = 0
  while got < want and #open > 0 do
    local turns = #open
    if weighted then
      turns = 0
      for _, one in ipairs(open) do
        turns = turns + (one.weight or 1)
      end
    end
    -- Rounded down, so that none begins a second turn before all had a first; the rest goes round again.
    local share, next_round, asked = math.max(1, math.floor((want - got) / turns)), {}, {}
    for _, one in ipairs(open) do
      local ask = math.min(share * (one.weight or 1), want - got)
      if ask <= 0 then
        next_round[#next_round + 1] = one
      else
        local taken = take(one, ask)
        got = got + taken
        if taken == ask then
          asked[#asked + 1] = one
        end
      end
    end
    for _, one in ipairs(asked) do
      next_round[#next_round + 1] = one
    end
    open = next_round
  end
  return got, open
end

-- One item of each list in turns, or as many as the list's weight says, while they last.
local function in_turns(lists)
  local all, turn = {}, 1
  while #lists > 0 do
    local longer = {}
    for _, list in ipairs(lists) do
      local weight = list.weight or 1
      for at = weight * (turn - 1) + 1, weight * turn do
        all[#all + 1] = list[at]
      end
      if list[weight * turn] then
        longer[#longer + 1] = list
      end
    end
    lists, turn = longer, turn + 1
  end
  return all
end

-- Adds entries of one part of a lane: members and due times in turns.
local function add(lane, part, found)
  local n = #members
  for i = 1, #found, 2 do
    n = n + 1
    from_lane[n], from_part[n], members[n], dues[n] = lane, part, found[i], found[i + 1]
  end
end

-- Adds those of several lanes, in turns.
local function add_in_turns(part, lists)
  local turns = {}
  for i, kind in ipairs(kinds) do
    local of_kind = {}
    for _, lane in ipairs(kind.lanes) do
      local found, list = lists[lane] or {}, {}
      for at = 1, #found, 2 do
        list[#list + 1] = { lane, found[at], found[at + 1] }
      end
      of_kind[#of_kind + 1] = list
    end
    turns[i] = in_turns(of_kind)
    turns[i].weight = kind.weight
  end
  for _, entry in ipairs(in_turns(turns)) do
    add(entry[1], part, { entry[2], entry[3] })
  end
end

-- Adds up to `want` entries between two due times from one part of all lanes, in turns; how many.
local function fair(part, from, to, want)
  local lists, open, filled = {}, {}, {}
  for _, kind in ipairs(kinds) do
    kind.open = kind.lanes
    if kind.room ~= 0 then
      open[#open + 1] = kind
    end
  end
  local function take_of_lane(lane, ask)
    local list = lists[lane]
    local found = entries('ZRANGEBYSCORE', lane[part], from, to, 'WITHSCORES', 'LIMIT', list and #list / 2 or 0, ask)
    if not list then
      lists[lane] = found
      filled[#filled + 1] = #found > 0 and lane or nil
    else
      local at = #list
      for i = 1, #found do
        list[at + i] = found[i]
      end
    end
    return #found / 2
  end
  local got = share_out(open, want, function(kind, ask)
    local taken = nil
    taken, kind.open = share_out(kind.open, math.min(ask, kind.room or ask), take_of_lane)
    kind.room = kind.room and kind.room - taken
    return taken
  end)
  for lane, list in pairs(lists) do
    local key = lane[part]
    if #list > 0 then
      first_of[key] = from == '-inf' and first_of[key] == nil and #list / 2
    end
  end
  if #filled == 1 then
    add(filled[1], part, lists[filled[1]])
  elseif got > 0 then
    add_in_turns(part, lists)
  end
  return got
end

local left = due_max
if suspect and left > 0 then
  suspected = fair(4, '-inf', NOW_TEXT, 1) > 0
  left = left - #members
end
for part = 1, 3 do
  left = left - fair(part, '-inf', NOW_TEXT, left)
end
left = ahead_max
for part = 1, 3 do
  left = left - fair(part, '(' .. NOW_TEXT, digits(NOW_MS + look_ahead_ms), left)
end

-- What leaves an index: the first so many where those are all that leave it, which is cheaper than each by name.
local leaving = {}
local function leave(n)
  local key = from_lane[n][from_part[n]]
  local list = leaving[key]
  if not list then
    list = {}
    leaving[key] = list
  end
  list[#list + 1] = members[n]
end

-- An entry that is not a job's: out of the index, kept for people to look at.
local function set_aside(n, where)
  local lane = from_lane[n]
  damaged = damaged + 1
  leave(n)
  zadd(where, NOW_TEXT, lane.queue .. ':' .. lane.kind .. ' ' .. dues[n] .. ' ' .. members[n])
end

local record_max = tonumber(redis.call('HGET', META, 'record_max') or '0')
local bounded = #members * record_max > bytes_max
local places, rids, bytes = {}, {}, 0
local byte, match, sub = string.byte, string.match, string.sub
for n, member in ipairs(members) do
  local rid = #member == 14 and member or member_parse(member)
  -- A positive number begins with a digit from 1 on, or is small.
  if not rid or (byte(dues[n]) <= 48 and tonumber(dues[n]) <= 0) then
    set_aside(n, DIRT)
  else
    bytes = bytes + (bounded and redis.call('HSTRLEN', JOBS, rid) or 0)
    if bytes > bytes_max and #rids > 0 then
      break
    end
    local k = #rids + 1
    places[k], rids[k] = n, rid
  end
end

-- attempts and id of a record; the two others are its lane's, its priority is among its options.
local RECORD = '^(%d*)\31[^\31]*\31[^\31]*\31([^\31]*)\31%w+\31%w*\31p?([hl]?)'
-- The same of one with a made id, from behind its lane on.
local PLAIN = '^\30%w*\31%w+\31%w*\31()'
local PRIORITIES = { 'h', 'n', 'l' }
-- Tokens follow each other: all but the last three digits are mostly those of the one before.
local thousands, thousands_text = nil, nil
local function token_text(token)
  local last = token % 1000
  if token - last ~= thousands then
    thousands = token - last
    thousands_text = thousands > 0 and digits(thousands / 1000)
  end
  return thousands_text and thousands_text .. string.format('%03d', last) or digits(token)
end
local lengths = {}
local function length_text(length)
  local text = digits(length)
  lengths[length] = text
  return text
end
local reply = { NOW_US, '', '0', '0' }
local running = stage(RUNNING, 'hash').set
local claimed, filled, shown = 0, #running, #reply
local whose, since = session .. ' ', ' ' .. NOW_TEXT .. ' '
for k, record in ipairs(hmget(JOBS, rids)) do
  local n, rid = places[k], rids[k]
  local lane, part, member, max, id, priority = from_lane[n], from_part[n], members[n], nil, nil, nil
  if record then
    local head = lane.head
    if sub(record, 1, #head) == head and match(record, PLAIN, #head + 1) then
      max, id, priority = '', '', PRIORITIES[part]
    end
    if not priority then
      max, id, priority = match(record, RECORD)
    end
  end
  if not max then
    set_aside(n, ORPHANS)
  else
    if max == '' then
      max = lane.max
    end
    if lane.cap and tonumber(max) > lane.cap then
      max = digits(lane.cap)
    end
    if priority == '' then
      priority = 'n'
    end
    if byte(id) == 30 then
      id = ''
    end
    local first, crashes = '1', '0'
    if member ~= rid then
      local _, attempts, crashed = member_parse(member)
      first, crashes = digits(attempts + 1), digits(crashed)
    end
    local length = #record
    local lease = whose .. token_text(first_token + claimed) .. ' ' .. first .. ' ' .. max .. ' ' .. crashes .. ' ' .. dues[n] .. ' '
      .. sub(member, 1, 14) .. since .. member .. ' ' .. lane.words .. ' ' .. priority .. ' ' .. (lengths[length] or length_text(length)) .. ' ' .. id
    leave(n)
    running[filled + 1], running[filled + 2] = rid, lease
    filled = filled + 2
    lane.claimed, lane.of.claimed = lane.claimed + 1, lane.of.claimed + 1
    reply[shown + 1], reply[shown + 2], reply[shown + 3] = rid, record, lease
    shown, claimed = shown + 3, claimed + 1
  end
end
for key, list in pairs(leaving) do
  if first_of[key] == #list then
    stage(key, 'zset').first = #list
  else
    stage(key, 'zset').del = list
  end
end
if claimed > 0 then
  hincr(HOLDERS, session, claimed)
  if said then
    beat = beat + 1
    hset(SESSIONS, session, digits(beat) .. said)
  end
  for _, lane in ipairs(lanes) do
    if lane.claimed > 0 then
      hincr(TOTALS, lane.queue .. ':running', lane.claimed)
    end
  end
end
flush()
if damaged > 0 then
  redis.call('ZREMRANGEBYRANK', ORPHANS, 0, -SET_ASIDE_MAX - 1)
  redis.call('ZREMRANGEBYRANK', DIRT, 0, -SET_ASIDE_MAX - 1)
end

local next_due = nil
for _, lane in ipairs(open_lanes) do
  -- A kind of which no more may be taken is not waited for.
  local kind = lane.of
  for part = 1, kind.claimed == kind.most and 0 or (suspect and not suspected) and 4 or 3 do
    local head = tonumber(entries('ZRANGE', lane[part], 0, 0, 'WITHSCORES')[2])
    if head and (not next_due or head < next_due) then
      next_due = head
    end
  end
end
reply[2] = next_due and digits(next_due) or ''
reply[3] = digits(damaged)
reply[4] = digits(beat)
return reply
