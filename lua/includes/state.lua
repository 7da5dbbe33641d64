-- State: a bucket is a hash of its own, key -> `version value`, the value raw to the end. BUCKETS lists the buckets that hold
-- anything by name (all scores are 0), and HOLDINGS has `entries bytes` of each, where bytes are those of keys and values.
-- Versions are numbers of the sequence, so that an entry that was deleted and made again never has an old one.

-- Version and value of an entry; nothing when there is none or it cannot be read.
local function entry_parse(text)
  local version, at = string.match(text or '', '^(%d+) ()')
  if version then
    return version, string.sub(text, at)
  end
end

local function holding_read(bucket)
  local entries, bytes = string.match(redis.call('HGET', HOLDINGS, bucket) or '', '^(%d+) (%d+)$')
  return tonumber(entries or '0'), tonumber(bytes or '0')
end

-- Stages what a bucket holds after a change.
local function holding_write(bucket, before, entries, bytes)
  if entries > 0 then
    hset(HOLDINGS, bucket, digits(entries) .. ' ' .. digits(bytes))
    if before == 0 then
      zadd(BUCKETS, '0', bucket)
    end
  elseif before > 0 then
    hdel(HOLDINGS, bucket)
    zrem(BUCKETS, bucket)
  end
end

-- Changes of one bucket that are staged together.
local function bucket_open(name, key)
  local entries, bytes = holding_read(name)
  return { name = name, key = key, before = entries, entries = entries, bytes = bytes }
end

-- Stages a new value, nil for none, in place of the old text of an entry, nil or false when there is none.
local function bucket_put(bucket, key, old, version, value)
  local _, before = entry_parse(old)
  if old then
    bucket.entries, bucket.bytes = bucket.entries - 1, bucket.bytes - #key - #(before or '')
  end
  if value then
    bucket.entries, bucket.bytes = bucket.entries + 1, bucket.bytes + #key + #value
    hset(bucket.key, key, version .. ' ' .. value)
  elseif old then
    hdel(bucket.key, key)
  end
end

local function bucket_close(bucket)
  holding_write(bucket.name, bucket.before, bucket.entries, math.max(bucket.bytes, 0))
end

-- A whole number of 64 bits in decimal digits as two halves of the same sign, in units of 10^9 and 1, each exact in a
-- double; nothing when it is none.
local function halves(text)
  local sign, number = string.match(text, '^(%-?)(%d+)$')
  if not sign or #number > 19 then
    return nil
  end
  local high, low = tonumber(string.sub(number, 1, -10)) or 0, tonumber(string.sub(number, -9))
  local last = sign == '-' and 854775808 or 854775807
  if high > 9223372036 or (high == 9223372036 and low > last) then
    return nil
  end
  if sign == '-' then
    -- Not a minus alone: that would make a zero that is printed with one.
    return 0 - high, 0 - low
  end
  return high, low
end

-- The sum of two whole numbers, exactly, as text; nothing when the first is none, or the sum has over 64 bits.
local function add_exactly(text, by)
  local high, low = halves(text)
  if not high then
    return nil
  end
  local by_high, by_low = halves(by)
  high, low = high + by_high, low + by_low
  if low >= 1000000000 then
    high, low = high + 1, low - 1000000000
  elseif low <= -1000000000 then
    high, low = high - 1, low + 1000000000
  end
  if high > 0 and low < 0 then
    high, low = high - 1, low + 1000000000
  elseif high < 0 and low > 0 then
    high, low = high + 1, low - 1000000000
  end
  local negative = high < 0 or low < 0
  if negative then
    high, low = 0 - high, 0 - low
  end
  local sum = high > 0 and string.format('%.0f%09.0f', high, low) or string.format('%.0f', low)
  sum = (negative and '-' or '') .. sum
  return halves(sum) and sum
end
