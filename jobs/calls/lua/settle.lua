-- Charges rates with more tokens than they were, or gives back some. rates: name and step (ms) of
-- each.
local function settle_rates(rates_key, rates, more)
    for _, rate in ipairs(rates) do
        local name, step = unpack(rate)
        local full = tonumber(redis.call('HGET', rates_key, name) or '')
        if full then
            if more > 0 then full = math.max(full, now) end
            redis.call('HSET', rates_key, name, string.format('%.3f', full + more * step))
        end
    end
end
