local function release_bounds(id, keys)
    redis.call('HDEL', BOUNDED, id)
    for key in string.gmatch(keys, '%S+') do redis.call('ZREM', key, id) end
end

local function forget(id)
    redis.call('HDEL', CALLS, id)
    redis.call('HDEL', TAKEN, id)
    local keys = redis.call('HGET', BOUNDED, id)
    if keys then release_bounds(id, keys) end
end
