"""What Redis executes. No policy: each script does what a ticket says, in one atomic step.

KEYS, all of one model version: 1 lanes (set of names), 2 calls (hash: id -> head, line feed,
packed; the head is "enqueued deadline reply_to lane"), 3 ready (sorted set: worker -> until), 4
bell (list), 5 pool (hash), 6 taken (hash: id -> worker), 7 alive (sorted set: worker -> until). A
lane is a sorted set: id -> due. Times are milliseconds of Redis' own clock.

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
local function forget(id)
    redis.call('HDEL', KEYS[2], id)
    redis.call('HDEL', KEYS[6], id)
end
"""

# ARGV: lane key, lane name, id, packed call, target ms, timeout ms, most waiting, reply to
PUT = (
    _NOW
    + _RING
    + """
if redis.call('ZCOUNT', KEYS[3], now, '+inf') == 0 then return 'no_worker' end
local waiting = redis.call('HLEN', KEYS[2]) - redis.call('HLEN', KEYS[6])
if waiting >= tonumber(ARGV[7]) then return 'overloaded' end
local deadline = now + ARGV[6]
local times = string.format('%.3f %.3f ', now, deadline)
redis.call('HSET', KEYS[2], ARGV[3], times .. ARGV[8] .. ' ' .. ARGV[2] .. '\\n' .. ARGV[4])
redis.call('ZADD', ARGV[1], math.min(deadline, now + ARGV[5]), ARGV[3])
redis.call('SADD', KEYS[1], ARGV[2])
ring()
return ''
"""
)

# ARGV: prefix of lane keys. Returns now, last launch, what it took, replicas, {lane, rows, due}*
LOOK = (
    _NOW
    + """
local pool = redis.call('HMGET', KEYS[5], 'launch', 'took')
local found = {string.format('%.3f', now), pool[1] or '0', pool[2] or '0',
               redis.call('ZCOUNT', KEYS[3], now, '+inf')}
for _, lane in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local first = redis.call('ZRANGE', ARGV[1] .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
        table.insert(found, {lane, redis.call('ZCARD', ARGV[1] .. lane), first[2]})
    else
        redis.call('SREM', KEYS[1], lane)
    end
end
return found
"""
)

# Taking is a sign of life: Redis may have lost the worker's announcement a moment ago.
# ARGV: lane key, lane name, rows, launched before, took, worker, its lease ms.
# Returns {id, call}*
TAKE = (
    _NOW
    + _RING
    + _FORGET
    + """
if tonumber(redis.call('HGET', KEYS[5], 'launch') or '0') > tonumber(ARGV[4]) then return {} end
local taken = {}
local rows = tonumber(ARGV[3])
while #taken < rows do
    local popped = redis.call('ZPOPMIN', ARGV[1], rows - #taken)
    if #popped == 0 then break end
    for n = 1, #popped, 2 do
        local id = popped[n]
        local call = redis.call('HGET', KEYS[2], id)
        if call and tonumber(string.match(call, '^%S+ (%S+)')) > now then
            redis.call('HSET', KEYS[6], id, ARGV[6])
            table.insert(taken, {id, call})
        else
            forget(id)
        end
    end
end
if redis.call('EXISTS', ARGV[1]) == 0 then redis.call('SREM', KEYS[1], ARGV[2]) end
if #taken > 0 then
    redis.call('HSET', KEYS[5], 'launch', string.format('%.3f', now), 'took', ARGV[5])
    redis.call('ZADD', KEYS[7], 'GT', now + ARGV[7], ARGV[6])
end
if redis.call('SCARD', KEYS[1]) > 0 then ring() end
return taken
"""
)

# ARGV: prefix of lane keys, id
DROP = (
    _FORGET
    + """
local call = redis.call('HGET', KEYS[2], ARGV[2])
if call then
    redis.call('ZREM', ARGV[1] .. string.match(call, '^%S+ %S+ %S+ ([^\\n]*)'), ARGV[2])
end
forget(ARGV[2])
"""
)

# In pieces: Lua's stack holds 8,000 arguments.
# ARGV: reply key, its ttl s, packed replies, id*
REPLY = """
redis.call('RPUSH', ARGV[1], ARGV[3])
redis.call('EXPIRE', ARGV[1], ARGV[2])
for n = 4, #ARGV, 1000 do
    local last = math.min(n + 999, #ARGV)
    redis.call('HDEL', KEYS[2], unpack(ARGV, n, last))
    redis.call('HDEL', KEYS[6], unpack(ARGV, n, last))
end
"""

# ARGV: worker, ttl ms as ready, ttl ms as alive
ANNOUNCE = (
    _NOW
    + """
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
"""
)

# ARGV: prefix of lane keys, prefix of the names of lanes whose calls run alone, prefix of reply
# keys, their ttl s, code and message of the second death. Returns how many were recovered.
RECOVER = (
    _NOW
    + _RING
    + _FORGET
    + """
if redis.call('HLEN', KEYS[6]) == 0 then return 0 end

local function alive(worker)
    return tonumber(redis.call('ZSCORE', KEYS[7], worker) or '0') > now
end

local function put_back(id, before, lane, after)
    local alone = ARGV[2] .. lane
    redis.call('HSET', KEYS[2], id, before .. alone .. after)
    redis.call('HDEL', KEYS[6], id)
    redis.call('ZADD', ARGV[1] .. alone, now, id)
    redis.call('SADD', KEYS[1], alone)
    ring()
end

local function give_up(id, asker)
    local reply = {id, cjson.null, {ARGV[5], ARGV[6]}, 0, {}}
    redis.call('RPUSH', ARGV[3] .. asker, cjson.encode({reply}))
    redis.call('EXPIRE', ARGV[3] .. asker, ARGV[4])
    forget(id)
end

local recovered = 0
local taken = redis.call('HGETALL', KEYS[6])
for n = 1, #taken, 2 do
    local id = taken[n]
    local call = redis.call('HGET', KEYS[2], id) or ''
    local before, lane, after = string.match(call, '^(%S+ %S+ %S+ )([^\\n]*)(.*)$')
    local deadline, asker = string.match(call, '^%S+ (%S+) (%S+)')
    if not deadline or tonumber(deadline) <= now then
        forget(id)
    elseif not alive(taken[n + 1]) then
        recovered = recovered + 1
        if string.sub(lane, 1, #ARGV[2]) == ARGV[2] then
            give_up(id, asker)
        else
            put_back(id, before, lane, after)
        end
    end
end
return recovered
"""
)
