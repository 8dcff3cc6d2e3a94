-- Sends the replies of a launch to one api process, and counts what their calls used.
-- ARGV from 5 on, six a call: its id, "class tenant" or nothing, whether it succeeded (1 or 0), its size, its
-- microseconds on the device, "input cached output" tokens or nothing.
local reply_key, reply_ttl_s, packed, billed_ttl_s = unpack(ARGV, 1, 4)
local FIRST, EACH = 5, 6

redis.call('RPUSH', reply_key, packed)
redis.call('EXPIRE', reply_key, reply_ttl_s)
local bounded = redis.call('EXISTS', BOUNDED) == 1

-- Forgets the calls, in one step where all of them are taken, as most are: those are known.
local function forget_taken()
    local ids = {}
    for n = FIRST, #ARGV, EACH do ids[#ids + 1] = ARGV[n] end
    if bounded or #ids < 3 or #ids > 1000 then return false end
    for _, taken in ipairs(redis.call('HMGET', TAKEN, unpack(ids))) do
        if not taken then return false end
    end
    redis.call('HDEL', TAKEN, unpack(ids))
    redis.call('HDEL', CALLS, unpack(ids))
    return true
end

-- Forgets one call. Returns whether it was known.
local function forget_one(id)
    redis.call('HDEL', TAKEN, id)
    local keys = bounded and redis.call('HGET', BOUNDED, id)
    if keys then release_bounds(id, keys) end
    return redis.call('HDEL', CALLS, id) == 1
end

local all_taken = forget_taken()
for n = FIRST, #ARGV, EACH do
    count(all_taken or forget_one(ARGV[n]), billed_ttl_s, unpack(ARGV, n, n + EACH - 1))
end
store_counts()
