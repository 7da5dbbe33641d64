-- A job's member in its due index. It sorts by the order of the enqueue, and tells a claim what the
-- record does not: `order` (14 digits) for a job that was never touched, whose order is its record
-- id; else `order .. record id .. attempt .. '.' .. crashes`. A job with a short member has no past.
local function member_long(order, rid, attempt, crashes)
  return order .. rid .. attempt .. '.' .. crashes
end

-- Returns rid, attempts used and crashes; nil when it is none of ours.
local function member_parse(member)
  if #member == 14 then
    return member, 0, 0
  end
  local rid, attempt, crashes = string.match(member, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d(%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d+)%.(%d+)$')
  if not rid then
    return nil
  end
  return rid, tonumber(attempt), tonumber(crashes)
end

-- Which of a lane's four indexes holds a job: 1 high, 2 normal, 3 low; 4 holds suspects, which are
-- jobs with two recorded crashes or more, whatever their priority.
local PART = { h = 1, n = 2, l = 3 }
local function part_of(priority, crashes)
  if crashes >= 2 then
    return 4
  end
  return PART[priority] or 2
end
