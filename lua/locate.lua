#!lua flags=no-writes,allow-oom
-- locate: finds jobs by queue and id.
--
-- KEYS  the globals
-- ARGV  bytes_max, then queue, id, record id or '' for each. The record id is given when the id looks like a
--       generated one: then the record tells.
-- Returns for each: record id or '', kind or ''; stops once it has read bytes_max of records, so it
--       may answer for fewer than were asked for.
--- @include globals
--- @include record

local reply, bytes, bytes_max = {}, 0, tonumber(ARGV[1])

local function header(rid)
  local text = redis.call('HGET', JOBS, rid)
  if not text then
    return nil
  end
  bytes = bytes + #text
  return record_parse(rid, text)
end

for i = 2, #ARGV, 3 do
  local queue, id, rid = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local found = rid ~= '' and header(rid)
  if found and not (found.queue == queue and found.suffix and id == string.gsub(rid, '^0+', '') .. '-' .. found.suffix) then
    found = nil
  end
  if not found then
    local value = redis.call('HGET', IDS, queue .. '/' .. id)
    found = value and string.sub(value, 1, 1) ~= '~' and header(value)
  end
  local n = #reply
  reply[n + 1], reply[n + 2] = found and found.rid or '', found and found.kind or ''
  if bytes > bytes_max then
    break
  end
end
return reply
