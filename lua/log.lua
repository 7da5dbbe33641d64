#!lua flags=allow-oom
-- log: writes what running jobs print. Each text replaces what that attempt had said so far.
--
-- KEYS  the globals
-- ARGV  for each log: record id, session, token, attempt, text
-- Returns a string with one character a log: D done, S stale
--
-- A late log is answered and not counted: the settlement that follows it is.
-- The logs of a job's last 20 attempts are kept; `logs` lists the attempts under the record id itself.
--- @include globals
--- @include stage
--- @include lease

local ATTEMPTS_KEPT, PER_LOG = 20, 5
local answers, lists = {}, {}

local function attempts_of(rid)
  if not lists[rid] then
    lists[rid] = {}
    for attempt in string.gmatch(redis.call('HGET', LOGS, rid) or '', '%d+') do
      table.insert(lists[rid], attempt)
    end
  end
  return lists[rid]
end

local function write(rid, attempt, text)
  local attempts, listed = attempts_of(rid), false
  for _, known in ipairs(attempts) do
    listed = listed or known == attempt
  end
  if not listed then
    table.insert(attempts, attempt)
    if #attempts > ATTEMPTS_KEPT then
      hdel(LOGS, rid .. ':' .. table.remove(attempts, 1))
    end
    hset(LOGS, rid, table.concat(attempts, ' '))
  end
  hset(LOGS, rid .. ':' .. attempt, text)
end

for i = 1, #ARGV, PER_LOG do
  local rid = ARGV[i]
  local text = redis.call('HGET', RUNNING, rid)
  local lease = text and lease_parse(rid, text)
  if lease and lease.session == ARGV[i + 1] and lease.token == ARGV[i + 2] then
    write(rid, ARGV[i + 3], ARGV[i + 4])
    answers[#answers + 1] = 'D'
  else
    answers[#answers + 1] = 'S'
  end
end
flush()
return table.concat(answers)
