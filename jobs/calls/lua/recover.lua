-- Recovers the calls of dead workers: back into a lane whose calls run alone, or answered with an
-- error at the second death. Returns how many.
local lane_prefix, alone_prefix, reply_prefix, reply_ttl_s, lost_code, lost_message = unpack(ARGV,
    1, 6)

if redis.call('HLEN', TAKEN) == 0 then return 0 end

local function alive(worker)
    return tonumber(redis.call('ZSCORE', ALIVE, worker) or '0') > now
end

local function put_back(id, before, lane, member, after)
    local alone = alone_prefix .. lane
    redis.call('HSET', CALLS, id, before .. alone .. '\n' .. member .. after)
    redis.call('HDEL', TAKEN, id)
    redis.call('ZADD', lane_prefix .. alone, now, member)
    redis.call('SADD', LANES, alone)
    local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
    redis.call('HINCRBY', POOL, 'units:' .. alone, size)
    count_waiting(tenant, 1, weight)
    notify()
end

local recovered = 0
local taken = redis.call('HGETALL', TAKEN)
for n = 1, #taken, 2 do
    local id = taken[n]
    local call = redis.call('HGET', CALLS, id) or ''
    local before, lane, member, after =
        string.match(call, '^(%S+ %S+ %S+ )([^\n]*)\n([^\n]*)(.*)$')
    local deadline, asker = string.match(call, '^%S+ (%S+) (%S+)')
    if not deadline or tonumber(deadline) <= now then
        forget(id)
    elseif not alive(string.match(taken[n + 1], '^[^#]*')) then
        recovered = recovered + 1
        if string.sub(lane, 1, #alone_prefix) == alone_prefix then
            answer_error(id, asker, reply_prefix, reply_ttl_s, lost_code, lost_message)
        else
            put_back(id, before, lane, member, after)
        end
    end
end
return recovered
