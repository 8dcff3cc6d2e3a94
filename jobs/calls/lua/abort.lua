-- Puts back what a take ("worker#token") gave, or all takes of a worker ("worker#"); with a prefix, in
-- lanes whose calls run alone. Returns how many calls.
local lane_prefix, take, alone_prefix = unpack(ARGV, 1, 3)

local of_worker, count = string.sub(take, -1) == '#', 0
local taken = redis.call('HGETALL', TAKEN)
for n = 1, #taken, 2 do
    local id, token = taken[n], taken[n + 1]
    if token == take or of_worker and string.sub(token, 1, #take) == take then
        redis.call('HDEL', TAKEN, id)
        local call = redis.call('HGET', CALLS, id) or ''
        local before, lane, member, after =
            string.match(call, '^(%S+ %S+ %S+ )([^\n]*)\n([^\n]*)(.*)$')
        if lane then
            count = count + 1
            if string.sub(lane, 1, #alone_prefix) ~= alone_prefix then
                lane = alone_prefix .. lane
                redis.call('HSET', CALLS, id, before .. lane .. '\n' .. member .. after)
            end
            redis.call('ZADD', lane_prefix .. lane, now, member)
            redis.call('SADD', LANES, lane)
            local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
            redis.call('HINCRBY', POOL, 'units:' .. lane, size)
            count_waiting(tenant, 1, weight)
            notify(pool_tiers())
        end
    end
end
return count
