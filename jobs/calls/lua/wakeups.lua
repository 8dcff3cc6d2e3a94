-- One token on a list wakes one worker; a second token would wake a second one for nothing. Each tier
-- has a list of its own: which of them takes what waits only a look tells. tiers: the pool's field,
-- where the caller has read it.
local function ring(list)
    if redis.call('LLEN', list) == 0 then redis.call('RPUSH', list, '1') end
end

local function notify(tiers)
    ring(WAKEUPS)
    if tiers then
        local _, more = string.gsub(tiers, '\n', '')
        for tier = 1, more do ring(WAKEUPS .. ':' .. tier) end
    end
end

local function pool_tiers()
    return redis.call('HGET', POOL, 'tiers')
end
