#!lua flags=allow-oom
-- log: writes what running jobs print, and how far they have come. Each text replaces what that attempt had said so far.
--
-- KEYS  the globals
-- ARGV  for each log: record id, session, token, attempt, text, progress (`percent message`, or '' to leave what is there)
-- Returns a string with one character a log: D done, S stale
--
-- A late log is answered and not counted: the settlement that follows it is.
-- The logs of a job's last 20 attempts are kept; `logs` lists the attempts under the record id itself. Behind a line break there
-- is the job's progress, if it has told: `session token attempt time percent message`, the time in microseconds.
--- @include globals
--- @include clock
--- @include stage
--- @include lease

local ATTEMPTS_KEPT, PER_LOG = 20, 6
local answers, lists = {}, {}

local function list_of(rid)
  local list = lists[rid]
  if not list then
    local attempts, progress = string.match(redis.call('HGET', LOGS, rid) or '', '^([^\n]*)\n?(.*)$')
    list = { attempts = {}, progress = progress }
    for attempt in string.gmatch(attempts, '%d+') do
      table.insert(list.attempts, attempt)
    end
    lists[rid] = list
  end
  return list
end

local function write(lease, attempt, text, progress)
  local list, listed = list_of(lease.rid), false
  for _, known in ipairs(list.attempts) do
    listed = listed or known == attempt
  end
  if not listed then
    table.insert(list.attempts, attempt)
    if #list.attempts > ATTEMPTS_KEPT then
      hdel(LOGS, lease.rid .. ':' .. table.remove(list.attempts, 1))
    end
  end
  if progress ~= '' then
    list.progress = lease.session .. ' ' .. lease.token .. ' ' .. attempt .. ' ' .. NOW_US .. ' ' .. progress
  end
  if not listed or progress ~= '' then
    hset(LOGS, lease.rid, table.concat(list.attempts, ' ') .. (list.progress ~= '' and '\n' .. list.progress or ''))
  end
  hset(LOGS, lease.rid .. ':' .. attempt, text)
end

for i = 1, #ARGV, PER_LOG do
  local rid = ARGV[i]
  local text = redis.call('HGET', RUNNING, rid)
  local lease = text and lease_parse(rid, text)
  if lease and lease.session == ARGV[i + 1] and lease.token == ARGV[i + 2] then
    write(lease, ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
    answers[#answers + 1] = 'D'
  else
    answers[#answers + 1] = 'S'
  end
end
flush()
return table.concat(answers)
