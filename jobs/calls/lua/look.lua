-- Returns now, last launch, its predicted time, time of the last call, mean gap of calls, until
-- when they are watched and by whom, ready workers, {slot, until}*, {lane, rows, units, due, turn}*.
-- slot: the one that asks: it is not busy any more.
local lane_prefix, slot = unpack(ARGV, 1, 2)

redis.call('ZREM', BUSY, slot)
local pool = redis.call('HMGET', POOL, 'launch', 'took', 'called', 'gap', 'watched', 'watcher')
local lanes, names = {}, redis.call('SMEMBERS', LANES)
local served = {}
if #names > 1 then
    local fields = redis.call('HGETALL', SERVED)
    for n = 1, #fields, 2 do served[fields[n]] = tonumber(fields[n + 1]) end
end
local start = served[''] or 0

-- Least virtual time of the tenants with calls in a lane; one lane alone has no turns to compare.
local function turn(lane)
    if #names == 1 then return 0 end
    local sole = sole_tenant(redis.call('ZRANGE', lane_prefix .. lane, 0, 0)[1])
    if sole then return math.max(start, served[sole] or 0) end
    local least, known = math.huge, {}
    for _, member in ipairs(redis.call('ZRANGE', lane_prefix .. lane, 0, -1)) do
        local tenant = string.match(member, '^%S+ %S+ %S+ (.*)$')
        if not known[tenant] then
            known[tenant] = true
            least = math.min(least, math.max(start, served[tenant] or 0))
        end
        if least == start then break end
    end
    return least
end

for _, lane in ipairs(names) do
    local first = redis.call('ZRANGE', lane_prefix .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
        local units = redis.call('HGET', POOL, 'units:' .. lane) or '0'
        table.insert(lanes, {lane, redis.call('ZCARD', lane_prefix .. lane), units, first[2],
                             tostring(turn(lane))})
    else
        redis.call('SREM', LANES, lane)
    end
end
return {string.format('%.3f', now), pool[1] or '0', pool[2] or '0', pool[3] or '0',
        pool[4] or '0', pool[5] or '0', pool[6] or '', redis.call('ZCOUNT', READY, now, '+inf'),
        redis.call('ZRANGEBYSCORE', BUSY, '(' .. now, '+inf', 'WITHSCORES'), lanes}
