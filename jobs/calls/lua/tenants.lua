-- Returns the tenant of a lane's member if all calls that wait are its own.
local function sole_tenant(member)
    local tenant = member and string.match(member, '^%S+ %S+ %S+ (.*)$')
    if not tenant then return nil end
    local queued = string.match(redis.call('HGET', POOL, 'queued:' .. tenant) or '0', '^%S+')
    local waiting = redis.call('HLEN', CALLS) - redis.call('HLEN', TAKEN)
    return tonumber(queued) == waiting and tenant or nil
end

-- Counts `more` calls of a tenant as waiting; weight: of those that come.
local function count_waiting(tenant, more, weight)
    local field = 'queued:' .. tenant
    local known = redis.call('HGET', POOL, field)
    local had, counted = string.match(known or '0 0', '(%S+) (%S+)')
    local has = had + more
    weight = has > 0 and (weight or counted) or 0
    if has > 0 then
        redis.call('HSET', POOL, field, has .. ' ' .. weight)
    else
        redis.call('HDEL', POOL, field)
    end
    if tonumber(weight) ~= tonumber(counted) then
        redis.call('HINCRBYFLOAT', POOL, 'weights', weight - counted)
    end
end
