"""What Redis executes. No policy: each script does what a ticket says, in one atomic step.

KEYS, all of one model version: 1 lanes (set of names), 2 calls (hash: id -> head, member and
packed, a line each; the head is "enqueued deadline reply_to lane"), 3 ready (sorted set: worker ->
until), 4 bell (list), 5 pool (hash), 6 taken (hash: id -> "worker#hand"), 7 alive (sorted set:
worker -> until), 8 busy (sorted set: slot -> until), 9 served (hash: tenant -> its virtual time),
10 bounded (hash: id -> the keys of what bounds how many calls are open, a space between). A lane is
a sorted set: member ("size id weight tenant") -> due. Times are milliseconds of Redis' own clock.

Of a tenant's quotas there is a hash of rates (when each bucket is full again), and for each bound
on open calls a sorted set (id -> deadline): jobs/calls/quotas.py says which.

The pool holds `launch` and `took` of the latest launch, `called` and `wanted` (when a call came,
and when one found no worker), `gap` (lanes.mean_gap), `watched` and `watched_rows` (until when, or
up to how many calls in a lane, nobody need ring), `profile`, `flush:<reason>`, and for each lane
that is not empty `units:<lane>` (the sizes of its calls) and `cost:<lane>` (their predicted time);
`cost` is the sum. Of each tenant that waits it holds `queued:<tenant>` ("calls weight");
`weights` is the sum of their weights.

A call is in `calls` until it is answered, dropped or past its deadline; in a lane while it waits,
in `taken` while a worker has it in hand.
"""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
"""

# One token on the bell wakes one worker; a second token would wake a second one for nothing.
_RING = """
local function ring()
    if redis.call('LLEN', KEYS[4]) == 0 then redis.call('RPUSH', KEYS[4], '1') end
end
"""

_FORGET = """
local function free(id, keys)
    redis.call('HDEL', KEYS[10], id)
    for key in string.gmatch(keys, '%S+') do redis.call('ZREM', key, id) end
end

local function forget(id)
    redis.call('HDEL', KEYS[2], id)
    redis.call('HDEL', KEYS[6], id)
    local keys = redis.call('HGET', KEYS[10], id)
    if keys then free(id, keys) end
end
"""

# A tenant has so many more calls waiting; weight: of those that come.
_QUEUE = """
local function queue(tenant, more, weight)
    local field = 'queued:' .. tenant
    local known = redis.call('HGET', KEYS[5], field)
    local had, counted = string.match(known or '0 0', '(%S+) (%S+)')
    local has = had + more
    weight = has > 0 and (weight or counted) or 0
    if has > 0 then
        redis.call('HSET', KEYS[5], field, has .. ' ' .. weight)
    else
        redis.call('HDEL', KEYS[5], field)
    end
    if tonumber(weight) ~= tonumber(counted) then
        redis.call('HINCRBYFLOAT', KEYS[5], 'weights', weight - counted)
    end
end
"""

# What is left of the rates whose names, steps, bursts and costs are in ARGV from `at` on. Returns
# the one that keeps the request out for longest (its number, for how long, what is left of it), or
# how far each is ahead of now once it is charged.
_RATES = """
local function rates(key, at, count)
    local names, worst, after = {}, nil, {}
    for n = 1, count do names[n] = ARGV[at + 4 * n - 4] end
    local kept = redis.call('HMGET', key, unpack(names))
    for n = 1, count do
        local place = at + 4 * n - 4
        local step, burst, cost = ARGV[place + 1], tonumber(ARGV[place + 2]), ARGV[place + 3]
        local ahead = math.max(0, (kept[n] or 0) - now)
        local over = ahead + (math.min(cost, burst) - burst) * step
        if over > 1e-3 and (not worst or over > worst[2]) then
            worst = {n, over, math.max(0, math.floor(burst - ahead / step))}
        end
        after[n] = ahead + cost * step
    end
    return worst, after
end

