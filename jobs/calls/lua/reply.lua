-- Sends the replies of a launch to one api process, and counts what their calls used. A call that
-- is not known any more was answered or given up before: it is not counted again.
-- ARGV from 4 on, five a call: its id, "class tenant", whether it succeeded (1 or 0), its size, its
-- microseconds on the device.
local reply_key, reply_ttl_s, packed = unpack(ARGV, 1, 3)

redis.call('RPUSH', reply_key, packed)
redis.call('EXPIRE', reply_key, reply_ttl_s)
local bounded = redis.call('EXISTS', BOUNDED) == 1

-- Forgets the calls, in one step where all of them are taken, as most are: those are known.
local function forget_taken()
    local ids = {}
    for n = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[n] end
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
local sums = {}
for n = 4, #ARGV, 5 do
    if all_taken or forget_one(ARGV[n]) then
        local sum = sums[ARGV[n + 1]]
        if not sum then
            sum = {succeeded = 0, failed = 0, units = 0, device_us = 0}
            sums[ARGV[n + 1]] = sum
        end
        if ARGV[n + 2] == '1' then
            sum.succeeded = sum.succeeded + 1
            sum.units = sum.units + ARGV[n + 3]
        else
            sum.failed = sum.failed + 1
        end
        sum.device_us = sum.device_us + ARGV[n + 4]
    end
end

local minute = math.floor(now / 60000)
for whose, sum in pairs(sums) do
    local class, tenant = string.match(whose, '^(%S+) (.*)$')
    for what, count in pairs(sum) do
        if count > 0 then
            local field = minute .. ' ' .. class .. ' ' .. what .. ' ' .. tenant
            redis.call('HINCRBY', USED, field, string.format('%.0f', count))
        end
    end
end
