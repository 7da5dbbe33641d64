#!lua
-- enqueue: takes a batch of jobs, all or none. Self-contained: programs in any language run this one
-- file with their own Redis client (docs/protocol.md).
--
-- KEYS   1 seq  2 jobs  3 past  4 running  5 ids  6 lanes  7 totals  8 meta  9 logs  10 once:<token>, all of
--        the form `<namespace>:{<shard>}:<name>`; then for each lane its due indexes:
--        due:<queue>:<kind>:h, :n, :l and :s
-- ARGV   1 protocol, '1'   2 five random characters of a-z 0-9, for generated ids
--        3 once token: repeat a call of which the reply was lost with the same token and it
--          answers what it answered; '' for none   4 how many lanes; then queue, kind for each
--        then eleven for each job: lane (1 is the first), id or '', priority (high, normal, low or ''),
--        due ('+<ms>' from now, '@<ms since 1970>' or '' for now; with '~<age in ms>' behind it, up to 30 days, "now" is so long
--        ago, for a job that was accepted elsewhere then), max_attempts or '', timeout_ms or '', traceparent or '', meta ('' or a JSON array of pairs of strings), source, on_conflict (keep,
--        replace, reschedule, reject or ''), payload
-- Returns for each job: created|kept|replaced|rescheduled|conflict, id, state, due_ms
-- Errors HOURHAND_PROTOCOL, HOURHAND_INVALID <index of the job from 0> <message>, HOURHAND_WRONGTYPE; nothing is
--        written. Redis itself refuses with OOM when it is at its memory limit.
--
-- The record, written once: `max_attempts queue kind id enqueued delay options payload`, joined by \31, the payload
-- raw to the end. kind is empty when it is the queue's name; a generated id is \30 and its random part (the rest is
-- the record id); enqueued (ms since 1970) and delay (ms, empty for 0) are in base 36; options are `p<h|l>`,
-- `t<timeout_ms>`, `w<traceparent>`, `m<meta>`, `s<source>`, joined by \30.

local SEQ, JOBS, PAST, RUNNING, IDS, LANES, TOTALS, META, LOGS, ONCE =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local GLOBALS, HEAD, PER_JOB, CHUNK, ONCE_SECONDS = 10, 4, 11, 1000, 20
local EVENTS_FIRST, EVENTS_LAST = 10, 40
local BATCH_MAX, PAYLOAD_MAX, META_MAX, DELAY_MAX, AGE_MAX = 250, 1048576, 4096, 3155760000000, 2592000000
local ATTEMPTS_MAX, TIMEOUT_MAX, BATCH_PAYLOAD_MAX = 1000, 86400000, 262144
local PARTS = { high = 1, normal = 2, low = 3, [''] = 2 }
local LETTERS = { 'h', 'n', 'l', 's' }
local STATES = { c = 'completed', x = 'cancelled', d = 'dead' }
local CONFLICTS = { keep = true, replace = true, reschedule = true, reject = true }

local clock = redis.call('TIME')
local NOW_MS = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local NOW_US = clock[1] .. string.format('%06d', tonumber(clock[2]))

-- A whole number as text. Jobs of a batch have much in common: what was made once is not made again, and small numbers, for
-- which integers of 32 bits suffice, are made the faster way.
local texts, texts36 = {}, {}
local function digits(number)
  local text = texts[number]
  if not text then
    text = string.format(number < 2147483648 and '%d' or '%.0f', number)
    texts[number] = text
  end
  return text
end

local function base36(number)
  local known, asked = texts36[number], number
  if known then
    return known
  end
  local text = ''
  while number > 0 do
    local digit = number % 36
    text = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', digit + 1, digit + 1) .. text
    number = (number - digit) / 36
  end
  texts36[asked] = text
  return text
end

local function fail(tag, text)
  error({ err = tag .. ' ' .. text })
end

local function invalid(index, text)
  fail('HOURHAND_INVALID', index .. ' ' .. text)
end

local function is_name(text)
  return #text <= 128 and string.find(text, '^[A-Za-z0-9_][A-Za-z0-9_.-]*$') ~= nil
end