-- Returns what is left of each, and in how many ms it is full again.
local function charge(key, at, after)
    local fields, left = {}, {}
    for n, ahead in ipairs(after) do
        local place = at + 4 * n - 4
        fields[2 * n - 1], fields[2 * n] = ARGV[place], string.format('%.3f', now + ahead)
        local units = math.max(0, ARGV[place + 2] - ahead / ARGV[place + 1])
        left[2 * n - 1], left[2 * n] = math.floor(units + 1e-6), math.ceil(ahead)
    end
    redis.call('HSET', key, unpack(fields))
    redis.call('EXPIRE', key, 86400)
    return left
end
"""

# Answers a call with an error, in its worker's place.
_GIVE_UP = """
local function give_up(id, asker, prefix, ttl, code, message)
    local reply = {id, cjson.null, {code, message}, 0, {}}
    redis.call('RPUSH', prefix .. asker, cjson.encode({reply}))
    redis.call('EXPIRE', prefix .. asker, ttl)
    forget(id)
end
"""

# What a lane holds, when `gone` of its `before` calls leave, which have `units` of size: nothing
# once it is empty, the sum over all lanes once they all are.
_SHRINK = """
local function shrink(key, lane, before, gone, units)
    local cost = tonumber(redis.call('HGET', KEYS[5], 'cost:' .. lane) or '0')
    if gone >= before then
        redis.call('SREM', KEYS[1], lane)
        redis.call('HDEL', KEYS[5], 'cost:' .. lane, 'units:' .. lane)
        redis.call('HINCRBYFLOAT', KEYS[5], 'cost', -cost)
        if redis.call('SCARD', KEYS[1]) == 0 then
            redis.call('HSET', KEYS[5], 'cost', '0', 'weights', '0')
        end
    elseif gone > 0 then
        local less = -cost * gone / before
        redis.call('HINCRBYFLOAT', KEYS[5], 'cost:' .. lane, less)
        redis.call('HINCRBYFLOAT', KEYS[5], 'cost', less)
        redis.call('HINCRBY', KEYS[5], 'units:' .. lane, -units)
    end
end
"""

# Tenants take turns (TAKE), so that of what waits so much at most is launched before a new call
# (lanes.Standing). A caller without quotas has no arguments for them, and nothing is done.
# ARGV: lane key, lane name, id, member, packed call, target ms, timeout ms, most waiting, reply to,
# size; the terms (lanes.Terms): allowed, one, step, full rows, full, slots; after how long without
# a launch a pool is probed; tenant, its weight; number of rates, of bounds on open calls, where
# there are any: the key of the rates, and for each rate its name, step ms, burst, cost; for each
# bound its key, and how many.
# Returns why not ('' for a call that is in), and how long it would have waited; then, of quotas,
# the number of the one that is exceeded and what is left of it, or what `charge` returns.
PUT = (
    _NOW
    + _RING
    + _RATES
    + """
local replicas = redis.call('ZCOUNT', KEYS[3], now, '+inf')
if replicas == 0 then
    redis.call('HSET', KEYS[5], 'wanted', now)
    return {'no_worker', '0'}
end
local slots = replicas * ARGV[16]
local tenant = 'queued:' .. ARGV[18]
local pool = redis.call('HMGET', KEYS[5], 'cost', 'cost:' .. ARGV[2], 'units:' .. ARGV[2],
                        'called', 'gap', 'watched', 'watched_rows', 'launch', tenant, 'weights')
local cost, own = tonumber(pool[1] or '0'), tonumber(pool[2] or '0')
local rows = redis.call('ZCARD', ARGV[1])
local one, step, full_rows, full = ARGV[12], ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15])

local waiting = redis.call('HLEN', KEYS[2]) - redis.call('HLEN', KEYS[6])
local queued, counted = string.match(pool[9] or '0 0', '(%S+) (%S+)')
local weight = tonumber(ARGV[19])
local weights = math.max(weight, (pool[10] or 0) - counted + weight)
local turns = math.min(waiting, (queued + 1) * weights / weight)
local place = math.min(rows, math.floor(turns))

-- Of the slots, ascending by when they are free: the idle ones, then the busy ones.
local function free_in(slot)
    local busy = redis.call('ZRANGEBYSCORE', KEYS[8], '(' .. now, '+inf', 'WITHSCORES')
    local place = slot + #busy / 2 - slots
    return place < 0 and 0 or busy[2 * place + 2] - now
