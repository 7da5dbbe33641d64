-- The lanes that a script was given: `count queue kind queue kind ...` from ARGV[at] on, and for each seven
-- keys after the globals: due high, normal, low, suspects; done completed, cancelled, dead.
local function lanes_read(at)
  local lanes, by_name = {}, {}
  local count = tonumber(ARGV[at])
  for i = 1, count do
    local queue, kind = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
    local lane = { queue = queue, kind = kind, name = queue .. ':' .. kind, words = queue .. ' ' .. kind, running = 0 }
    for part = 1, 7 do
      lane[part] = KEYS[GLOBALS + 7 * (i - 1) + part]
    end
    lanes[i], by_name[lane.name] = lane, lane
  end
  return lanes, by_name, at + 2 * count + 1
end
