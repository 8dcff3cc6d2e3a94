-- Returns now, last launch, its predicted time, time of the last call, mean gap of calls, until
-- when they are watched and by whom, ready workers, {slot, until}*, {lane, rows, units, due, turn,
-- urgent}*, tiers.
-- slot: the one that asks: it is not busy any more. ARGV from 3 on: buckets, each with the time that
-- the slot needs: calls that are due sooner are counted as urgent only, and wake a faster worker. A spot
-- worker doesn't see the lanes of others (spot.lua).
local lane_prefix, slot = unpack(ARGV, 1, 2)
local least_ms = {}
for n = 3, #ARGV, 2 do least_ms[ARGV[n]] = tonumber(ARGV[n + 1]) end

redis.call('ZREM', BUSY, slot)
local pool = redis.call('HMGET', POOL, 'launch', 'took', 'called', 'gap', 'watched', 'watcher',
                        'tiers')
local lanes, names = {}, redis.call('SMEMBERS', LANES)
local leaves, is_last = false, false
if pool[7] then
    local worker = string.match(slot, '^[^/]*')
    leaves = has_both_kinds(pool[7]) and is_spot(pool[7], worker)
    is_last = not has_faster_that_stays(pool[7], worker)
end
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
    local key = lane_prefix .. lane
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local rows, urgent = redis.call('ZCARD', key), 0
    local least = ARGV[3] and least_ms[string.match(lane, '/(%d+)$')]
    if (is_last or leaves) and is_on_demand(lane) then least = nil end  -- faster ones are spot
    if least and first[1] and first[2] - now < least then
        urgent = redis.call('ZCOUNT', key, '-inf', '(' .. now + least)
        first = redis.call('ZRANGEBYSCORE', key, now + least, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if urgent > 0 then ring(WAKEUPS) end
    end
    if first[1] and leaves and is_on_demand(lane) then
        first = {}  -- of workers that aren't spot
    end
    if first[1] then
        local units = tonumber(redis.call('HGET', POOL, 'units:' .. lane) or '0')
        if urgent > 0 then units = math.floor(units * (rows - urgent) / rows) end
        table.insert(lanes, {lane, rows - urgent, units, first[2], tostring(turn(lane)), urgent})
    elseif rows == 0 then
        redis.call('SREM', LANES, lane)
    end
end
return {string.format('%.3f', now), pool[1] or '0', pool[2] or '0', pool[3] or '0',
        pool[4] or '0', pool[5] or '0', pool[6] or '', redis.call('ZCOUNT', READY, now, '+inf'),
        redis.call('ZRANGEBYSCORE', BUSY, '(' .. now, '+inf', 'WITHSCORES'), lanes,
        pool[7] or ''}
