#!lua flags=allow-oom
-- sift: looks at what belongs to jobs beside their place: pasts, logs, recalls and ids, and mends what is wrong.
--
-- KEYS  the globals, then the quarantine
-- ARGV  1 to mend else 0, what (`past`, `logs`, `recalls` or `ids`), then fields of that hash
-- Returns for each finding: check, place, message, what was done or ''
--- @include globals
--- @include clock
--- @include stage
--- @include record
--- @include finish
--- @include finding

local function has_record(rid)
  return redis.call('HEXISTS', JOBS, rid) == 1
end

local function sift_past(rid, text)
  if not has_record(rid) then
    set_aside(PAST, 'past', rid, text)
    found('orphan-past', 'past of ' .. rid, 'its job has no record', 'set aside')
  end
end

-- A log's field is `record id:attempt`; the record id alone lists the attempts.
local function sift_log(field, text)
  local rid, attempt = string.match(field, '^(%d+):?(%d*)$')
  local message = nil
  if not rid or not has_record(rid) then
    message = 'its job has no record'
  elseif attempt ~= '' then
    local attempts = string.match(redis.call('HGET', LOGS, rid) or '', '^[^\n]*')
    message = not string.find(' ' .. attempts .. ' ', ' ' .. attempt .. ' ', 1, true) and 'its job does not list it' or nil
  end
  if message then
    set_aside(LOGS, 'logs', field, text)
    found('orphan-log', 'log ' .. field, message, 'set aside')
  end
end

local function sift_recall(rid, text)
  if redis.call('HEXISTS', RUNNING, rid) == 0 then
    set_aside(RECALLS, 'recalls', rid, text)
    found('orphan-recall', 'recall of ' .. rid, 'no runner has its job', 'set aside')
  end
end

local function sift_id(field, value)
  local place, id = 'id ' .. field, string.match(field, '^[^/]*/(.*)$')
  local forget = string.match(value, '^~%a %d+ (%d+)$')
  local text = not forget and redis.call('HGET', JOBS, value)
  local job = text and record_parse(value, text)
  if forget then
    if not redis.call('ZSCORE', MEMORY, field) then
      zadd(MEMORY, forget, field)
      hincr(META, 'id_bytes', 2 * #field + ID_COST)
      found('unlisted-id', place, 'it is remembered and would never be forgotten', 'it is forgotten in time')
    end
  elseif not (job and job.id ~= '' and job.queue .. '/' .. job.id == field) then
    set_aside(IDS, 'ids', field, value)
    found('wrong-id', place, job and 'it leads to another job' or 'it leads to no job', 'set aside')
    return
  end
  local sequence = string.match(id or '', '^([1-9]%d*)%-%w%w%w%w%w$')
  if sequence and #sequence <= 14 and redis.call('HGET', META, 'lookalikes') ~= '1' then
    hset(META, 'lookalikes', '1')
    found('unlisted-id', place, 'a new job might get the same id', 'new ids keep clear of it')
  end
end

local SIFT = { past = { PAST, sift_past }, logs = { LOGS, sift_log }, recalls = { RECALLS, sift_recall }, ids = { IDS, sift_id } }
local key, sift = SIFT[ARGV[2]][1], SIFT[ARGV[2]][2]
for i = 3, #ARGV do
  local value = redis.call('HGET', key, ARGV[i])
  if value then
    sift(ARGV[i], value)
  end
end
if MENDS and #findings > 0 then
  expect('hash', QUARANTINE)
  flush()
end
return findings
