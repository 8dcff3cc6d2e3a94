-- Sends the replies of a launch to one api process, and counts what their calls used. A call that
-- is not known any more was answered or given up before: it is not counted again, unless it
-- generated tokens that were not billed yet.
-- ARGV from 5 on, six a call: its id, "class tenant", whether it succeeded (1 or 0), its size, its
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

local function read_tokens(tokens)
    local input, cached, output = string.match(tokens, '^(%d+) (%d+) (%d+)$')
    return {input_tokens = input, cached_tokens = cached, output_tokens = output}
end

local all_taken = forget_taken()
local sums = {}
for n = FIRST, #ARGV, EACH do
    local id, whose, succeeded, units, device_us, tokens = unpack(ARGV, n, n + EACH - 1)
    local known = all_taken or forget_one(id)
    local used = tokens ~= '' and read_tokens(tokens)
    local unbilled = used and first_bill(id, billed_ttl_s,
                                         used.input_tokens + used.output_tokens)
    if known or unbilled then
        local sum = sums[whose]
        if not sum then
            sum = {succeeded = 0, failed = 0, units = 0, device_us = 0}
            sums[whose] = sum
        end
        if succeeded == '1' then
            sum.succeeded = sum.succeeded + 1
            sum.units = sum.units + units
        else
            sum.failed = sum.failed + 1
        end
        sum.device_us = sum.device_us + device_us
        for what, count in pairs(unbilled and used or {}) do
            sum[what] = (sum[what] or 0) + count
        end
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
