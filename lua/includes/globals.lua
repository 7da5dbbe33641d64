-- The keys of a shard that are not a lane's, in one order for every script but enqueue.
-- Lane keys follow from KEYS[20] on.
local SEQ, JOBS, PAST, RUNNING, RECALLS, IDS, MEMORY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local LANES, PAUSED, TOTALS, SIZES, SESSIONS, HOLDERS = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local LOGS, ORPHANS, DIRT, META = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local BUCKETS, HOLDINGS = KEYS[18], KEYS[19]
local GLOBALS = 19
-- The channel of wake-ups shares the prefix of the keys: `<namespace>:{<shard>}:`. Always published to with pcall: a user
-- without the channel gets no error after the writes, and runners look by themselves every second.
local WAKE = string.sub(SEQ, 1, -4) .. 'wake'
