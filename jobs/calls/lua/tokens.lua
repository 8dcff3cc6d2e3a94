-- Charges what a call used, or gives back what it didn't, against its estimate. charge: JSON of the
-- key of the rates, the tokens that were estimated, and name and step (ms) of each rate.
local function settle(charge, used)
    local rates_key, estimated, rates = unpack(cjson.decode(charge))
    for _, rate in ipairs(rates) do
        local name, step = unpack(rate)
        local full = tonumber(redis.call('HGET', rates_key, name) or '')
        if full then
            if used > estimated then full = math.max(full, now) end
            full = full + (used - estimated) * step
            redis.call('HSET', rates_key, name, string.format('%.3f', full))
        end
    end
end

-- Marks a call that generated as billed. Returns whether it is for the first time: a worker sends a
-- reply again that had no answer, and so does one that was taken for dead.
local function first_bill(key, ttl_s, used)
    local before = redis.call('SET', key, 'billed', 'EX', ttl_s, 'GET')
    if before == 'billed' then return false end
    if before then settle(before, used) end
    return true
end
