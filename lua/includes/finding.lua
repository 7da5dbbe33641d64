-- What the doctor finds and how it mends. It deletes nothing: what it takes out of the way is kept in the hash
-- QUARANTINE, the last key of a doctor's script, under `<now in ms> <what it was> <its name>`.
local QUARANTINE = KEYS[#KEYS]
local MENDS = ARGV[1] == '1'
local findings = {}

-- Notes a finding; `mended` says what is staged against it, and counts only when the doctor mends.
local function found(check, place, message, mended)
  local n = #findings
  findings[n + 1], findings[n + 2], findings[n + 3], findings[n + 4] = check, place, message, MENDS and mended or ''
end

-- Stages the way of one field of a hash into the quarantine.
local function set_aside(key, what, field, value)
  hset(QUARANTINE, NOW_TEXT .. ' ' .. what .. ' ' .. field, value)
  hdel(key, field)
end
