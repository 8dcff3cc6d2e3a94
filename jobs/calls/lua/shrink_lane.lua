-- Updates what is known of a lane when `removed` of its `before` calls leave, which have `units` of
-- size: nothing once it is empty, and the sum over all lanes is 0 once they all are.
local function shrink_lane(key, lane, before, removed, units)
    local cost = tonumber(redis.call('HGET', POOL, 'cost:' .. lane) or '0')
    if removed >= before then
        redis.call('SREM', LANES, lane)
        redis.call('HDEL', POOL, 'cost:' .. lane, 'units:' .. lane)
        redis.call('HINCRBYFLOAT', POOL, 'cost', -cost)
        if redis.call('SCARD', LANES) == 0 then
            redis.call('HSET', POOL, 'cost', '0', 'weights', '0')
        end
    elseif removed > 0 then
        local less = -cost * removed / before
        redis.call('HINCRBYFLOAT', POOL, 'cost:' .. lane, less)
        redis.call('HINCRBYFLOAT', POOL, 'cost', less)
        redis.call('HINCRBY', POOL, 'units:' .. lane, -units)
    end
end