-- What of one UTF-8 character starts at `at`: its length and code point; nil when it is none.
local function utf8_at(text, at)
  local a, b, c, d = string.byte(text, at, at + 3)
  local function tail(x)
    return x and x >= 0x80 and x < 0xC0
  end
  if a < 0x80 then
    return 1, a
  elseif a >= 0xC2 and a < 0xE0 and tail(b) then
    return 2, (a - 0xC0) * 64 + b - 0x80
  elseif a >= 0xE0 and a < 0xF0 and tail(b) and tail(c) then
    local code = (a - 0xE0) * 4096 + (b - 0x80) * 64 + c - 0x80
    if code >= 0x800 and (code < 0xD800 or code > 0xDFFF) then
      return 3, code
    end
  elseif a >= 0xF0 and a < 0xF5 and tail(b) and tail(c) and tail(d) then
    local code = (a - 0xF0) * 262144 + (b - 0x80) * 4096 + (c - 0x80) * 64 + d - 0x80
    if code >= 0x10000 and code <= 0x10FFFF then
      return 4, code
    end
  end
end

local function is_space(code)
  return code == 0x20 or code == 0xA0 or code == 0x1680 or (code >= 0x2000 and code <= 0x200A) or code == 0x2028
    or code == 0x2029 or code == 0x202F or code == 0x205F or code == 0x3000
end