end

local before, first = 0, place - place % full_rows  -- of those that share its launch
if full > 0 then
    local others = waiting > 0 and (cost - own) * turns / waiting or 0
    before = math.floor((others + first / full_rows * full) / full + 1e-6)
end
local wait = free_in(before % slots) + math.floor(before / slots) * full
local launch = one + math.min(rows - first, full_rows - 1) * step
local adds = rows % full_rows == 0 and one or step
local deadline = now + ARGV[7]

local n_rates, n_open, after, left = tonumber(ARGV[20] or '0'), tonumber(ARGV[21] or '0'), nil, {}
local bounds = 23 + 4 * n_rates
if n_rates + n_open > 0 then
    local worst = nil
    if n_rates > 0 then worst, after = rates(ARGV[22], 23, n_rates) end
    for n = 1, n_open do
        local key, most = ARGV[bounds + 2 * n - 2], tonumber(ARGV[bounds + 2 * n - 1])
        if redis.call('ZCARD', key) >= most then
            redis.call('ZREMRANGEBYSCORE', key, '-inf', now)  -- who asked may have died
            local drain = math.max(1, wait + launch)
            if redis.call('ZCARD', key) >= most and (not worst or drain > worst[2]) then
                worst = {n_rates + n, drain, 0}
            end
        end
    end
    if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
end

if waiting >= tonumber(ARGV[8]) and queued * weights >= ARGV[8] * weight then
    return {'overloaded', tostring(wait)}
end
local probes = wait == 0 and rows == 0 and now > tonumber(pool[8] or '0') + ARGV[17]
if wait + launch > tonumber(ARGV[11]) and not probes then return {'late', tostring(wait)} end

if after then left = charge(ARGV[22], 23, after) end
if n_open > 0 then
    local keys = {}
    for n = 1, n_open do
        keys[n] = ARGV[bounds + 2 * n - 2]
        redis.call('ZADD', keys[n], deadline, ARGV[3])
    end
    redis.call('HSET', KEYS[10], ARGV[3], table.concat(keys, ' '))
end
local times = string.format('%.3f %.3f ', now, deadline)
redis.call('HSET', KEYS[2], ARGV[3],
           times .. ARGV[9] .. ' ' .. ARGV[2] .. '\\n' .. ARGV[4] .. '\\n' .. ARGV[5])
redis.call('ZADD', ARGV[1], math.min(deadline, now + ARGV[6]), ARGV[4])
if rows == 0 then redis.call('SADD', KEYS[1], ARGV[2]) end
local gap = tonumber(pool[5] or '0')
if pool[4] then
    local since = now - pool[4]
    local weight = gap == 0 and 1 or math.min(1, math.max(0.02, since / 1000))
    gap = gap + (since - gap) * weight
end
redis.call('HSET', KEYS[5], 'gap', gap, 'called', string.format('%.3f', now),
           'cost', cost + adds, 'cost:' .. ARGV[2], own + adds,
           'units:' .. ARGV[2], (pool[3] or 0) + ARGV[10],
           tenant, queued + 1 .. ' ' .. ARGV[19], 'weights', weights)
if now >= tonumber(pool[6] or '0') or rows + 1 >= tonumber(pool[7]) then ring() end
return {'', '0', unpack(left)}
"""
)

# For a request that is no call, and bound by rates alone.
# ARGV: the key of the rates, for each its name, step ms, burst, cost. Returns as PUT does.
CHARGE = (
    _NOW
    + _RATES
    + """
