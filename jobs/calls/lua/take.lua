-- Takes calls of a lane for a launch. Returns {id, call}*, or nothing where the pool launched
-- meanwhile. Tenants take turns by start-time fair queueing (Goyal et al. 1996), counted in rows,
-- or in units where device time goes by size, by weight: the least virtual time is next; one that
-- comes back starts where the others are. bulk: of a tenant that has a good part of a launch waiting,
-- calls are taken like all others ('mixed'), in launches of their own ('apart'), or not ('none').
-- Those of the tenants in ARGV from 20 on aren't taken, nor those that
-- are due within least_ms, where that is above 0: they are left to faster workers. A take is a sign of life: Redis may have lost the worker's
-- announcement a moment ago.
local lane_key, lane, most, most_units, sized, launched_before, took_ms, needs_ms, reason, worker,
    slot, lease_ms, reply_prefix, reply_ttl_s, late_code, late_message, token,
    bulk, least_ms = unpack(ARGV, 1, 19)

local pool = redis.call('HMGET', POOL, 'launch', 'tiers')
local tiers = pool[2]
if tonumber(pool[1] or '0') > tonumber(launched_before) then return false end

local function record_launch()
    redis.call('HSET', POOL, 'launch', string.format('%.3f', now), 'took', took_ms,
               'watched', '0')
    -- A draining worker has no slot for calls: its launches keep no call waiting.
    if redis.call('ZSCORE', READY, worker) then
        redis.call('ZADD', BUSY, now + took_ms, slot)
    end
end

most, most_units = tonumber(most), tonumber(most_units)
if most == 0 then
    record_launch()
    if redis.call('SCARD', LANES) > 0 then notify(tiers) end  -- whose watch has ended
    return {}
end

-- Where one tenant alone waits, its first calls are enough, however many there are.
local from = tonumber(least_ms) > 0 and now + least_ms or '-inf'
local function in_order(first, count)
    return redis.call('ZRANGEBYSCORE', lane_key, from, '+inf', 'LIMIT', first, count)
end

local members = in_order(0, 2 * most + 1)
local rows, sole = #members, nil
if rows > 2 * most or tonumber(least_ms) > 0 then rows = redis.call('ZCARD', lane_key) end
if #members > 2 * most then
    sole = sole_tenant(members[1])
    for _, member in ipairs(sole and {} or in_order(2 * most + 1, -1)) do
        table.insert(members, member)
    end
end
local tenants, queues = {}, {}
for _, member in ipairs(members) do
    local size, id, weight, tenant = string.match(member, '^(%S+) (%S+) (%S+) (.*)$')
    if not queues[tenant] then
        queues[tenant] = {next = 1, units = 0}
        table.insert(tenants, tenant)
    end
    table.insert(queues[tenant], {member = member, id = id, size = tonumber(size), weight = weight})
    queues[tenant].units = queues[tenant].units + size
end

if sole then
    queues[sole].units = tonumber(redis.call('HGET', POOL, 'units:' .. lane) or '0')
end

-- Calls that are taken in any case are read in one step.
local calls, found = {}, {}
if #members > 0 and (sole or #members <= most) then
    for n = 1, math.min(#members, most, 1000) do
        calls[n] = string.match(members[n], '^%S+ (%S+)')
    end
    for n, call in ipairs(redis.call('HMGET', CALLS, unpack(calls))) do found[calls[n]] = call end
end

local start = tonumber(redis.call('HGET', SERVED, '') or '0')
local times = {}
for _, tenant in ipairs(tenants) do
    times[tenant] = math.max(start, tonumber(redis.call('HGET', SERVED, tenant) or '0'))
end

-- A heap of the tenants: the first is next. Of two at one time it is the one whose call is due.
local heap, places = {}, {}
for place, tenant in ipairs(tenants) do places[tenant] = place end

local function precedes(one, other)
    if times[one] ~= times[other] then return times[one] < times[other] end
    return places[one] < places[other]
end

local function sink(place)
    while 2 * place <= #heap do
        local child = 2 * place
        if child < #heap and precedes(heap[child + 1], heap[child]) then child = child + 1 end
        if not precedes(heap[child], heap[place]) then return end
        heap[place], heap[child] = heap[child], heap[place]
        place = child
    end
end

local function fill_heap()
    heap = {}
    for place, tenant in ipairs(tenants) do heap[place] = tenant end
    for place = math.floor(#heap / 2), 1, -1 do sink(place) end
end

local function is_bulk(tenant)
    local queue = queues[tenant]
    return #queue > most / 2 or (most_units > 0 and queue.units > most_units / 4)
end

local function leave_out(left_out)
    for n = #tenants, 1, -1 do
        if left_out(tenants[n]) then table.remove(tenants, n) end
    end
    fill_heap()
end

local without = {}
for n = 20, #ARGV do without[ARGV[n]] = true end
leave_out(function(tenant) return without[tenant] end)
if bulk == 'none' or (bulk == 'apart' and heap[1] and not is_bulk(heap[1])) then
    leave_out(is_bulk)
end
if #members > 0 and #tenants == 0 then return {} end

local taken, removed, units, removed_units = {}, {}, 0, 0
local holders = {}  -- fields and values of TAKEN
local moved = {}  -- tenants whose calls were taken
while #taken < most and heap[1] do
    local tenant = heap[1]
    local entries = queues[tenant]
    local entry = entries[entries.next]
    local call = found[entry.id]
    if call == nil then call = redis.call('HGET', CALLS, entry.id) end
    local deadline, asker = string.match(call or '', '^%S+ (%S+) (%S+)')
    local left = deadline and deadline - now or 0
    if left > math.max(0, needs_ms) then
        if most_units > 0 and #taken > 0 and units + entry.size > most_units then break end
        units = units + entry.size
        start = times[tenant]
        moved[tenant] = true
        times[tenant] = start + (sized == '1' and math.max(1, entry.size) or 1) / entry.weight
        holders[#holders + 1] = entry.id
        holders[#holders + 1] = worker .. '#' .. token
        table.insert(taken, {entry.id, call})
    elseif left > 0 then
        answer_error(entry.id, asker, reply_prefix, reply_ttl_s, late_code, late_message)
    else
        forget(entry.id)
        give_back(entry.id)
    end
    table.insert(removed, entry.member)
    removed_units = removed_units + entry.size
    entries.next = entries.next + 1
    if not entries[entries.next] then
        local last = table.remove(heap)
        if heap[1] then heap[1] = last end
    end
    sink(1)
end

for n = 1, #holders, 1000 do
    redis.call('HSET', TAKEN, unpack(holders, n, math.min(n + 999, #holders)))
end
for n = 1, #removed, 1000 do
    redis.call('ZREM', lane_key, unpack(removed, n, math.min(n + 999, #removed)))
end
for tenant, entries in pairs(queues) do
    if entries.next > 1 then count_waiting(tenant, 1 - entries.next) end
end
shrink_lane(lane_key, lane, rows, #removed, removed_units)
if redis.call('SCARD', LANES) == 0 then
    redis.call('DEL', SERVED)  -- nobody has to wait
else
    redis.call('HSET', SERVED, '', start)
    for tenant in pairs(moved) do redis.call('HSET', SERVED, tenant, times[tenant]) end
end
if #taken > 0 then
    record_launch()
    redis.call('HINCRBY', POOL, 'flush:' .. reason, 1)
    redis.call('ZADD', ALIVE, 'GT', now + lease_ms, worker)
end
if redis.call('SCARD', LANES) > 0 then notify(tiers) end
return taken
