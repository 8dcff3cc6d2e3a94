-- Takes calls of a lane for a launch. Returns {id, call}*, or nothing where the pool launched
-- meanwhile. Tenants take turns by start-time fair queueing (Goyal et al. 1996), counted in rows,
-- or in units where device time goes by size, by weight: the least virtual time is next; one that
-- comes back starts where the others are. bulk: of a tenant that has a good part of a launch waiting,
-- calls are taken like all others ('mixed'), in launches of their own ('apart'), or not ('none'), nor
-- those of the tenants in ARGV from 19 on. A take is a sign of life: Redis may have lost the worker's
-- announcement a moment ago.
local lane_key, lane, most, most_units, sized, launched_before, took_ms, needs_ms, reason, worker,
    slot, lease_ms, reply_prefix, reply_ttl_s, late_code, late_message, token,
    bulk = unpack(ARGV, 1, 18)

local latest = tonumber(redis.call('HGET', POOL, 'launch') or '0')
if latest > tonumber(launched_before) then return false end

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
    if redis.call('SCARD', LANES) > 0 then notify() end  -- whose watch has ended
    return {}
end

local members = redis.call('ZRANGE', lane_key, 0, -1)
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

-- Calls that are taken in any case are read in one step.
local calls, found = {}, {}
if #members <= math.min(most, 1000) and #members > 0 then
    for n, member in ipairs(members) do calls[n] = string.match(member, '^%S+ (%S+)') end
    for n, call in ipairs(redis.call('HMGET', CALLS, unpack(calls))) do found[calls[n]] = call end
end

local start = tonumber(redis.call('HGET', SERVED, '') or '0')
local times = {}
for _, tenant in ipairs(tenants) do
    times[tenant] = math.max(start, tonumber(redis.call('HGET', SERVED, tenant) or '0'))
end

local function next_tenant()
    local least = nil
    for n, tenant in ipairs(tenants) do
        if not least or times[tenant] < times[tenants[least]] then least = n end
    end
    return least
end

local function is_bulk(tenant)
    local queue = queues[tenant]
    return #queue > most / 2 or (most_units > 0 and queue.units > most_units / 4)
end

local first = next_tenant()
if bulk == 'none' or (bulk == 'apart' and first and not is_bulk(tenants[first])) then
    local others = {}
    for n = 19, #ARGV do others[ARGV[n]] = true end
    for n = #tenants, 1, -1 do
        if others[tenants[n]] or is_bulk(tenants[n]) then table.remove(tenants, n) end
    end
    if #tenants == 0 then return {} end
end

local taken, removed, units, removed_units = {}, {}, 0, 0
local holders = {}  -- fields and values of TAKEN
while #taken < most do
    local n = next_tenant()
    if not n then break end
    local tenant = tenants[n]
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
        times[tenant] = start + (sized == '1' and math.max(1, entry.size) or 1) / entry.weight
        holders[#holders + 1] = entry.id
        holders[#holders + 1] = worker .. '#' .. token
        table.insert(taken, {entry.id, call})
    elseif left > 0 then
        answer_error(entry.id, asker, reply_prefix, reply_ttl_s, late_code, late_message)
    else
        forget(entry.id)
    end
    table.insert(removed, entry.member)
    removed_units = removed_units + entry.size
    entries.next = entries.next + 1
    if not entries[entries.next] then table.remove(tenants, n) end
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
shrink_lane(lane_key, lane, #members, #removed, removed_units)
if redis.call('SCARD', LANES) == 0 then
    redis.call('DEL', SERVED)  -- nobody has to wait
else
    redis.call('HSET', SERVED, '', start)
    for tenant, time in pairs(times) do redis.call('HSET', SERVED, tenant, time) end
end
if #taken > 0 then
    record_launch()
    redis.call('HINCRBY', POOL, 'flush:' .. reason, 1)
    redis.call('ZADD', ALIVE, 'GT', now + lease_ms, worker)
end
if redis.call('SCARD', LANES) > 0 then notify() end
return taken