local function is_id(text)
  if #text > 200 then
    return false
  end
  if not string.find(text, '[^A-Za-z0-9_.:/-]') then
    return true
  end
  local at = 1
  while at <= #text do
    local length, code = utf8_at(text, at)
    if not length or code < 0x20 or (code >= 0x7F and code < 0xA0) then
      return false
    end
    if is_space(code) and (at == 1 or at + length > #text) then
      return false
    end
    at = at + length
  end
  return true
end

local function whole(text, from, to)
  if #text > 16 or string.find(text, '%D') then
    return nil
  end
  local number = tonumber(text)
  return number and number >= from and number <= to and number or nil
end

-- JSON text escapes what is below a space and nothing else: DEL stands in it as it is.
local function is_meta(text)
  if string.find(text, '[%z\1-\31]') then
    return false
  end
  local ok, pairs_of = pcall(cjson.decode, text)
  if not ok or type(pairs_of) ~= 'table' or string.sub(text, 1, 1) ~= '[' then
    return false
  end
  local bytes = 0
  for _, pair in ipairs(pairs_of) do
    if type(pair) ~= 'table' or #pair ~= 2 or type(pair[1]) ~= 'string' or type(pair[2]) ~= 'string' or pair[1] == '' then
      return false
    end
    bytes = bytes + #pair[1] + #pair[2]
  end
  return bytes <= META_MAX
end

-- Lanes.
if ARGV[1] ~= '1' then
  fail('HOURHAND_PROTOCOL', 'unknown protocol ' .. tostring(ARGV[1]) .. ': expected 1')
end
if not string.find(ARGV[2] or '', '^[a-z0-9][a-z0-9][a-z0-9][a-z0-9][a-z0-9]$') then
  fail('HOURHAND_PROTOCOL', 'the random part of ids is 5 characters of a-z 0-9')
end
local lane_count = whole(ARGV[HEAD] or '', 1, BATCH_MAX)
local first = lane_count and HEAD + 2 * lane_count + 1
if not lane_count or #KEYS ~= GLOBALS + 4 * lane_count or #ARGV < first or (#ARGV - first + 1) % PER_JOB ~= 0
  or #ARGV - first + 1 > BATCH_MAX * PER_JOB then
  fail('HOURHAND_PROTOCOL', 'expected ' .. GLOBALS .. ' keys and 4 a lane, and ' .. PER_JOB .. ' arguments for each of 1 to '
    .. BATCH_MAX .. ' jobs')
end
local prefix = string.match(SEQ, '^(.*:{[^}]*}:)seq$')
local WAKE = prefix and prefix .. 'wake'
local lanes = {}
for i = 1, lane_count do
  local queue, kind = ARGV[HEAD + 2 * i - 1], ARGV[HEAD + 2 * i]
  local lane = { queue = queue, kind = kind, name = queue .. ':' .. kind, new = 0 }
  for part = 1, 4 do
    lane[part] = KEYS[GLOBALS + 4 * (i - 1) + part]
    if not prefix or lane[part] ~= prefix .. 'due:' .. lane.name .. ':' .. LETTERS[part] then
      fail('HOURHAND_PROTOCOL', 'key ' .. lane[part] .. ' does not fit lane ' .. i)
    end
  end
  lanes[i] = lane
end

-- Jobs.
local function option(options, letter, text)
  if text == '' then
    return options
  end
  return options .. (options == '' and '' or '\30') .. letter .. text
end

local lane_of = {}
local function read_lane(index, text)
  local lane = lanes[whole(text, 1, lane_count) or 0]
  if not lane then
    invalid(index, 'lane: expected 1 to ' .. lane_count)
  end
  if not is_name(lane.queue) or not is_name(lane.kind) then
    invalid(index, 'invalid name: expected 1 to 128 characters of A-Z a-z 0-9 _ . -, the first a letter, a digit or _')
  end
  lane_of[text] = lane
  return lane
end

-- When a job was accepted and is due, by how its due time was said.
local accepted_of, due_of = {}, {}
local function read_due(index, said)
  local due, age = said, 0
  if string.find(due, '~', 1, true) then
    due, age = string.match(due, '^([^~]*)~(%d+)$')
    age = age and whole(age, 0, AGE_MAX)
    if not age then
      invalid(index, 'invalid age: expected a due time, ~ and up to ' .. AGE_MAX .. ' ms')
    end
  end
  local accepted = math.max(NOW_MS - age, 0)
  local sign, ms = string.match(due, '^([+@])(%d+)$')
  ms = sign and whole(ms, 0, 9007199254740991)
  local at = accepted
  if due ~= '' then
    if not ms then
      invalid(index, 'invalid due time: expected +<ms> or @<ms since 1970>')
    end
    at = sign == '+' and accepted + ms or math.max(ms, accepted)
  end
  if at > accepted + DELAY_MAX then
    invalid(index, 'due time ' .. digits(at) .. ' ms: expected at most 100 years ahead')
  end
  accepted_of[said], due_of[said] = accepted, at
end

local function are_fine(traceparent, source)
  return #traceparent <= 128 and not string.find(traceparent, '%c') and #source <= 256 and not string.find(source, '%c')
end

local fine_source = nil
local function read_job(index, at)
  local lane = lane_of[ARGV[at]] or read_lane(index, ARGV[at])
  local job = { lane = lane, id = ARGV[at + 1], part = PARTS[ARGV[at + 2]], on_conflict = ARGV[at + 9], payload = ARGV[at + 10] }
  if job.id ~= '' and not is_id(job.id) then
    invalid(index, 'invalid id: expected 1 to 200 bytes of UTF-8, no control characters, no white space at either end')
  end
  if not job.part then
    invalid(index, 'invalid priority: expected high, normal or low')
  end
  local said = ARGV[at + 3]
  if not due_of[said] then
    read_due(index, said)
  end
  job.accepted, job.due = accepted_of[said], due_of[said]
  local max, timeout, traceparent, meta, source = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  if max ~= '' and not whole(max, 1, ATTEMPTS_MAX) then
    invalid(index, 'invalid max_attempts: expected 1 to ' .. ATTEMPTS_MAX)
  end
  if timeout ~= '' and not whole(timeout, 1, TIMEOUT_MAX) then
    invalid(index, 'invalid timeout: expected 1 to ' .. TIMEOUT_MAX .. ' ms')
  end
  if (traceparent ~= '' or source ~= fine_source) and not are_fine(traceparent, source) then
    invalid(index, 'invalid traceparent or source: expected at most 128 and 256 bytes without control characters')
  end
  fine_source = source
  if meta ~= '' and not is_meta(meta) then
    invalid(index, 'invalid meta: expected a JSON array of pairs of strings, of at most ' .. META_MAX .. ' bytes')
  end
  if job.on_conflict == '' then
    job.on_conflict = 'keep'
  elseif not CONFLICTS[job.on_conflict] then
    invalid(index, 'invalid on_conflict: expected keep, replace, reschedule or reject')
  end
  if #job.payload > PAYLOAD_MAX then
    invalid(index, 'payload of ' .. #job.payload .. ' bytes: expected at most ' .. PAYLOAD_MAX)
  end
  local options = job.part == 2 and '' or 'p' .. LETTERS[job.part]
  options = option(option(option(option(options, 't', timeout), 'w', traceparent), 'm', meta), 's', source)
  job.max, job.options = max, options
  return job
end

local answered = ARGV[3] ~= '' and redis.call('GET', ONCE)
answered = answered and cmsgpack.unpack(answered)
if answered and #answered > 2 then
  return answered
elseif answered then
  NOW_MS = answered[1]
end
local jobs, payload_bytes = {}, 0
for at = first, #ARGV, PER_JOB do
  local job = read_job(#jobs, at)
  jobs[#jobs + 1] = job
  payload_bytes = payload_bytes + #job.payload
  if #jobs > 1 and payload_bytes > BATCH_PAYLOAD_MAX then
    invalid(#jobs - 1, 'batch with over ' .. BATCH_PAYLOAD_MAX .. ' bytes of payload: a larger payload travels alone')
  end
end

if answered then
  local reply = {}
  for i, job in ipairs(jobs) do
    local n = #reply
    reply[n + 1], reply[n + 2] = 'created', digits(answered[2] - #jobs + i) .. '-' .. ARGV[2]
    reply[n + 3], reply[n + 4] = job.due <= NOW_MS and 'ready' or 'scheduled', digits(job.due)
  end
  return reply
end

-- Ids that exist. A generated id (`<sequence>-<random>`) has no index entry: its record tells.
local meta = redis.call('HMGET', META, 'record_max', 'lookalikes')
local record_max, lookalikes = tonumber(meta[1] or '0') or 0, meta[2]
local function id_looks_generated(id)
  local sequence, suffix = string.match(id, '^([1-9]%d*)%-(%w%w%w%w%w)$')
  return sequence and #sequence <= 14 and string.rep('0', 14 - #sequence) .. sequence, suffix
end

local PAST_HEADER = '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) '
local RECORD_HEADER = '^(%d*)\31([^\31]*)\31([^\31]*)\31([^\31]*)\31(%w+)\31(%w*)\31(p?[hl]?)'

-- The job with a record id, as it is now: state, due, and where it waits.
local function load(rid)
  local record = redis.call('HGET', JOBS, rid)
  if not record then
    return nil
  end
  local _, queue, kind, id, enqueued, delay, priority = string.match(record, RECORD_HEADER)
  if not queue then
    return nil
  end
  local old = { rid = rid, queue = queue, kind = kind == '' and queue or kind, id = id, letter = 'w', attempt = '0', crashes = 0 }
  old.due = tonumber(enqueued, 36) + (delay == '' and 0 or tonumber(delay, 36))
  old.part, old.member, old.order = priority == 'ph' and 1 or priority == 'pl' and 3 or 2, rid, rid
  local past = redis.call('HGET', PAST, rid)
  if past then
    local letter, attempt, max, crashes, due, order = string.match(past, PAST_HEADER)
    if letter then
      old.past, old.letter, old.due, old.attempt, old.max = past, letter, tonumber(due), attempt, max
      old.crashes, old.order = tonumber(crashes), order
      old.member = order .. rid .. attempt .. '.' .. crashes
      old.part = old.crashes >= 2 and 4 or old.part
    end
  end
  local lease = redis.call('HGET', RUNNING, rid)
  if lease then
    old.letter = 'r'
    old.due = tonumber(string.match(lease, '^%S+ %d+ %d+ %d+ %d+ (%d+)')) or old.due
  end
  return old
end

local known = {}
local function existing(job)
  local field = job.lane.queue .. '/' .. job.id
  if known[field] then
    return known[field], field
  end
  local value = redis.call('HGET', IDS, field)
  if value then
    local letter, due, forget = string.match(value, '^~(%a) (%d+) (%d+)$')
    if letter then
      return tonumber(forget) > NOW_MS and { letter = letter, due = tonumber(due) } or nil, field
    end
    known[field] = load(value)
  else
    local rid, suffix = id_looks_generated(job.id)
    local old = rid and load(rid)
    if old and old.queue == job.lane.queue and old.id == '\30' .. suffix then
      known[field] = old
    end
  end
  return known[field], field
end

-- Decide. `touched` jobs are written afterwards, each once, as it is then.
local enqueued36 = base36(NOW_MS)
local sequence = tonumber(redis.call('GET', SEQ) or '0')
if not sequence then
  fail('HOURHAND_WRONGTYPE', SEQ .. ' is not ours')
end
local created, touched, reply, marks_lookalike = 0, {}, {}, false

local function next_order()
  sequence = sequence + 1
  -- In two halves, for which integers of 32 bits suffice.
  return string.format('%07d%07d', math.floor(sequence / 10000000), sequence % 10000000)
end

local function touch(target)
  if not target.touched then
    target.touched = true
    touched[#touched + 1] = target
  end
end

-- Puts what was asked for into `target`, as a job that was never tried.
local function fill(target, job)
  local lane = job.lane
  target.record = job.max .. '\31' .. lane.queue .. '\31' .. (lane.kind == lane.queue and '' or lane.kind) .. '\31' .. target.id
    .. '\31' .. (job.accepted == NOW_MS and enqueued36 or base36(job.accepted)) .. '\31' .. base36(job.due - job.accepted)
    .. '\31' .. job.options .. '\31' .. job.payload
  target.accepted = job.accepted
  target.queue, target.kind, target.letter, target.due, target.new_part, target.lane = lane.queue, lane.kind, 'w', job.due, job.part, lane
  record_max = math.max(record_max, #target.record)
  touch(target)
end

local function create(job, field)
  local order = next_order()
  local target = { rid = order, order = order, new = true, attempt = '0', crashes = 0 }
  local id = job.id
  if id == '' then
    id = digits(sequence) .. '-' .. ARGV[2]
    while lookalikes and redis.call('HEXISTS', IDS, job.lane.queue .. '/' .. id) == 1 do
      target.rid = next_order()
      target.order = target.rid
      id = digits(sequence) .. '-' .. ARGV[2]
    end
    target.id = '\30' .. ARGV[2]
  else
    target.id, target.field = id, field
    known[field] = target
    if id_looks_generated(id) then
      marks_lookalike = true
    end
  end
  fill(target, job)
  created = created + 1
  job.lane.new = job.lane.new + 1
  return 'created', id, target
end

local function state_of(target)
  if target.letter == 'w' then
    return target.due <= NOW_MS and 'ready' or 'scheduled'
  end
  return STATES[target.letter] or 'running'
end

local function decide(job)
  local old, field = nil, nil
  if job.id ~= '' then
    old, field = existing(job)
  end
  if not old then
    return create(job, field)
  end
  local free = old.letter == 'w' and old.kind == job.lane.kind
  if job.on_conflict == 'keep' then
    return 'kept', job.id, old
  elseif job.on_conflict == 'reject' or not free then
    return 'conflict', job.id, old
  end
  old.lane = job.lane
  if job.on_conflict == 'replace' then
    if not old.new then
      old.replaced, old.moved, old.attempt, old.crashes = true, true, '0', 0
      old.order = next_order()
    end
    fill(old, job)
    return 'replaced', job.id, old
  end
  -- An old acceptance shortens the delay, and no more.
  old.due, old.moved = math.max(job.due, NOW_MS), true
  if old.new then
    old.delay = base36(old.due - old.accepted)
    old.record = string.gsub(old.record, '^([^\31]*\31[^\31]*\31[^\31]*\31[^\31]*\31%w+\31)%w*', '%1' .. old.delay, 1)
  end
  touch(old)
  return 'rescheduled', job.id, old
end

-- With a lookalike about, a sequence may skip a number.
local plain = not lookalikes
for _, job in ipairs(jobs) do
  local disposition, id, target = decide(job)
  plain = plain and job.id == ''
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = disposition, id, state_of(target), digits(target.due)
end

local function chunked(command, key, list)
  for from = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

-- The past of a job that was moved here: none but its new order when it was replaced, else with an event more.
-- The first 10 and the last 40 events are kept.
local function moved_past(target)
  if target.replaced then
    return 'w 0 0 0 ' .. digits(target.due) .. ' ' .. target.order .. ' 0 0 0 - 0 0\n0:,'
  end
  local event = 'E' .. target.attempt .. '\31' .. NOW_US .. '\31rescheduled\31\31\31'
  event = #event .. ':' .. event .. ','
  if not target.past then
    return 'w 0 0 0 ' .. digits(target.due) .. ' ' .. target.order .. ' 0 0 0 - 0 1\n0:,' .. event
  end
  local counts, rest, events, at = string.match(target.past, '^(%a %d+ %d+ %d+) %d+ (%d+ %d+ %d+ %d+ %S+ %d+) (%d+)\n0:,()')
  local cut, tail = at, nil
  if tonumber(events) >= EVENTS_FIRST + EVENTS_LAST then
    local length, start = nil, nil
    for _ = 0, EVENTS_FIRST do
      cut = start and start + length + 1 or at
      length, start = string.match(target.past, '^(%d+):()', cut)
    end
    tail = string.sub(target.past, at, cut - 1) .. string.sub(target.past, start + length + 1)
  else
    tail = string.sub(target.past, at)
  end
  return counts .. ' ' .. digits(target.due) .. ' ' .. rest .. ' ' .. digits(tonumber(events) + 1) .. '\n0:,' .. tail .. event
end

-- What is to be written, as the arguments of each command; by key where there are several.
local records, pasts, ids, logs, adds, removes, heads = {}, {}, {}, {}, {}, {}, {}
local function two(list, first, second)
  local n = #list
  list[n + 1], list[n + 2] = first, second
end

local function list_of(map, key)
  local list = map[key]
  if not list then
    list = {}
    map[key] = list
  end
  return list
end

-- What an old job leaves behind when it moves.
local function leave(target)
  table.insert(list_of(removes, target.lane[target.part]), target.member)
  two(pasts, target.rid, moved_past(target))
  if target.replaced then
    table.insert(logs, target.rid)
    for attempt in string.gmatch(string.match(redis.call('HGET', LOGS, target.rid) or '', '^[^\n]*'), '%d+') do
      table.insert(logs, target.rid .. ':' .. attempt)
    end
  end
end

for _, target in ipairs(touched) do
  local rid, member = target.rid, target.rid
  if target.record then
    two(records, rid, target.record)
  end
  if target.field then
    two(ids, target.field, rid)
  end
  if not target.new then
    leave(target)
    member = target.order .. rid .. target.attempt .. '.' .. target.crashes
  end
  local key = target.lane[target.new_part or target.part]
  two(list_of(adds, key), digits(target.due), member)
  local head = heads[key]
  if not head then
    local before = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    heads[key] = { lane = target.lane.name, before = before, due = target.due }
  elseif target.due < head.due then
    head.due = target.due
  end
end

-- Everything is decided; a foreign value under a name that is written to must show before the first write. Indexes were read above.
local function typed(command, key)
  local answer = redis.pcall(command, key)
  if type(answer) == 'table' and answer.err then
    fail('HOURHAND_WRONGTYPE', key .. ' is not ours')
  end
end
typed('HLEN', JOBS)
typed('HLEN', TOTALS)
typed('SCARD', LANES)
for key, list in pairs({ [PAST] = pasts, [IDS] = ids, [LOGS] = logs }) do
  if #list > 0 then
    typed('HLEN', key)
  end
end
for key in pairs(removes) do
  typed('ZCARD', key)
end

-- Write.
redis.call('SET', SEQ, digits(sequence))
for key, list in pairs(removes) do
  chunked('ZREM', key, list)
end
chunked('HDEL', LOGS, logs)
for _, lane in ipairs(lanes) do
  if lane.new > 0 then
    redis.call('SADD', LANES, lane.name)
    redis.call('HINCRBY', TOTALS, lane.queue .. ':enqueued', lane.new)
  end
end
chunked('HSET', JOBS, records)
chunked('HSET', PAST, pasts)
chunked('HSET', IDS, ids)
for key, list in pairs(adds) do
  chunked('ZADD', key, list)
end
if record_max > (tonumber(meta[1] or '0') or 0) then
  redis.call('HSET', META, 'record_max', digits(record_max))
end
if marks_lookalike then
  redis.call('HSET', META, 'lookalikes', '1')
end
if ARGV[3] ~= '' then
  -- The answer to a batch of new jobs with generated ids follows from its arguments and two numbers.
  local answer = plain and { NOW_MS, sequence } or reply
  redis.call('SET', ONCE, cmsgpack.pack(answer), 'EX', ONCE_SECONDS)
end
-- A user without the channel may enqueue all the same: what is written must not look like a failure (rule 7).
for _, head in pairs(heads) do
  if not head.before or head.due < head.before then
    redis.pcall('PUBLISH', WAKE, 'due ' .. head.lane .. ' ' .. digits(head.due))
  end
end
return reply
