-- A job's record, written once: `max_attempts queue kind id enqueued delay options payload`, joined
-- by the unit separator \31, payload raw to the end. See enqueue.lua for each part.
local function record_parse(rid, text)
  local max, queue, kind, id, enqueued, delay, options, at =
    string.match(text, '^(%d*)\31([^\31]*)\31([^\31]*)\31([^\31]*)\31(%w+)\31(%w*)\31([^\31]*)\31()')
  if not max then
    return nil
  end
  local generated = string.sub(id, 1, 1) == '\30'
  return {
    rid = rid, max = max, queue = queue, kind = kind == '' and queue or kind,
    id = generated and '' or id, suffix = generated and string.sub(id, 2) or nil,
    enqueued = tonumber(enqueued, 36), delay = delay == '' and 0 or tonumber(delay, 36),
    priority = string.match(options, '^p(%a)') or 'n', bytes = #text,
  }
end
