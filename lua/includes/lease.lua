-- A lease: the value of `running` for a job that a session has.
-- `session token attempt max_attempts crashes due_ms order claimed_ms member queue kind priority
-- record_bytes id`; the id, last because it may hold anything, is empty when it was generated. The five numbers from
-- attempt to order stand in a past's header in the same order, so that a settle can copy them.
local LEASE = '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%a) (%d+) (.*)$'

local function lease_parse(rid, text)
  local session, token, attempt, max, crashes, due, order, claimed, member, queue, kind, priority, bytes, id =
    string.match(text, LEASE)
  if not session then
    return nil
  end
  return {
    rid = rid, session = session, token = token, attempt = tonumber(attempt), max = tonumber(max),
    crashes = tonumber(crashes), due = due, order = order, claimed = claimed, member = member, queue = queue, kind = kind,
    priority = priority, record_bytes = tonumber(bytes), id = id,
  }
end

-- Call after `flush`: a session that holds nothing any more leaves the list of those that do.
local function drop_empty_holders(sessions)
  for session in pairs(sessions) do
    if tonumber(redis.call('HGET', HOLDERS, session) or '0') <= 0 then
      redis.call('HDEL', HOLDERS, session)
    end
  end
end
