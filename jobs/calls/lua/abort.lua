-- Puts back what a take ("worker#token") gave.
local lane_prefix, take = unpack(ARGV, 1, 2)

local taken = redis.call('HGETALL', TAKEN)
for n = 1, #taken, 2 do
    local id, token = taken[n], taken[n + 1]
    if token == take then
        redis.call('HDEL', TAKEN, id)
        local call = redis.call('HGET', CALLS, id) or ''
        local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\n]*)\n([^\n]*)')
        if lane then
            redis.call('ZADD', lane_prefix .. lane, now, member)
            redis.call('SADD', LANES, lane)
            local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
            redis.call('HINCRBY', POOL, 'units:' .. lane, size)
            count_waiting(tenant, 1, weight)
            notify()
        end
    end
end
