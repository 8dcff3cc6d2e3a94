-- Returns now, last launch, its predicted time, time of the last call, mean gap of calls, until
-- when they are watched and by whom, ready workers, {slot, until}*, {lane, rows, units, due}*.
-- slot: the one that asks: it is not busy any more.
local lane_prefix, slot = unpack(ARGV, 1, 2)

redis.call('ZREM', BUSY, slot)
local pool = redis.call('HMGET', POOL, 'launch', 'took', 'called', 'gap', 'watched', 'watcher')
local lanes = {}
for _, lane in ipairs(redis.call('SMEMBERS', LANES)) do
    local first = redis.call('ZRANGE', lane_prefix .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
        local units = redis.call('HGET', POOL, 'units:' .. lane) or '0'
        table.insert(lanes, {lane, redis.call('ZCARD', lane_prefix .. lane), units, first[2]})
    else
        redis.call('SREM', LANES, lane)
    end
end
return {string.format('%.3f', now), pool[1] or '0', pool[2] or '0', pool[3] or '0',
        pool[4] or '0', pool[5] or '0', pool[6] or '', redis.call('ZCOUNT', READY, now, '+inf'),
        redis.call('ZRANGEBYSCORE', BUSY, '(' .. now, '+inf', 'WITHSCORES'), lanes}
