-- The store's clock, read once. Milliseconds are exact integers in a double; text is made with %.0f
-- because Lua's own formatting of large numbers loses digits.
local clock = redis.call('TIME')
local NOW_MS = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local NOW_US = clock[1] .. string.format('%06d', tonumber(clock[2]))
local function digits(number)
  -- The faster way is for integers of 32 bits, on any machine.
  return string.format(number < 2147483648 and number > -2147483648 and '%d' or '%.0f', number)
end
local NOW_TEXT = digits(NOW_MS)
