-- What has happened to a job: the value of `past`, absent until the first settle, reclaim, cancel or
-- reschedule. A header line, the result as a netstring, and the events as netstrings, oldest first:
-- `state attempt max_attempts crashes due_ms order bytes expire_ms forget_ms session token events\n`.
-- state: w waiting, c completed, x cancelled, d dead. bytes, expire and forget count once it is
-- finished; session and token are those of the last settled lease, and before the session is one \30 for
-- each time in a row that the job's effects were in conflict (commit.lua), 11 at most. Events are opaque here.
local PAST_HEADER = '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+)\n(%d+):()'
local EVENTS_FIRST, EVENTS_LAST = 10, 40

local function past_parse(text)
  local state, attempt, max, crashes, due, order, bytes, expire, forget, session, token, events, length, at =
    string.match(text, PAST_HEADER)
  if not state then
    return nil
  end
  return {
    state = state, attempt = tonumber(attempt), max = tonumber(max), crashes = tonumber(crashes), due = due,
    order = order, bytes = tonumber(bytes), expire = expire, forget = forget, session = session, token = token,
    events = tonumber(events), result = string.sub(text, at, at + length - 1), tail = string.sub(text, at + length + 1),
  }
end

-- Adds an event; drops the eleventh when there are more than the first 10 and the last 40.
local function past_event(past, event)
  local tail = past.tail
  if past.events >= EVENTS_FIRST + EVENTS_LAST then
    local at = 1
    for _ = 1, EVENTS_FIRST do
      local length, start = string.match(tail, '^(%d+):()', at)
      at = start + length + 1
    end
    local length, start = string.match(tail, '^(%d+):()', at)
    tail = string.sub(tail, 1, at - 1) .. string.sub(tail, start + length + 1)
  end
  past.events = past.events + 1
  past.tail = tail .. #event .. ':' .. event .. ','
end

local function past_text(past)
  return past.state .. ' ' .. past.attempt .. ' ' .. past.max .. ' ' .. past.crashes .. ' ' .. past.due .. ' '
    .. past.order .. ' ' .. past.bytes .. ' ' .. past.expire .. ' ' .. past.forget .. ' ' .. past.session .. ' '
    .. past.token .. ' ' .. past.events .. '\n' .. #past.result .. ':' .. past.result .. ',' .. past.tail
end

-- The past of a job to which nothing has happened yet.
local function past_fresh(max, crashes, due, order)
  return {
    state = 'w', attempt = 0, max = max, crashes = crashes, due = due, order = order, bytes = 0, expire = '0', forget = '0',
    session = '-', token = '0', events = 0, result = '', tail = '',
  }
end

-- Adds an event that is no run: `E attempt time word runner reason message`, joined by \31.
local function past_note(past, word, runner, reason, message)
  past_event(past, 'E' .. past.attempt .. '\31' .. NOW_US .. '\31' .. word .. '\31' .. (runner or '') .. '\31'
    .. (reason or '') .. '\31' .. (message or ''))
end