local worst, after = rates(ARGV[1], 2, (#ARGV - 1) / 4)
if worst then return {'quota', tostring(worst[2]), worst[1], worst[3]} end
return {'', '0', unpack(charge(ARGV[1], 2, after))}
"""
)

# ARGV: prefix of lane keys, slot that asks. Returns now, last launch, what it took, when the last
# call came, how far apart they come, until when they are watched and by whom, replicas,
# {slot, until}*, {lane, rows, units, due}*
LOOK = (
    _NOW
    + """
redis.call('ZREM', KEYS[8], ARGV[2])
local pool = redis.call('HMGET', KEYS[5], 'launch', 'took', 'called', 'gap', 'watched', 'watcher')
local lanes = {}
for _, lane in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local first = redis.call('ZRANGE', ARGV[1] .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
        local units = redis.call('HGET', KEYS[5], 'units:' .. lane) or '0'
        table.insert(lanes, {lane, redis.call('ZCARD', ARGV[1] .. lane), units, first[2]})
    else
        redis.call('SREM', KEYS[1], lane)
    end
end
return {string.format('%.3f', now), pool[1] or '0', pool[2] or '0', pool[3] or '0',
        pool[4] or '0', pool[5] or '0', pool[6] or '', redis.call('ZCOUNT', KEYS[3], now, '+inf'),
        redis.call('ZRANGEBYSCORE', KEYS[8], '(' .. now, '+inf', 'WITHSCORES'), lanes}
"""
)

# Tenants take turns by start-time fair queueing (Goyal et al. 1996), counted in rows, or in units
# where those are bounded, by weight: the least virtual time is next, one that comes back starts
# where the others are. Taking is a sign of life: Redis may have lost the worker's announcement a
# moment ago.
# ARGV: lane key, lane name, rows, units, launched before, took, needs, reason, worker, slot, its
# lease ms, prefix of reply keys, their ttl s, code and message for a call that can't be answered in
# time; hand. Returns {id, call}*, or nothing at all where the pool launched meanwhile.
TAKE = (
    _NOW
    + _RING
    + _FORGET
    + _GIVE_UP
    + _QUEUE
    + _SHRINK
    + """
if tonumber(redis.call('HGET', KEYS[5], 'launch') or '0') > tonumber(ARGV[5]) then return false end

local function launches()
    redis.call('HSET', KEYS[5], 'launch', string.format('%.3f', now), 'took', ARGV[6],
               'watched', '0')
    -- One that drains has no slot for anybody: its launches keep nobody waiting.
    if redis.call('ZSCORE', KEYS[3], ARGV[9]) then
        redis.call('ZADD', KEYS[8], now + ARGV[6], ARGV[10])
    end
end

local most, most_units = tonumber(ARGV[3]), tonumber(ARGV[4])
if most == 0 then
    launches()
    if redis.call('SCARD', KEYS[1]) > 0 then ring() end  -- whose watch has ended
    return {}
end

local members = redis.call('ZRANGE', ARGV[1], 0, -1)
local tenants, queues = {}, {}
for _, member in ipairs(members) do
    local size, id, weight, tenant = string.match(member, '^(%S+) (%S+) (%S+) (.*)$')
    if not queues[tenant] then
        queues[tenant] = {next = 1}
        table.insert(tenants, tenant)
    end
    table.insert(queues[tenant], {member = member, id = id, size = tonumber(size), weight = weight})
end

local start = tonumber(redis.call('HGET', KEYS[9], '') or '0')
local times = {}
for _, tenant in ipairs(tenants) do
    times[tenant] = math.max(start, tonumber(redis.call('HGET', KEYS[9], tenant) or '0'))
end

local function turn()
    local least = nil
    for n, tenant in ipairs(tenants) do
        if not least or times[tenant] < times[tenants[least]] then least = n end
    end
    return least
end

local taken, gone, units, gone_units = {}, {}, 0, 0
while #taken < most do
    local n = turn()
    if not n then break end
    local tenant = tenants[n]
    local entries = queues[tenant]
    local entry = entries[entries.next]
    local call = redis.call('HGET', KEYS[2], entry.id)
    local deadline, asker = string.match(call or '', '^%S+ (%S+) (%S+)')
    local left = deadline and deadline - now or 0
    if left > math.max(0, ARGV[7]) then
        if most_units > 0 and #taken > 0 and units + entry.size > most_units then break end
        units = units + entry.size
        start = times[tenant]
        times[tenant] = start + (most_units > 0 and entry.size or 1) / entry.weight
        redis.call('HSET', KEYS[6], entry.id, ARGV[9] .. '#' .. ARGV[16])
        table.insert(taken, {entry.id, call})
    elseif left > 0 then
        give_up(entry.id, asker, ARGV[12], ARGV[13], ARGV[14], ARGV[15])
    else
        forget(entry.id)
    end
    table.insert(gone, entry.member)
    gone_units = gone_units + entry.size
    entries.next = entries.next + 1
    if not entries[entries.next] then table.remove(tenants, n) end
end

for n = 1, #gone, 1000 do
    redis.call('ZREM', ARGV[1], unpack(gone, n, math.min(n + 999, #gone)))
end
for tenant, entries in pairs(queues) do
    if entries.next > 1 then queue(tenant, 1 - entries.next) end
end
shrink(ARGV[1], ARGV[2], #members, #gone, gone_units)
if redis.call('SCARD', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[9])  -- nobody has to wait
else
    redis.call('HSET', KEYS[9], '', start)
    for tenant, time in pairs(times) do redis.call('HSET', KEYS[9], tenant, time) end
end
if #taken > 0 then
    launches()
    redis.call('HINCRBY', KEYS[5], 'flush:' .. ARGV[8], 1)
    redis.call('ZADD', KEYS[7], 'GT', now + ARGV[11], ARGV[9])
end
if redis.call('SCARD', KEYS[1]) > 0 then ring() end
return taken
"""
)

# ARGV: prefix of lane keys, id
DROP = (
    _FORGET
    + _QUEUE
    + _SHRINK
    + """
local call = redis.call('HGET', KEYS[2], ARGV[2])
if call then
    local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\\n]*)\\n([^\\n]*)')
    local key = ARGV[1] .. lane
    local rows = redis.call('ZCARD', key)
    if redis.call('ZREM', key, member) == 1 then
        queue(string.match(member, '^%S+ %S+ %S+ (.*)$'), -1)
        shrink(key, lane, rows, 1, tonumber(string.match(member, '^%S+')))
    end
end
forget(ARGV[2])
"""
)

# ARGV: prefix of lane keys, worker and hand. Puts back what is in that hand, where it was.
DISOWN = (
    _NOW
    + _RING
    + _QUEUE
    + """
local taken = redis.call('HGETALL', KEYS[6])
for n = 1, #taken, 2 do
    local id, hand = taken[n], taken[n + 1]
    if hand == ARGV[2] then
        redis.call('HDEL', KEYS[6], id)
        local call = redis.call('HGET', KEYS[2], id) or ''
        local lane, member = string.match(call, '^%S+ %S+ %S+ ([^\\n]*)\\n([^\\n]*)')
        if lane then
            redis.call('ZADD', ARGV[1] .. lane, now, member)
            redis.call('SADD', KEYS[1], lane)
            local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
            redis.call('HINCRBY', KEYS[5], 'units:' .. lane, size)
            queue(tenant, 1, weight)
            ring()
        end
    end
end
"""
)

# A call that nobody knows any more was answered before, or given up: it is not counted again.
# The last key: used (hash: "minute class what tenant" -> sum; minutes since 1970).
# ARGV: reply key, its ttl s, packed replies; of each call its id, "class tenant", whether it
# succeeded (1 or 0), its size, its microseconds on the device.
REPLY = (
    _NOW
    + _FORGET
    + """
redis.call('RPUSH', ARGV[1], ARGV[3])
redis.call('EXPIRE', ARGV[1], ARGV[2])
local bounded = redis.call('EXISTS', KEYS[10]) == 1

local sums = {}
for n = 4, #ARGV, 5 do
    redis.call('HDEL', KEYS[6], ARGV[n])
    local keys = bounded and redis.call('HGET', KEYS[10], ARGV[n])
    if keys then free(ARGV[n], keys) end
    if redis.call('HDEL', KEYS[2], ARGV[n]) == 1 then
        local sum = sums[ARGV[n + 1]]
        if not sum then
            sum = {succeeded = 0, failed = 0, units = 0, device_us = 0}
            sums[ARGV[n + 1]] = sum
        end
        if ARGV[n + 2] == '1' then
            sum.succeeded = sum.succeeded + 1
            sum.units = sum.units + ARGV[n + 3]
        else
            sum.failed = sum.failed + 1
        end
        sum.device_us = sum.device_us + ARGV[n + 4]
    end
end

local minute = math.floor(now / 60000)
for whose, sum in pairs(sums) do
    local class, tenant = string.match(whose, '^(%S+) (.*)$')
    for what, count in pairs(sum) do
        if count > 0 then
            local field = minute .. ' ' .. class .. ' ' .. what .. ' ' .. tenant
            redis.call('HINCRBY', KEYS[#KEYS], field, string.format('%.0f', count))
        end
    end
end
"""
)

# ARGV: worker, ttl ms as ready, ttl ms as alive, profile. Its slots are named "worker/n".
ANNOUNCE = (
    _NOW
    + _RING
    + """
local function is_its(slot)
    return string.sub(slot, 1, #ARGV[1] + 1) == ARGV[1] .. '/'
end

local function note(key, ttl)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if tonumber(ttl) > 0 then
        redis.call('ZADD', key, now + ttl, ARGV[1])
    else
        redis.call('ZREM', key, ARGV[1])
    end
end
note(KEYS[3], ARGV[2])
note(KEYS[7], ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[8], '-inf', now)
if ARGV[2] == '0' then
    for _, slot in ipairs(redis.call('ZRANGE', KEYS[8], 0, -1)) do
        if is_its(slot) then redis.call('ZREM', KEYS[8], slot) end
    end
end
if ARGV[3] == '0' then
    -- It may have been the one that watches, or have heard the bell.
    if is_its(redis.call('HGET', KEYS[5], 'watcher') or '') then
        redis.call('HSET', KEYS[5], 'watched', '0')
    end
    if redis.call('SCARD', KEYS[1]) > 0 then ring() end
end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[5], 'profile', ARGV[4]) end
"""
)

# ARGV: for how many ms a call that found no worker is remembered.
WANTED = (
    _NOW
    + """
return now < tonumber(redis.call('HGET', KEYS[5], 'wanted') or '-1e12') + ARGV[1]
"""
)

# ARGV: prefix of lane keys, prefix of the names of lanes whose calls run alone, prefix of reply
# keys, their ttl s, code and message of the second death. Returns how many were recovered.
RECOVER = (
    _NOW
    + _RING
    + _FORGET
    + _GIVE_UP
    + _QUEUE
    + """
if redis.call('HLEN', KEYS[6]) == 0 then return 0 end

local function alive(worker)
    return tonumber(redis.call('ZSCORE', KEYS[7], worker) or '0') > now
end

local function put_back(id, before, lane, member, after)
    local alone = ARGV[2] .. lane
    redis.call('HSET', KEYS[2], id, before .. alone .. '\\n' .. member .. after)
    redis.call('HDEL', KEYS[6], id)
    redis.call('ZADD', ARGV[1] .. alone, now, member)
    redis.call('SADD', KEYS[1], alone)
    local size, weight, tenant = string.match(member, '^(%S+) %S+ (%S+) (.*)$')
    redis.call('HINCRBY', KEYS[5], 'units:' .. alone, size)
    queue(tenant, 1, weight)
    ring()
end

local recovered = 0
local taken = redis.call('HGETALL', KEYS[6])
for n = 1, #taken, 2 do
    local id = taken[n]
    local call = redis.call('HGET', KEYS[2], id) or ''
    local before, lane, member, after =
        string.match(call, '^(%S+ %S+ %S+ )([^\\n]*)\\n([^\\n]*)(.*)$')
    local deadline, asker = string.match(call, '^%S+ (%S+) (%S+)')
    if not deadline or tonumber(deadline) <= now then
        forget(id)
    elseif not alive(string.match(taken[n + 1], '^[^#]*')) then
        recovered = recovered + 1
        if string.sub(lane, 1, #ARGV[2]) == ARGV[2] then
            give_up(id, asker, ARGV[3], ARGV[4], ARGV[5], ARGV[6])
        else
            put_back(id, before, lane, member, after)
        end
    end
end
return recovered
"""
)
